package mcptool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// outputOf returns the result of a call as the model reads it. Invalid UTF-8 is
// replaced, since neither models nor journals accept it.
func outputOf(res *mcp.CallToolResult, token string) agent.Output {
	if res.NeedsInput() {
		return agent.Output{Error: true, Text: "The tool asks for more input from a person or a model, which it cannot get here."}
	}
	out := agent.Output{Error: res.IsError}
	structured, wrapped := res.StructuredContent, false
	if structured != nil {
		var plain []string
		for _, c := range res.Content {
			if c, ok := c.(*mcp.TextContent); ok {
				plain = append(plain, c.Text)
			}
		}
		switch key, repeated := repeats(plain, structured); {
		case repeated && (key == "" || key == "result"): // a name that says nothing
			structured = nil
		case repeated:
			wrapped = true
		}
	}
	var texts []string
	add := func(text string) {
		texts = append(texts, llm.Scrub(strings.ToValidUTF8(text, "\uFFFD"), token))
	}
	media := func(mime, name string, data []byte) {
		if len(data) == 0 {
			add("(an empty file)")
			return
		}
		out.Media = append(out.Media, llm.Media{MIME: clip(mime, 200), Name: clip(name, 200), Data: data})
	}
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			if !wrapped {
				add(c.Text)
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
	if structured != nil {
		add(structuredText(structured))
	}
	out.Text = strings.Join(texts, "\n")
	if out.Error && out.Text == "" {
		out.Text = "The tool failed and did not say why."
	}
	return out
}

func linkText(c *mcp.ResourceLink) string {
	text := fmt.Sprintf("%s: %s", cmp.Or(c.Title, c.Name), c.URI)
	if c.MIMEType != "" {
		text += " (" + c.MIMEType + ")"
	}
	if c.Description != "" {
		text += " " + c.Description
	}
	return text
}

// repeats reports whether structured content repeats the texts, which servers send
// for clients that know only texts: the same value, or the value under a single
// key, which it returns. A list may be one text for each element.
func repeats(texts []string, v any) (key string, ok bool) {
	if slices.ContainsFunc(texts, func(text string) bool { return sameValue(text, v) }) {
		return "", true
	}
	m, _ := v.(map[string]any)
	if len(m) != 1 || len(texts) == 0 {
		return "", false
	}
	for key, v = range m {
	}
	if len(texts) == 1 && sameValue(texts[0], v) {
		return key, true
	}
	list, _ := v.([]any)
	return key, slices.EqualFunc(texts, list, sameValue)
}

// sameValue reports whether a text is v, or its JSON.
func sameValue(text string, v any) bool {
	if v == any(text) {
		return true
	}
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

// inexact reports whether v holds numbers that may have lost digits as float64.
func inexact(v any) bool {
	switch v := v.(type) {
	case float64:
		return math.Abs(v) >= 1<<53 && v == math.Trunc(v) && math.Abs(v) < 1e21
	case []any:
		return slices.ContainsFunc(v, inexact)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), inexact)
	}
	return false
}
