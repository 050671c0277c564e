package threads_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// flip changes one byte somewhere in the middle.
func flip(at func(n int) int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[at(len(b))] ^= 1
		return b
	}
}

func TestDamagedEntryIsLocatedAndStopsItsThreadOnly(t *testing.T) {
	flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
		if err := kit.SetTone(ctx, "one", in); err != nil {
			return "", err
		}
		if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
			return "", err
		}
		return kit.Tone.Get(ctx)
	})
	for name, change := range map[string]func([]byte) []byte{
		"a byte of the head": flip(func(int) int { return 7 }),
		"a byte of the kind": flip(func(int) int { return 13 }),
		"a byte of the body": flip(func(n int) int { return n - 60 }),
		"a byte of the hash": flip(func(n int) int { return n - 10 }),
		"the last byte":      flip(func(n int) int { return n - 1 }),
		"cut short":          func(b []byte) []byte { return b[:len(b)/2] },
		"empty":              func([]byte) []byte { return nil },
		"another's": func([]byte) []byte {
			return []byte(`{"v":1,"k":"nudge","id":"x","t":1,"b":{},"h":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`)
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			d := &kit.Rewritten{Store: memstore.New()}
			k := kit.New(t, d, perdure.Options{}, flow)
			k.StartOn("bad", "f", "x")
			time.Sleep(time.Second)
			k.StartOn("good", "f", "y")
			bad := k.WaitFor("bad", perdure.Suspended)
			good := k.WaitFor("good", perdure.Suspended)
			id := bad.Asks[0].ID
			var step, end uint64
			for _, e := range k.EventsOf("bad") {
				end = e.Seq
				if e.Kind == "step" {
					step = e.Seq
				}
			}
			d.Journal = kit.Journals(t, d)[0]
			lines := d.Lines(t)
			lines[step-1] = change(bytes.Clone(lines[step-1]))
			d.Show(lines)

			thread, err := k.Get(t.Context(), "bad")
			kit.WantErr(t, "get", err, perdure.ErrCorrupt)
			if err != nil && !strings.Contains(err.Error(), fmt.Sprint("entry ", step)) {
				t.Errorf("the error does not name entry %d: %v", step, err)
			}
			if thread == nil || thread.ID != "bad" || thread.Seq != step-1 || len(thread.Runs) != 1 || thread.Runs[0].Steps != 0 {
				t.Errorf("the good prefix is %+v", thread)
			}
			kit.WantErr(t, "an answer", k.AnswerAsk(id, perdure.Answer{Value: ""}), perdure.ErrCorrupt)
			_, err = k.Start(t.Context(), perdure.StartRequest{Thread: "bad", Flow: "f", Input: "z"})
			kit.WantErr(t, "a start", err, perdure.ErrCorrupt)
			kit.WantErr(t, "a signal", k.Signal(t.Context(), "bad", "go", 1, perdure.SignalOptions{}), perdure.ErrCorrupt)
			kit.WantErr(t, "a cancel", k.Control("cancel", "bad", bad.ID), perdure.ErrCorrupt)
			kit.WantErr(t, "an export", k.Export(t.Context(), "bad", io.Discard, perdure.ExportOptions{}), perdure.ErrCorrupt)
			_, err = k.StateAt(t.Context(), "bad", 0)
			kit.WantErr(t, "the state now", err, perdure.ErrCorrupt)
			if c, err := k.StateAt(t.Context(), "bad", step-1); err != nil || c.Seq != step-1 {
				t.Errorf("the state before the damage: %v", err)
			}
			var last uint64
			for e, err := range k.Events(t.Context(), "bad", perdure.EventOptions{}) {
				if err != nil {
					kit.WantErr(t, "events", err, perdure.ErrCorrupt)
				} else {
					last = e.Seq
				}
			}
			if last != step-1 {
				t.Errorf("the last event is %d", last)
			}
			_, err = k.Wait(t.Context(), "bad", "")
			kit.WantErr(t, "wait", err, perdure.ErrCorrupt)

			k.AnswerAt(good, "/ask", perdure.Answer{Value: ""})
			kit.WantOutput(t, k.WaitForRun("good", "", perdure.Succeeded), "y")
			listed := 0
			for _, err := range k.List(t.Context(), perdure.ListOptions{}) {
				kit.WantErr(t, "list", err, nil)
				listed++
			}
			if listed != 2 {
				t.Errorf("%d threads are listed", listed)
			}
			time.Sleep(time.Minute)
			if n, err := endSeq(d.Store, kit.Journals(t, d)[0]); err != nil || n != end {
				t.Errorf("something was appended after the damage: %d entries, %v", n, err)
			}
			// Once the bytes are restored the thread continues.
			d.Show(nil)
			k.AnswerAt(bad, "/ask", perdure.Answer{Value: ""})
			kit.WantOutput(t, k.WaitForRun("bad", "", perdure.Succeeded), "x")
		})
	}
}

func TestMissingEntryIsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		k.StartOn("t", "echo", "x")
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		h := &kit.Rewritten{Store: s, Journal: kit.Journals(t, s)[0]}
		lines := h.Lines(t)
		h.Show(slices.Delete(slices.Clone(lines), 2, 3))
		rt := kit.Runtime(t, h, perdure.Options{Version: "test"})
		thread, err := rt.Get(t.Context(), "t")
		kit.WantErr(t, "get", err, perdure.ErrCorrupt)
		if thread == nil || thread.Seq != 2 || len(lines) != 4 {
			t.Errorf("the good prefix is %+v of %d", thread, len(lines))
		}
	})
}

func endSeq(s store.Store, name string) (uint64, error) {
	lines, err := store.ReadAll(context.Background(), s, name, 0)
	return uint64(len(lines)), err
}

// appendRaw appends an entry of any kind and format to a journal.
func appendRaw(t *testing.T, s store.Store, name string, kind journal.Kind, newer bool) uint64 {
	t.Helper()
	seq, prev := kit.JournalEnd(t, s, name)
	e := journal.Entry{Kind: kind, ID: journal.NewID(), Time: time.Now().UnixMicro(), Body: []byte(`{"what":"ever"}`)}
	data := e.Encode(prev)
	if newer {
		data = []byte(strings.Replace(string(data), `{"v":1,`, `{"v":9,`, 1))
	}
	last, err := s.Append(context.Background(), name, seq, data)
	kit.NoErr(t, err)
	return last
}

func TestWhatANewerVersionWroteIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		kind  journal.Kind
		newer bool
		says  string
	}{
		"an unknown kind": {"teleported", false, `"teleported"`},
		"a newer format":  {journal.Nudge, true, "format 9"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{Expires: time.Minute}))
			k.StartOn("t", "f", "")
			time.Sleep(time.Second)
			k.StartOn("u", "f", "")
			run, other := k.WaitFor("t", perdure.Suspended), k.WaitFor("u", perdure.Suspended)
			name := kit.Journals(t, k.Store)[0]
			at := appendRaw(t, k.Store, name, c.kind, c.newer)

			thread, err := k.Get(t.Context(), "t")
			if err != nil || !strings.Contains(thread.Foreign, c.says) || !strings.Contains(thread.Foreign, fmt.Sprint("entry ", at)) {
				t.Fatalf("Get says %+v, %v", thread, err)
			}
			if len(thread.Runs) != 1 || thread.Runs[0].Status != perdure.Suspended {
				t.Errorf("what is known is lost: %+v", thread)
			}
			kit.WantErr(t, "an answer", k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Value: ""}), perdure.ErrNewer)
			_, err = k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "f", Input: ""})
			kit.WantErr(t, "a start", err, perdure.ErrNewer)
			for _, call := range []string{"pause", "resume", "retry", "cancel"} {
				kit.WantErr(t, call, k.Control(call, "t", run.ID), perdure.ErrNewer)
			}
			kit.WantErr(t, "a signal", k.Signal(t.Context(), "t", "go", 1, perdure.SignalOptions{}), perdure.ErrNewer)
			kit.WantErr(t, "metadata", k.SetMetadata(t.Context(), "t", nil, map[string]string{"a": "b"}, perdure.Note{}), perdure.ErrNewer)
			time.Sleep(5 * time.Minute) // the ask is due, but does not expire
			if n, err := endSeq(k.Store, name); err != nil || n != at {
				t.Errorf("%d entries, %v: something was written after it", n, err)
			}
			if c, err := k.StateAt(t.Context(), "t", at-1); err != nil || c.Thread.Foreign != "" {
				t.Errorf("the state before it: %+v, %v", c, err)
			}
			k.WaitForRun("u", other.ID, perdure.Failed) // its ask expired: other threads are unaffected
		})
	}
}

// TestUnknownKindFencesAWorkerAndItLetsGo appends an entry of an unknown kind
// while a step runs.
func TestUnknownKindFencesAWorkerAndItLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			n, err := perdure.Step(ctx, "slow", func(ctx context.Context) (int, error) {
				ran++
				time.Sleep(10 * time.Second)
				return 1, nil
			})
			if err != nil && !errors.Is(err, perdure.ErrFenced) {
				t.Errorf("the step got %v", err)
			}
			return n, err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		time.Sleep(time.Second)
		name := kit.Journals(t, k.Store)[0]
		at := appendRaw(t, k.Store, name, "teleported", false)
		time.Sleep(time.Minute)
		kinds := map[string]int{}
		for _, e := range k.EventsOf("t") {
			if e.Seq > at {
				kinds[e.Kind]++
			}
		}
		if len(kinds) != 1 || kinds["released"] != 1 || ran != 1 {
			t.Errorf("after the unknown entry come %v, want one release; the step ran %d times", kinds, ran)
		}
		_, err := k.Wait(t.Context(), "t", "")
		kit.WantErr(t, "wait", err, perdure.ErrNewer)
	})
}
