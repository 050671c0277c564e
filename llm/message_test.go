package llm_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/llm"
)

// hostile draws texts that encoders like to change.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{
			"", " ", "\x00", "\u2028\u2029", "<script>&</script>", `{"a": 1.0, "a":1e400, "b" :[ ]}`, `{"n":12345678901234567890}`,
			`\u00e9 \ud83d`, "\uFFFD", "\uFEFFbom", "😀", `"`, `\`, "null", "\r\n", "{", "\u202e",
		}),
		rapid.StringOf(rapid.SampledFrom([]rune{'"', '\\', 'u', 'd', '8', '0', '{', '}', '<', '\n', 0, 0x2028, 0xFFFD, 0x10FFFF})),
	)
}

func drawMedia(t *rapid.T) *llm.Media {
	m := &llm.Media{MIME: hostile().Draw(t, "mime"), Name: hostile().Draw(t, "name"), URL: hostile().Draw(t, "url"), Blob: hostile().Draw(t, "blob")}
	if data := rapid.SliceOf(rapid.Byte()).Draw(t, "data"); len(data) > 0 {
		m.Data = data
	}
	return m
}

func drawPart(t *rapid.T) llm.Part {
	var p llm.Part
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		p.Text = hostile().Draw(t, "text")
	case 1:
		p.Media = drawMedia(t)
	case 2:
		p.Call = &llm.Call{ID: hostile().Draw(t, "id"), Name: hostile().Draw(t, "name"), Args: hostile().Draw(t, "args")}
	case 3:
		p.Result = &llm.Result{Call: hostile().Draw(t, "call"), Name: hostile().Draw(t, "name"), Text: hostile().Draw(t, "text"), Error: rapid.Bool().Draw(t, "error")}
		for range rapid.IntRange(0, 2).Draw(t, "media") {
			p.Result.Media = append(p.Result.Media, *drawMedia(t))
		}
	case 4:
		p.Reasoning = &llm.Reasoning{Text: hostile().Draw(t, "reasoning")}
	}
	if rapid.Bool().Draw(t, "opaque") {
		p.Opaque = &llm.Opaque{Provider: hostile().Draw(t, "provider"), Data: hostile().Draw(t, "data")}
	}
	return p
}

// TestMessagesSurviveJSON holds for everything that is UTF-8, and for bytes.
func TestMessagesSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := llm.Message{Role: llm.Role(hostile().Draw(t, "role"))}
		for range rapid.IntRange(0, 4).Draw(t, "parts") {
			m.Parts = append(m.Parts, drawPart(t))
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var got llm.Message
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		again, err := json.Marshal(got)
		if err != nil || !bytes.Equal(data, again) {
			t.Fatalf("written again it is\n%s\nand was\n%s\n%v", again, data, err)
		}
		// A journal may indent, compact and escape what it keeps.
		var indented bytes.Buffer
		if err := json.Indent(&indented, data, "", "\t"); err != nil {
			t.Fatal(err)
		}
		var third llm.Message
		if err := json.Unmarshal(indented.Bytes(), &third); err != nil || !cmp.Equal(m, third) {
			t.Fatalf("indented it is %+v, was %+v, error %v", third, m, err)
		}
	})
}

func TestMediaOfAURLWithoutTypeIsAnImage(t *testing.T) {
	tests := []struct {
		media llm.Media
		want  bool
	}{
		{llm.Media{MIME: "image/png", Data: []byte{1}}, true},
		{llm.Media{URL: "https://example.com/a"}, true},
		{llm.Media{MIME: "application/pdf", URL: "https://example.com/a"}, false},
		{llm.Media{Data: []byte{1}}, false},
		{llm.Media{Blob: "b"}, false},
	}
	for _, tt := range tests {
		if got := tt.media.Image(); got != tt.want {
			t.Errorf("%+v is an image: %v, want %v", tt.media, got, tt.want)
		}
	}
}

func TestMessagesAreMadeOfText(t *testing.T) {
	want := map[string]llm.Message{
		"user":      {Role: llm.RoleUser, Parts: []llm.Part{{Text: "Hi"}}},
		"assistant": {Role: llm.RoleAssistant, Parts: []llm.Part{{Text: "Hi"}}},
	}
	if d := cmp.Diff(want, map[string]llm.Message{"user": llm.User("Hi"), "assistant": llm.Assistant("Hi")}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
