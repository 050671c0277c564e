package llm_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/llm"
)

// stream yields deltas, and an error if there is one.
func stream(err error, deltas ...llm.Delta) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		for _, d := range deltas {
			if !yield(d, nil) {
				return
			}
		}
		if err != nil {
			yield(llm.Delta{}, err)
		}
	}
}

// A reply that never ends is given up, whatever it consists of.
func TestFoldGivesUpOnAnEndlessReply(t *testing.T) {
	piece := strings.Repeat("x", 1<<20)
	for name, delta := range map[string]func(i int) llm.Delta{
		"text":        func(int) llm.Delta { return llm.Delta{Text: piece} },
		"reasoning":   func(int) llm.Delta { return llm.Delta{Reasoning: piece} },
		"arguments":   func(int) llm.Delta { return llm.Delta{Call: &llm.Call{Args: piece}} },
		"names":       func(int) llm.Delta { return llm.Delta{Call: &llm.Call{Name: piece}} },
		"opaque":      func(int) llm.Delta { return llm.Delta{Opaque: &llm.Opaque{Data: piece}} },
		"media":       func(i int) llm.Delta { return llm.Delta{Part: i, Media: &llm.Media{Data: []byte(piece)}} },
		"small parts": func(i int) llm.Delta { return llm.Delta{Part: i, Text: "x"} },
	} {
		var f llm.Fold
		var err error
		for i := 0; err == nil && i < llm.MaxReply; i++ {
			err = f.Add(delta(i))
		}
		if !errors.Is(err, llm.ErrTooLarge) || llm.Temporary(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFoldPutsDeltasTogether(t *testing.T) {
	opaque := func(s string) *llm.Opaque { return &llm.Opaque{Provider: "p", Data: s} }
	got, err := llm.Collect(stream(nil,
		llm.Delta{ID: "r1", Model: "m1", Usage: &llm.Usage{Input: 5}},
		llm.Delta{Part: 0, Reasoning: "Th"},
		llm.Delta{Part: 0, Reasoning: "ink", Opaque: opaque("si")},
		llm.Delta{Part: 0, Opaque: opaque("gn")},
		llm.Delta{Part: 1, Text: "A"},
		llm.Delta{Part: 2, Call: &llm.Call{ID: "c1", Name: "f", Args: `{"a`}},
		llm.Delta{Part: 3, Call: &llm.Call{ID: "c2", Name: "g"}, Opaque: opaque("x")},
		llm.Delta{Part: 2, Call: &llm.Call{Args: `":1}`}},
		llm.Delta{Part: 1, Text: "B"},
		llm.Delta{Part: 4, Opaque: opaque("alone")},
		llm.Delta{Part: 5, Media: &llm.Media{MIME: "image/png", Data: []byte{1}}},
		llm.Delta{},
		llm.Delta{Stop: llm.StopCalls, Usage: &llm.Usage{Input: 5, Output: 7}},
	))
	if err != nil {
		t.Fatal(err)
	}
	want := &llm.Reply{
		Message: llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Reasoning: &llm.Reasoning{Text: "Think"}, Opaque: opaque("sign")},
			{Text: "AB"},
			{Call: &llm.Call{ID: "c1", Name: "f", Args: `{"a":1}`}},
			{Call: &llm.Call{ID: "c2", Name: "g"}, Opaque: opaque("x")},
			{Opaque: opaque("alone")},
			{Media: &llm.Media{MIME: "image/png", Data: []byte{1}}},
		}},
		Usage: llm.Usage{Input: 5, Output: 7}, Stop: llm.StopCalls, Model: "m1", ID: "r1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("reply (-want +got):\n%s", d)
	}
	if got.Message.Text() != "AB" || len(got.Message.Calls()) != 2 || got.Usage.Total() != 12 {
		t.Errorf("text %q, calls %v, total %d", got.Message.Text(), got.Message.Calls(), got.Usage.Total())
	}
}

