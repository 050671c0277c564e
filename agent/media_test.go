package agent_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// stored returns how many bytes are in a store.
func stored(t *testing.T, s store.Store) (size int) {
	t.Helper()
	for name, err := range s.Journals(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		for line, err := range s.Read(t.Context(), name, 0) {
			if err != nil {
				t.Fatal(err)
			}
			size += len(line.Data)
		}
	}
	for cell, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		size += len(cell.Value)
	}
	return size
}

// TestMediaAreKeptOnce: an image that a tool returns is once in the store,
// however often it is sent; an export keeps it, and an erase removes it.
func TestMediaAreKeptOnce(t *testing.T) {
	picture := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(1, 2)) // what cannot be compressed
	for i := range picture {
		picture[i] = byte(rng.Uint32())
	}
	shot := agent.NewTool("shot", "Takes a picture.", func(context.Context, order) (agent.Output, error) {
		return agent.Output{Text: "a picture", Media: []llm.Media{{MIME: "image/png", Data: picture}}}, nil
	})
	asked := 0
	model := &brain{think: func(r *llm.Request) llm.Message {
		for _, m := range r.Messages {
			for _, p := range m.Parts {
				if p.Result != nil && (len(p.Result.Media) != 1 || !bytes.Equal(p.Result.Media[0].Data, picture)) {
					return llm.Assistant("the picture is not there")
				}
			}
		}
		if asked++; asked <= 3 {
			return calls(call("shot", `{"id":"1"}`))
		}
		return llm.Assistant("done")
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{shot}})
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		rt, err := perdure.New(ctx, s, perdure.Options{Version: "1"}, agent.NewFlow("flow", clerk))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- rt.Work(ctx) }()
		say := func(thread string) {
			t.Helper()
			run, err := rt.Start(ctx, perdure.StartRequest{Thread: thread, Flow: "flow", Input: "go"})
			if err == nil {
				run, err = rt.Wait(ctx, thread, run.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := text(t, run); got != "done" {
				t.Fatalf("got %q", got)
			}
		}
		say("t")
		if size := stored(t, s); size < 1<<20 || size > 3<<19 {
			t.Errorf("the store has %d bytes, want those of one picture", size)
		}
		var export bytes.Buffer
		if err := rt.Export(ctx, "t", &export, perdure.ExportOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := rt.Erase(ctx, "t", perdure.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
		if size := stored(t, s); size > 100<<10 {
			t.Errorf("after the erase the store has %d bytes", size)
		}
		if _, err := rt.Import(ctx, &export, perdure.ImportOptions{As: "u"}); err != nil {
			t.Fatal(err)
		}
		say("u") // whose history has the picture
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestInputWithABlobThatIsNotThereIsRefused, and does not stay in the
// conversation, where every later run would fail with it.
func TestInputWithABlobThatIsNotThereIsRefused(t *testing.T) {
	clerk := agent.New("clerk", scripted(llm.Assistant("end")), agent.Options{})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", []llm.Part{{Media: &llm.Media{MIME: "image/png", Blob: "gone"}}})
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrOption) || !strings.Contains(run.Error, "gone") {
			t.Errorf("it failed with %v", run.Err)
		}
		e.Start("t", "flow", []llm.Part{{Media: &llm.Media{MIME: "image/png", Blob: "gone", Data: []byte("png")}}})
		e.Wait("t", perdure.Succeeded)
	})
}
