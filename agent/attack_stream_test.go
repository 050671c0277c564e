package agent_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// TestDeltasOfACutStreamEndAsTheRecordedText: a reader that keeps one text a
// step, begins anew with each attempt, puts pieces where their offset says, and
// drops it when the step's event comes, never shows what was not said.
func TestDeltasOfACutStreamEndAsTheRecordedText(t *testing.T) {
	var n tally
	words := strings.SplitAfter("the quick brown fox jumps", " ")
	model := llm.ModelFunc(func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		life := n.add("model")
		return func(yield func(llm.Delta, error) bool) {
			time.Sleep(time.Second) // virtual, until the reader is there
			for i, w := range words {
				if life == 1 && i == 3 { // cut in the middle
					yield(llm.Delta{}, &llm.Error{Kind: llm.ErrInterrupted, Provider: "p"})
					return
				}
				if life == 2 && i == 2 { // the process dies here
					<-ctx.Done()
					return
				}
				if life == 1 {
					w = strings.ToUpper(w)
				}
				if !yield(llm.Delta{Text: w}, nil) {
					return
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			yield(llm.Delta{Stop: llm.StopEnd}, nil)
		}
	})
	perduretest.Virtual(t, flows(agent.New("clerk", model, agent.Options{})), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		type shown struct {
			attempt, seen int
			text          string
		}
		live := map[string]*shown{}
		voided, final, pieces := 0, "", 0
		follow := func(rt *perdure.Runtime) {
			for d, err := range rt.Deltas(ctx, "t") {
				if err != nil {
					return
				}
				var piece llm.Delta
				decode(t, d.Data, &piece)
				s := live[d.Path]
				if s == nil || s.attempt != d.Attempt || d.Offset == 0 {
					if s != nil && s.seen > 0 {
						voided++
					}
					s = &shown{attempt: d.Attempt}
					live[d.Path] = s
				}
				if int(d.Offset) != s.seen {
					t.Errorf("attempt %d: a piece at %d comes after %d pieces", d.Attempt, d.Offset, s.seen)
				}
				s.seen++
				s.text += piece.Text
				pieces++
			}
		}
		reader, err := perdure.New(ctx, e.Store, perdure.Options{Version: "reader"}) // another process
		if err != nil {
			t.Fatal(err)
		}
		go follow(reader)
		e.Advance(10 * time.Second)
		e.Restart()
		e.Wait("t", perdure.Succeeded)
		synctest.Wait()
		for ev, err := range e.Runtime().Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == "step" && strings.HasSuffix(ev.Path, "/reply") {
				var r agent.Record
				decode(t, ev.Value, &r)
				final = r.Message.Text()
				if got := live[ev.Path]; got == nil || got.text != final {
					t.Errorf("before the event of %s the reader shows %+v, recorded is %q", ev.Path, got, final)
				}
			}
		}
		if final != "the quick brown fox jumps" || voided != 2 {
			t.Errorf("recorded is %q, and %d texts were void, want 2 (%d pieces)", final, voided, pieces)
		}
	})
}

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
