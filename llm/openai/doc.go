// Package openai is OpenAI, and every server that speaks its chat completions, as an llm.Model.
package openai

import _ "github.com/openai/openai-go/v3"
