package mcptool

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// outputOf makes the result of a call what the model reads. Invalid UTF-8 is
// replaced, since no model and no journal takes it.
func outputOf(res *mcp.CallToolResult, token string) agent.Output {
	if res.NeedsInput() {
		return agent.Output{Error: true, Text: "The tool asks for more input from a person or a model, which it cannot get here."}
	}
	out := agent.Output{Error: res.IsError}
	var texts []string
	add := func(text string) {
		texts = append(texts, scrub(strings.ToValidUTF8(text, "\uFFFD"), token))
	}
	media := func(mime, name string, data []byte) {
		if len(data) == 0 {
			add("(an empty file)")
			return
		}
		out.Media = append(out.Media, llm.Media{MIME: clip(mime, 200), Name: clip(name, 200), Data: data})
	}
	structured := res.StructuredContent != nil
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			add(c.Text)
			if structured && sameJSON(c.Text, res.StructuredContent) {
				structured = false
			}
		case *mcp.ImageContent:
			media(c.MIMEType, "", c.Data)
		case *mcp.AudioContent:
			media(c.MIMEType, "", c.Data)
		case *mcp.ResourceLink:
			add(linkText(c))
		case *mcp.EmbeddedResource:
			switch r := c.Resource; {
			case r == nil:
				add("(an empty resource)")
			case r.Blob != nil:
				media(r.MIMEType, path.Base(r.URI), r.Blob)
			default:
				add(r.URI + ":\n" + r.Text)
			}
		default:
			add(fmt.Sprintf("(content of a kind that is not known here: %T)", c))
		}
	}
	if structured {
		add(structuredText(res.StructuredContent))
	}
	out.Text = strings.Join(texts, "\n")
	if out.Error && out.Text == "" {
		out.Text = "The tool failed and did not say why."
	}
	return out
}

func linkText(c *mcp.ResourceLink) string {
	name := c.Title
	if name == "" {
		name = c.Name
	}
	text := fmt.Sprintf("%s: %s", name, c.URI)
	if c.MIMEType != "" {
		text += " (" + c.MIMEType + ")"
	}
	if c.Description != "" {
		text += " " + c.Description
	}
	return text
}

// sameJSON reports whether a text is the JSON of v, as servers repeat it for
// clients that know texts only.
func sameJSON(text string, v any) bool {
	var other any
	return json.Unmarshal([]byte(text), &other) == nil && reflect.DeepEqual(other, v)
}

func structuredText(v any) string {
	if inexact(v) {
		return "(The structured content is left out: it holds numbers that are too large to be kept exactly.)"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("(The structured content is left out: %v.)", err)
	}
	return string(raw)
}

// inexact reports whether v holds numbers that may have lost digits on the way
// through a float64.
func inexact(v any) bool {
	switch v := v.(type) {
	case float64:
		return math.Abs(v) >= 1<<53 && v == math.Trunc(v) && math.Abs(v) < 1e21
	case []any:
		for _, e := range v {
			if inexact(e) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if inexact(e) {
				return true
			}
		}
	}
	return false
}
