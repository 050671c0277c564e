package gemini

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/history"
	"google.golang.org/genai"
)

// config translates a request. The SDK writes the settings; messages, tools and
// schemas bypass it, since it would change their numbers. It also returns the
// prefix of ids for calls that the model gives none.
func (c *Client) config(r *llm.Request) (*genai.GenerateContentConfig, string, error) {
	if c.name == "" || strings.Contains(c.name, "..") || strings.ContainsAny(c.name, "?&#%") {
		return nil, "", invalid("%q is not the name of a model", c.name)
	}
	contents, err := c.contents(history.Names(r))
	if err != nil {
		return nil, "", err
	}
	if len(contents) == 0 {
		return nil, "", invalid("the request has no messages")
	}
	said, err := json.Marshal(contents)
	if err != nil {
		return nil, "", invalid("%v", err)
	}
	tools, err := declarations(r.Tools)
	if err != nil {
		return nil, "", err
	}
	once, off := int32(1), false
	config := &genai.GenerateContentConfig{
		MaxOutputTokens:       int32(min(max(r.MaxTokens, 0), math.MaxInt32)),
		StopSequences:         r.Stop,
		ThinkingConfig:        c.thinking(r.Effort),
		AutomaticContinuation: &off,
	}
	if r.Temperature != nil {
		t := float32(*r.Temperature)
		config.Temperature = &t
	}
	if len(tools) > 0 && r.Choice != llm.ChoiceAuto {
		mode := genai.FunctionCallingConfigModeNone
		if r.Choice == llm.ChoiceRequired {
			mode = genai.FunctionCallingConfigModeAny
		}
		config.ToolConfig = &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: mode}}
	}
	system := r.System
	var schema json.RawMessage
	if r.Output != nil {
		if !history.IsObject(string(r.Output.Schema)) {
			return nil, "", invalid("the schema of the output is not a JSON object")
		}
		if len(tools) == 0 || third.MatchString(c.name) {
			config.ResponseMIMEType = "application/json"
			schema = r.Output.Schema
		} else {
			// Models before the third generation take tools or a schema.
			system = strings.TrimSpace(system + "\n\nWhen you call no tool, answer with JSON of this schema and nothing else:\n" + string(r.Output.Schema))
		}
	}
	if system != "" {
		config.SystemInstruction = &genai.Content{Parts: []*genai.Part{{Text: system}}}
	}
	config.HTTPOptions = &genai.HTTPOptions{
		RetryOptions: &genai.HTTPRetryOptions{Attempts: &once},
		ExtrasRequestProvider: func(body map[string]any) map[string]any {
			body["contents"] = json.RawMessage(said)
			if len(tools) > 0 {
				body["tools"] = []any{map[string]any{"functionDeclarations": tools}}
			}
			if schema != nil {
				body["generationConfig"].(map[string]any)["responseJsonSchema"] = schema
			}
			return body
		},
	}
	return config, fmt.Sprintf("call_%x", sha256.Sum256(said))[:17], nil
}

// declaration is a tool in the protocol.
type declaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

// declarations translates the tools.
func declarations(list []llm.Tool) ([]declaration, error) {
	var out []declaration
	for _, t := range list {
		if len(t.Schema) > 0 && !history.IsObject(string(t.Schema)) {
			return nil, invalid("the schema of tool %q is not a JSON object", t.Name)
		}
		out = append(out, declaration{t.Name, t.Description, t.Schema})
	}
	return out, nil
}

var (
	// Models of the third generation take levels of thinking, media in results,
	// and tools together with a schema, and check signatures.
	third = regexp.MustCompile(`^(models/)?gemini-([3-9]|[1-9][0-9])`)
	// Models that think with a budget of tokens.
	budgeted = regexp.MustCompile(`^(models/)?gemini-2\.5`)
)

// thinking returns how long the model may think, nil for older models.
func (c *Client) thinking(e llm.Effort) *genai.ThinkingConfig {
	switch {
	case e == llm.EffortDefault:
		return nil
	case third.MatchString(c.name):
		level := genai.ThinkingLevel(strings.ToUpper(string(e)))
		if e == llm.EffortMedium && strings.Contains(c.name, "gemini-3-pro") {
			level = genai.ThinkingLevelHigh // it knows two levels
		}
		return &genai.ThinkingConfig{IncludeThoughts: true, ThinkingLevel: level}
	case budgeted.MatchString(c.name):
		budget := map[llm.Effort]int32{llm.EffortLow: 1024, llm.EffortMedium: 8192, llm.EffortHigh: 24576}[e]
		return &genai.ThinkingConfig{IncludeThoughts: true, ThinkingBudget: &budget}
	}
	return nil
}
