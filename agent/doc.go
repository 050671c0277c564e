// Package agent makes durable agents of language models and tools.
package agent

import _ "github.com/google/jsonschema-go/jsonschema"
