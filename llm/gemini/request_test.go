package gemini

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/llm"
)

func str(s string) *string { return &s }

func TestRequestHoldsEverything(t *testing.T) {
	s := serve(t, streaming(textStream))
	temperature := 0.1
	const schema = `{"type":"object","properties":{"n":{"maximum":9007199254740993}}}`
	r := &llm.Request{
		System:      "Be brief.",
		Messages:    []llm.Message{llm.User("Hello")},
		Tools:       []llm.Tool{{Name: "f", Description: "does f", Schema: json.RawMessage(schema)}, {Name: "g"}},
		Choice:      llm.ChoiceRequired,
		Output:      &llm.Output{Name: "o", Schema: json.RawMessage(schema)},
		MaxTokens:   77,
		Temperature: &temperature,
		Stop:        []string{"END"},
	}
	ask(t, s.named("gemini-3-pro-preview"), r)
	got := s.last(t)
	if diff := cmp.Diff(&wireContent{"user", []wirePart{{Text: str("Be brief.")}}}, got.System); diff != "" {
		t.Error(diff)
	}
	if f := got.Tools[0].Functions; len(got.Tools) != 1 || len(f) != 2 || f[0].Name != "f" || f[0].Description != "does f" || string(f[0].Schema) != schema || f[1].Name != "g" || f[1].Schema != nil {
		t.Errorf("tools are %+v", got.Tools)
	}
	if got.ToolConfig.Calling.Mode != "ANY" {
		t.Errorf("mode is %q", got.ToolConfig.Calling.Mode)
	}
	c := got.Config
	if c.Max != 77 || *c.Temperature != 0.1 || len(c.Stop) != 1 || c.Stop[0] != "END" || c.MIME != "application/json" || string(c.Schema) != schema || c.Thinking != nil {
		t.Errorf("the configuration is %+v", c)
	}

	// A model that takes tools or a schema is told about the schema.
	r.Choice, r.MaxTokens = llm.ChoiceNone, 1<<40
	ask(t, s.model(), r)
	got = s.last(t)
	if c := got.Config; c.MIME != "" || c.Schema != nil || c.Max != 1<<31-1 {
		t.Errorf("the configuration is %+v", c)
	}
	if text := *got.System.Parts[0].Text; !strings.HasPrefix(text, "Be brief.\n\n") || !strings.HasSuffix(text, schema) {
		t.Errorf("the system prompt is %q", text)
	}
	if got.ToolConfig.Calling.Mode != "NONE" {
		t.Errorf("mode is %q", got.ToolConfig.Calling.Mode)
	}
	r.Tools = nil
	ask(t, s.model(), r)
	if got = s.last(t); string(got.Config.Schema) != schema || got.ToolConfig != nil || got.Tools != nil {
		t.Errorf("without tools: %s", got.raw)
	}
}

// TestRolesTakeTurns has two users in a row, results in two messages, and a
// user who speaks before the results.
func TestRolesTakeTurns(t *testing.T) {
	s := serve(t, streaming(textStream))
	call := func(id string) llm.Part { return llm.Part{Call: &llm.Call{ID: id, Name: "f" + id, Args: "{}"}} }
	res := func(id string) llm.Message {
		return llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: id, Name: "f" + id, Text: "r" + id}}}}
	}
	ask(t, s.model(), &llm.Request{
		Messages: []llm.Message{
			llm.User("a"), {Role: llm.RoleUser}, llm.User("b"),
			{Role: llm.RoleAssistant, Parts: []llm.Part{call("1"), call("2")}},
			llm.User("hurry"), res("1"), res("2"), llm.User("c"),
			llm.Assistant("x"), llm.Assistant("y"), llm.User("d"),
		},
	})
	text := func(s string) wirePart { return wirePart{Text: &s} }
	called := func(id string) wirePart {
		return wirePart{Call: &wireCall{Name: "f" + id, Args: json.RawMessage("{}")}}
	}
	result := func(id string) wirePart {
		return wirePart{Response: &wireResp{Name: "f" + id, Response: map[string]string{"output": "r" + id}}}
	}
	want := []wireContent{
		{"user", []wirePart{text("a"), text("b")}},
		{"model", []wirePart{called("1"), called("2")}},
		{"user", []wirePart{result("1"), result("2"), text("hurry"), text("c")}},
		{"model", []wirePart{text("x"), text("y")}},
		{"user", []wirePart{text("d")}},
	}
	if diff := cmp.Diff(want, s.last(t).Contents); diff != "" {
		t.Error(diff)
	}
}

