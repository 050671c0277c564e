package gemini

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/llm"
)

func TestReplyOfText(t *testing.T) {
	s := serve(t, streaming(textStream))
	want := &llm.Reply{
		Message: llm.Assistant("Grüß Gott 😀"),
		Usage:   llm.Usage{Input: 3212, Output: 45, CacheRead: 3000, Reasoning: 30},
		Stop:    llm.StopEnd,
		Model:   "gemini-2.5-flash",
		ID:      "r1",
	}
	if diff := cmp.Diff(want, ask(t, s.model(), hello())); diff != "" {
		t.Error(diff)
	}
	s.reply = streaming(": a comment\n\n" + strings.ReplaceAll(strings.ReplaceAll(textStream, "\r\n", "\n"), "data: ", "event: x\ndata:"))
	if diff := cmp.Diff(want, ask(t, s.model(), hello())); diff != "" {
		t.Error(diff)
	}
}

func opaque(data string) *llm.Opaque { return &llm.Opaque{Provider: "gemini", Data: data} }

func TestCallsAndThinking(t *testing.T) {
	s := serve(t, streaming(callStream))
	got := ask(t, s.model(), hello())
	calls := got.Message.Calls()
	if len(calls) != 3 || calls[0].ID == calls[2].ID || calls[0].ID == "" {
		t.Fatalf("calls are %+v", calls)
	}
	want := &llm.Reply{
		Message: llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Reasoning: &llm.Reasoning{Text: "Two cities <a & b>,\nso two calls."}},
			{Reasoning: &llm.Reasoning{Text: "The end."}, Opaque: opaque(`{"thoughtSignature":"` + signature1 + `","thought":true}`)},
			{Text: "I look it up."},
			{Opaque: opaque(`{"thoughtSignature":"` + signature3 + `"}`)},
			{Call: &llm.Call{ID: calls[0].ID, Name: "weather", Args: `{"z": 1.50, "city": "Köln", "id": 12345678901234567890}`}, Opaque: opaque(`{"thoughtSignature":"` + signature2 + `"}`)},
			{Call: &llm.Call{ID: "fc-7", Name: "weather", Args: `{"city":"Bonn"}`}, Opaque: opaque(`{"id":true}`)},
			{Call: &llm.Call{ID: calls[2].ID, Name: "now", Args: `{}`}},
		}},
		Usage: llm.Usage{Input: 400, Output: 89, Reasoning: 40},
		Stop:  llm.StopCalls,
		Model: "gemini-2.5-flash",
		ID:    "r2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// results answers the calls of a reply.
func results(reply *llm.Reply) llm.Message {
	m := llm.Message{Role: llm.RoleTool}
	for _, c := range reply.Message.Calls() {
		m.Parts = append(m.Parts, llm.Part{Result: &llm.Result{Call: c.ID, Name: c.Name, Text: "r"}})
	}
	return m
}

// TestSignaturesGoBackAsTheyCame is what a run that was resumed depends on:
// the reply has been through JSON, and its next request holds the same parts.
func TestSignaturesGoBackAsTheyCame(t *testing.T) {
	s := serve(t, streaming(callStream))
	reply := ask(t, s.model(), hello())
	recorded, err := json.Marshal(reply.Message)
	if err != nil {
		t.Fatal(err)
	}
	var again llm.Message
	if err := json.Unmarshal(recorded, &again); err != nil {
		t.Fatal(err)
	}
	r := hello()
	r.Messages = append(r.Messages, again, results(reply))
	ask(t, s.model(), r)
	got := s.last(t)
	text := func(s string) *string { return &s }
	want := []wireContent{
		{"user", []wirePart{{Text: text("Hello")}}},
		{"model", []wirePart{
			{Text: text("The end."), Thought: true, Signature: signature1},
			{Text: text("I look it up.")},
			{Text: text(""), Signature: signature3},
			{Call: &wireCall{Name: "weather", Args: json.RawMessage(`{"z":1.50,"city":"Köln","id":12345678901234567890}`)}, Signature: signature2},
			{Call: &wireCall{ID: "fc-7", Name: "weather", Args: json.RawMessage(`{"city":"Bonn"}`)}},
			{Call: &wireCall{Name: "now", Args: json.RawMessage(`{}`)}},
		}},
		{"user", []wirePart{
			{Response: &wireResp{Name: "weather", Response: map[string]string{"output": "r"}}},
			{Response: &wireResp{ID: "fc-7", Name: "weather", Response: map[string]string{"output": "r"}}},
			{Response: &wireResp{Name: "now", Response: map[string]string{"output": "r"}}},
		}},
	}
	if diff := cmp.Diff(want, got.Contents); diff != "" {
		t.Error(diff)
	}
	for _, sig := range []string{signature1, signature2, signature3} {
		if !strings.Contains(string(got.raw), `"thoughtSignature":"`+sig+`"`) {
			t.Errorf("the bytes of %s are not in the request", sig)
		}
	}
}

