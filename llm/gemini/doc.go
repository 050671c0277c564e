// Package gemini is the Gemini API as an llm.Model.
package gemini

import _ "google.golang.org/genai"