func TestMediaAndResults(t *testing.T) {
	s := serve(t, streaming(textStream))
	png := llm.Media{MIME: "image/png", Data: []byte("png")}
	r := &llm.Request{Messages: []llm.Message{
		{Role: llm.RoleUser, Parts: []llm.Part{
			{Media: &png},
			{Media: &llm.Media{URL: "https://example.com/x"}},
			{Media: &llm.Media{MIME: "text/plain; charset=utf-8", Data: []byte("notes")}},
		}},
		{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Call: &llm.Call{ID: "1", Name: "f", Args: `{"a":`}},
			{Call: &llm.Call{ID: "2", Name: "f"}},
		}},
		{Role: llm.RoleTool, Parts: []llm.Part{
			{Result: &llm.Result{Call: "1", Name: "f", Text: "see", Media: []llm.Media{png}}},
			{Result: &llm.Result{Call: "2", Name: "f", Text: "bad arguments", Error: true}},
		}},
	}}
	ask(t, s.model(), r)
	image := wirePart{Inline: &wireInline{"image/png", "cG5n"}}
	want := []wireContent{
		{"user", []wirePart{image, {File: &wireFile{URI: "https://example.com/x"}}, {Inline: &wireInline{"text/plain", "bm90ZXM="}}}},
		{"model", []wirePart{
			{Call: &wireCall{Name: "f", Args: json.RawMessage(`{"invalid_json":"{\"a\":"}`)}},
			{Call: &wireCall{Name: "f", Args: json.RawMessage(`{}`)}},
		}},
		{"user", []wirePart{
			{Response: &wireResp{Name: "f", Response: map[string]string{"output": "see"}}},
			{Response: &wireResp{Name: "f", Response: map[string]string{"error": "bad arguments"}}},
			image,
		}},
	}
	if diff := cmp.Diff(want, s.last(t).Contents); diff != "" {
		t.Error(diff)
	}

	// The third generation takes media in results, and wants a word about calls
	// that another model made.
	ask(t, s.named("gemini-3-flash-preview"), r)
	want[1].Parts[0].Signature = "skip_thought_signature_validator"
	want[2].Parts = want[2].Parts[:2]
	want[2].Parts[0].Response.Parts = []wirePart{image}
	if diff := cmp.Diff(want, s.last(t).Contents); diff != "" {
		t.Error(diff)
	}
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	s := serve(t, streaming(textStream))
	media := func(m llm.Media) *llm.Request {
		return &llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{{Media: &m}}}}}
	}
	schema := hello()
	schema.Tools = []llm.Tool{{Name: "f", Schema: json.RawMessage(`[]`)}}
	output := hello()
	output.Output = &llm.Output{Name: "o", Schema: json.RawMessage(`null`)}
	inResult := &llm.Request{Messages: []llm.Message{{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Media: []llm.Media{{Blob: "b2"}}}}}}}}
	for want, r := range map[string]*llm.Request{
		`kept in blob "b1"`:               media(llm.Media{MIME: "image/png", Blob: "b1"}),
		`kept in blob "b2"`:               inResult,
		"neither bytes nor a URL":         media(llm.Media{MIME: "image/png"}),
		"bytes without a type":            media(llm.Media{Data: []byte("x")}),
		"no messages":                     {},
		`role "system"`:                   {Messages: []llm.Message{{Role: "system", Parts: []llm.Part{llm.Text("x")}}}},
		`schema of tool "f"`:              schema,
		"schema of the output":            output,
		"opaque data of a part is damage": {Messages: []llm.Message{{Role: llm.RoleAssistant, Parts: []llm.Part{{Opaque: opaque("{")}}}}},
	} {
		_, err := llm.Collect(s.model().Generate(t.Context(), r))
		if !errors.Is(err, llm.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if len(s.requests) > 0 {
		t.Errorf("%d of them were sent", len(s.requests))
	}
}

func TestEffort(t *testing.T) {
	s := serve(t, streaming(textStream))
	for _, c := range []struct {
		model  string
		effort llm.Effort
		want   *wireThinking
	}{
		{"gemini-2.5-flash", llm.EffortDefault, nil},
		{"gemini-2.5-flash", llm.EffortLow, &wireThinking{Include: true, Budget: 1024}},
		{"gemini-2.5-pro", llm.EffortMedium, &wireThinking{Include: true, Budget: 8192}},
		{"models/gemini-2.5-pro", llm.EffortHigh, &wireThinking{Include: true, Budget: 24576}},
		{"gemini-2.0-flash", llm.EffortHigh, nil},
		{"gemini-3-pro-preview", llm.EffortLow, &wireThinking{Include: true, Level: "LOW"}},
		{"gemini-3-pro-preview", llm.EffortMedium, &wireThinking{Include: true, Level: "HIGH"}},
		{"gemini-3-flash-preview", llm.EffortMedium, &wireThinking{Include: true, Level: "MEDIUM"}},
	} {
		r := hello()
		r.Effort = c.effort
		ask(t, s.named(c.model), r)
		if diff := cmp.Diff(c.want, s.last(t).Config.Thinking); diff != "" {
			t.Errorf("%s: %s", c.model, diff)
		}
	}
}