func TestFoldRefusesWhatMakesNoReply(t *testing.T) {
	own := errors.New("of the model")
	tests := map[string]struct {
		deltas iter.Seq2[llm.Delta, error]
		want   error
	}{
		"nothing":             {stream(nil), llm.ErrInterrupted},
		"no end":              {stream(nil, llm.Delta{Text: "A"}), llm.ErrInterrupted},
		"a part left out":     {stream(nil, llm.Delta{Part: 1, Text: "A"}, llm.Delta{Stop: llm.StopEnd}), llm.ErrInterrupted},
		"a part before all":   {stream(nil, llm.Delta{Part: -1, Text: "A"}, llm.Delta{Stop: llm.StopEnd}), llm.ErrInterrupted},
		"text and a call":     {stream(nil, llm.Delta{Text: "A"}, llm.Delta{Call: &llm.Call{ID: "c"}}, llm.Delta{Stop: llm.StopEnd}), llm.ErrInterrupted},
		"reasoning and text":  {stream(nil, llm.Delta{Reasoning: "A"}, llm.Delta{Text: "B"}, llm.Delta{Stop: llm.StopEnd}), llm.ErrInterrupted},
		"media and a text":    {stream(nil, llm.Delta{Media: &llm.Media{URL: "u"}}, llm.Delta{Text: "B"}, llm.Delta{Stop: llm.StopEnd}), llm.ErrInterrupted},
		"an error of a model": {stream(own, llm.Delta{Text: "A"}, llm.Delta{Stop: llm.StopEnd}), own},
	}
	for name, tt := range tests {
		if got, err := llm.Collect(tt.deltas); !errors.Is(err, tt.want) || got != nil {
			t.Errorf("%s: reply %+v, error %v, want %v", name, got, err, tt.want)
		}
	}
}

// TestFoldDoesNotMindWhereTextIsCut compares a reply in pieces with the same
// one in one piece.
func TestFoldDoesNotMindWhereTextIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		args := rapid.String().Draw(t, "args")
		var deltas []llm.Delta
		cut := func(s string, delta func(string) llm.Delta) {
			for len(s) > 0 {
				n := rapid.IntRange(1, len(s)).Draw(t, "piece")
				deltas = append(deltas, delta(s[:n]))
				s = s[n:]
			}
		}
		deltas = append(deltas, llm.Delta{Call: &llm.Call{ID: "c", Name: "f"}})
		cut(args, func(s string) llm.Delta { return llm.Delta{Call: &llm.Call{Args: s}} })
		cut(text, func(s string) llm.Delta { return llm.Delta{Part: 1, Text: s} })
		deltas = append(deltas, llm.Delta{Stop: llm.StopCalls})
		got, err := llm.Collect(stream(nil, deltas...))
		if err != nil {
			t.Fatal(err)
		}
		if got.Message.Text() != text || got.Message.Calls()[0] != (llm.Call{ID: "c", Name: "f", Args: args}) {
			t.Fatalf("%+v of text %q and arguments %q", got.Message.Parts, text, args)
		}
	})
}

// TestFoldKeepsItsOwnMedia: whoever streams may use its memory again.
func TestFoldKeepsItsOwnMedia(t *testing.T) {
	m := &llm.Media{URL: "first"}
	got, err := llm.Collect(func(yield func(llm.Delta, error) bool) {
		if yield(llm.Delta{Media: m}, nil) {
			m.URL = "second"
			yield(llm.Delta{Stop: llm.StopEnd}, nil)
		}
	})
	if err != nil || got.Message.Parts[0].Media.URL != "first" {
		t.Errorf("reply %+v, error %v", got, err)
	}
}

func TestModelFuncIsAModel(t *testing.T) {
	var m llm.Model = llm.ModelFunc(func(_ context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return stream(nil, llm.Delta{Text: r.System}, llm.Delta{Stop: llm.StopEnd})
	})
	got, err := llm.Collect(m.Generate(t.Context(), &llm.Request{System: "echo"}))
	if err != nil || got.Message.Text() != "echo" {
		t.Errorf("reply %+v, error %v", got, err)
	}
}

func TestUsageAddsUp(t *testing.T) {
	a := llm.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4, Reasoning: 5}
	if got, want := a.Add(a).Add(llm.Usage{}), (llm.Usage{Input: 2, Output: 4, CacheRead: 6, CacheWrite: 8, Reasoning: 10}); got != want {
		t.Errorf("sum is %+v, want %+v", got, want)
	}
}
