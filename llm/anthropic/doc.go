// Package anthropic is Anthropic's Messages API as an llm.Model.
package anthropic

import _ "github.com/anthropics/anthropic-sdk-go"
