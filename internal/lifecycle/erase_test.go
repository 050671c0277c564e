package lifecycle_test

import (
	"context"
	"errors"
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

// eraseFlows are flows that end, ask, sleep and work.
func eraseFlows() []perdure.Flow {
	return []perdure.Flow{
		kit.EchoFlow("echo"),
		kit.AskFlow("ask", perdure.Question{Prompt: "?"}),
		perdure.NewFlow("sleep", func(ctx context.Context, in string) (string, error) {
			return in, perdure.Sleep(ctx, "nap", 5*time.Second)
		}),
		perdure.NewFlow("work", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "long", func(ctx context.Context) (string, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return in, nil // a blob, even if the run was fenced
			})
		}),
	}
}

func TestAnErasedThreadIsGoneWhateverItIsAt(t *testing.T) {
	for _, flow := range []string{"echo", "ask", "sleep", "work"} {
		kit.Bubble(t, flow, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, eraseFlows()...)
			k.StartOn("t", flow, kit.Large)
			k.StartOn("t", "echo", "queued behind it")
			time.Sleep(time.Second)
			kit.WantErr(t, "Signal", k.Signal(t.Context(), "t", "news", kit.Large, perdure.SignalOptions{}), nil)
			kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{By: "ann", Reason: "asked to"}}), nil)
			_, err := k.Get(t.Context(), "t")
			kit.WantErr(t, "Get", err, perdure.ErrNoThread)
			_, err = k.StateAt(t.Context(), "t", 1)
			kit.WantErr(t, "StateAt", err, perdure.ErrNoThread)
			kit.WantErr(t, "Signal", k.Signal(t.Context(), "t", "news", kit.Large, perdure.SignalOptions{}), perdure.ErrNoThread)
			kit.WantErr(t, "Erase again", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
			for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
				t.Errorf("listed: %+v, %v", s, err)
			}
			time.Sleep(5 * time.Minute) // also what was late is gone
			kit.WantNothing(t, k.Store)

			run := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new", Title: "new"})
			kit.WantOutput(t, k.WaitForRun("t", run.ID, perdure.Succeeded), "new")
			thread, err := k.Get(t.Context(), "t")
			if err != nil || len(thread.Runs) != 1 || thread.Title != "new" || thread.Seq != 4 {
				t.Errorf("the new thread is %+v, %v", thread, err)
			}
		})
	}
}

func TestAnErasedThreadEndsItsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, eraseFlows()...)
		k.StartOn("t", "work", "in")
		time.Sleep(time.Second)
		read := make(chan error, 1)
		go func() {
			var last error
			for _, err := range k.Events(t.Context(), "t", perdure.EventOptions{}) {
				last = err
			}
			read <- last
		}()
		waited := make(chan error, 1)
		go func() {
			_, err := k.WaitEnd(t.Context(), "t", "")
			waited <- err
		}()
		time.Sleep(time.Second)
		kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		kit.WantErr(t, "the reader", <-read, perdure.ErrErased)
		kit.WantErr(t, "who waited", <-waited, perdure.ErrErased)
	})
}

// erasing leaves thread "t" with its entry `erased` and nothing done after it.
func erasing(t *testing.T, s store.Store) {
	t.Helper()
	name := kit.Journals(t, s)[0]
	seq, head := kit.JournalEnd(t, s, name)
	e := journal.Entry{Seq: seq + 1, Kind: journal.Erased, ID: journal.NewID(), Body: []byte("{}")}
	if _, err := s.Append(t.Context(), name, seq, e.Encode(head)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), strings.Replace(name, "thread/", "gate/", 1), []byte("erased"), ""); err != nil {
		t.Fatal(err)
	}
}

func TestAHalfErasedThreadShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, eraseFlows()...)
		k.StartOn("t", "ask", "in")
		run := k.WaitFor("t", perdure.Suspended)
		erasing(t, k.Store)
		calls := map[string]error{
			"Answer":      k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Value: kit.Large}),
			"Progress":    k.Progress(t.Context(), run.Asks[0].ID, kit.Large, perdure.Note{}),
			"Signal":      k.Signal(t.Context(), "t", "s", kit.Large, perdure.SignalOptions{}),
			"Cancel":      k.Cancel(t.Context(), "t", "", perdure.Note{}),
			"SetMetadata": k.SetMetadata(t.Context(), "t", nil, map[string]string{"a": "b"}, perdure.Note{}),
		}
		_, calls["Get"] = k.Get(t.Context(), "t")
		_, calls["GetRun"] = k.GetRun(t.Context(), "t", "")
		_, calls["Wait"] = k.Wait(t.Context(), "t", "")
		_, calls["StateAt"] = k.StateAt(t.Context(), "t", 2)
		_, calls["Diff"] = k.Diff(t.Context(), perdure.Point{Thread: "t", Seq: 1}, perdure.Point{Thread: "t", Seq: 2})
		for e, err := range k.Events(t.Context(), "t", perdure.EventOptions{}) {
			if calls["Events"] = err; err == nil {
				t.Errorf("an event of an erased thread: %+v", e)
			}
		}
		for what, err := range calls {
			kit.WantErr(t, what, err, perdure.ErrErased)
			kit.WantErr(t, what, err, perdure.ErrNoThread)
		}
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new"})
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "new")
		kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		kit.WantNothing(t, k.Store)
	})
}

func TestADamagedThreadCanBeErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, eraseFlows()...)
		k.StartOn("t", "echo", kit.Large)
		k.WaitFor("t", perdure.Succeeded)
		name := kit.Journals(t, k.Store)[0]
		seq, _ := kit.JournalEnd(t, k.Store, name)
		if _, err := k.Store.Append(t.Context(), name, seq, []byte("damage")); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Get(t.Context(), "t"); !errors.Is(err, perdure.ErrCorrupt) {
			t.Fatalf("Get: %v, want ErrCorrupt", err)
		}
		kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		kit.WantNothing(t, k.Store)
	})
}

func TestWhatANewerVersionWroteIsNotErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, eraseFlows()...)
		k.StartOn("t", "echo", "in")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait() // the worker has settled the hint
		name := kit.Journals(t, k.Store)[0]
		seq, head := kit.JournalEnd(t, k.Store, name)
		e := journal.Entry{Seq: seq + 1, Kind: "novelty", ID: journal.NewID(), Body: []byte("{}")}
		if _, err := k.Store.Append(t.Context(), name, seq, e.Encode(head)); err != nil {
			t.Fatal(err)
		}
		before := kit.Leftovers(t, k.Store)
		kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNewer)
		if after := kit.Leftovers(t, k.Store); strings.Join(after, " ") != strings.Join(before, " ") {
			t.Errorf("it changed %q to %q", before, after)
		}
	})
}

func TestEraseChecksWhatItIsGiven(t *testing.T) {
	rt := kit.Runtime(t, memstore.New(), perdure.Options{}, eraseFlows()...)
	kit.WantErr(t, "no id", rt.Erase(t.Context(), "", perdure.EraseOptions{}), perdure.ErrInvalid)
	kit.WantErr(t, "no thread", rt.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
	kit.WantErr(t, "a long reason", rt.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{Reason: kit.Large}}), perdure.ErrInvalid)
	kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "echo", Input: "in"})
	kit.WantErr(t, "another tenant", rt.Tenant("other").Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
	if _, err := rt.Get(t.Context(), "t"); err != nil {
		t.Error(err)
	}
}