// TestIDsAreUnique asks twice in one conversation: ids that the model did not
// give are new each time, and the same for the same request.
func TestIDsAreUnique(t *testing.T) {
	s := serve(t, streaming(strings.Replace(callStream, `"id": "fc-7",`, "", 1)))
	first := ask(t, s.model(), hello())
	if diff := cmp.Diff(first, ask(t, s.model(), hello())); diff != "" {
		t.Errorf("the same request has other ids: %s", diff)
	}
	r := hello()
	r.Messages = append(r.Messages, first.Message, results(first))
	second := ask(t, s.model(), r)
	seen := make(map[string]bool)
	for _, c := range append(first.Message.Calls(), second.Message.Calls()...) {
		if c.ID == "" || seen[c.ID] {
			t.Errorf("id %q is not unique", c.ID)
		}
		seen[c.ID] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d ids", len(seen))
	}
}

func TestMediaAndUnknownPartsGoBack(t *testing.T) {
	stream := sent(`{"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"exe="},{"inlineData":{"mimeType":"image/png","data":"cG5n"},"thoughtSignature":"abc="},{"fileData":{"fileUri":"https://example.com/x"}},{ }]},"finishReason":"STOP"}]}`)
	s := serve(t, streaming(stream))
	reply := ask(t, s.model(), hello())
	want := []llm.Part{
		{Opaque: opaque(`{"part":{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"exe="}}`)},
		{Media: &llm.Media{MIME: "image/png", Data: []byte("png")}, Opaque: opaque(`{"thoughtSignature":"abc="}`)},
		{Media: &llm.Media{URL: "https://example.com/x"}},
	}
	if diff := cmp.Diff(want, reply.Message.Parts); diff != "" {
		t.Error(diff)
	}
	r := hello()
	r.Messages = append(r.Messages, reply.Message, llm.User("And?"))
	ask(t, s.model(), r)
	back := []wirePart{
		{Executable: map[string]any{"language": "PYTHON", "code": "1"}, Signature: "exe="},
		{Inline: &wireInline{"image/png", "cG5n"}, Signature: "abc="},
		{File: &wireFile{URI: "https://example.com/x"}},
	}
	if diff := cmp.Diff(back, s.last(t).Contents[1].Parts); diff != "" {
		t.Error(diff)
	}
}

func TestStopReasons(t *testing.T) {
	for reason, want := range map[string]llm.Stop{
		"STOP": llm.StopEnd, "MAX_TOKENS": llm.StopLength, "SAFETY": llm.StopRefused, "RECITATION": llm.StopRefused, "BLOCKLIST": llm.StopRefused,
		"PROHIBITED_CONTENT": llm.StopRefused, "SPII": llm.StopRefused, "IMAGE_SAFETY": llm.StopRefused, "MALFORMED_FUNCTION_CALL": llm.StopOther,
		"UNEXPECTED_TOOL_CALL": llm.StopOther, "OTHER": llm.StopOther, "BRAND_NEW": llm.StopOther,
	} {
		s := serve(t, streaming(strings.Replace(textStream, `"finishReason": "STOP"`, `"finishReason": "`+reason+`"`, 1)))
		if got := ask(t, s.model(), hello()).Stop; got != want {
			t.Errorf("%s is %s, not %s", reason, got, want)
		}
	}
}
