package perdure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// leftovers returns the names of all that a store holds but its keys, that ids were used, the leases
// of workers, and alarms, which ring for nobody.
func leftovers(t *testing.T, s store.Store) []string {
	t.Helper()
	var names []string
	for cell, err := range s.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if cell.Key != "perdure/salt" && cell.Key != "perdure/sign" && cell.Key != "perdure/sweep" && !strings.HasPrefix(cell.Key, "used/") && !strings.HasPrefix(cell.Key, "worker/") && !strings.HasPrefix(cell.Key, "alarm/") {
			names = append(names, "cell "+cell.Key)
		}
	}
	for name, err := range s.Journals(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, "journal "+name)
	}
	return names
}

// wantNothing expects that a store holds nothing of any thread.
func wantNothing(t *testing.T, s store.Store) {
	t.Helper()
	if left := leftovers(t, s); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

var large = strings.Repeat("large ", 20_000) // becomes a blob

// eraseFlows are flows that stand, end, work and wait.
func eraseFlows() []perdure.Flow {
	return []perdure.Flow{
		echoFlow("echo"),
		askFlow("ask", perdure.Question{Prompt: "?"}),
		perdure.NewFlow("sleep", func(ctx context.Context, in string) (string, error) {
			return in, perdure.Sleep(ctx, "nap", 5*time.Second)
		}),
		perdure.NewFlow("work", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "long", func(ctx context.Context) (string, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return in, nil // a blob, also of one that was fenced
			})
		}),
	}
}

func TestAnErasedThreadIsGoneWhateverItIsAt(t *testing.T) {
	for _, flow := range []string{"echo", "ask", "sleep", "work"} {
		bubble(t, flow, func(t *testing.T) {
			k := newKit(t, nil, perdure.Options{}, eraseFlows()...)
			k.start("t", flow, large)
			k.start("t", "echo", "queued behind it")
			time.Sleep(time.Second)
			wantErr(t, "Signal", k.Signal(t.Context(), "t", "news", large, perdure.SignalOptions{}), nil)
			wantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{By: "ann", Reason: "asked to"}}), nil)
			_, err := k.Get(t.Context(), "t")
			wantErr(t, "Get", err, perdure.ErrNoThread)
			_, err = k.StateAt(t.Context(), "t", 1)
			wantErr(t, "StateAt", err, perdure.ErrNoThread)
			wantErr(t, "Signal", k.Signal(t.Context(), "t", "news", large, perdure.SignalOptions{}), perdure.ErrNoThread)
			wantErr(t, "Erase again", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
			for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
				t.Errorf("listed: %+v, %v", s, err)
			}
			time.Sleep(5 * time.Minute) // also what was late is gone
			wantNothing(t, k.store)

			run := k.begin(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new", Title: "new"})
			wantOutput(t, k.waitRun("t", run.ID, perdure.Succeeded), "new")
			thread, err := k.Get(t.Context(), "t")
			if err != nil || len(thread.Runs) != 1 || thread.Title != "new" || thread.Seq != 4 {
				t.Errorf("the new thread is %+v, %v", thread, err)
			}
		})
	}
}

func TestAnErasedThreadEndsItsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, eraseFlows()...)
		k.start("t", "work", "in")
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
		wantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		wantErr(t, "the reader", <-read, perdure.ErrErased)
		wantErr(t, "who waited", <-waited, perdure.ErrErased)
	})
}

// erasing leaves thread "t" with its entry `erased` and nothing done behind it.
func erasing(t *testing.T, s store.Store) {
	t.Helper()
	name := journalsOf(t, s)[0]
	seq, head := endOf(t, s, name)
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
		k := newKit(t, nil, perdure.Options{}, eraseFlows()...)
		k.start("t", "ask", "in")
		run := k.wait("t", perdure.Suspended)
		erasing(t, k.store)
		calls := map[string]error{
			"Answer":      k.reply(run.Asks[0].ID, perdure.Answer{Value: large}),
			"Progress":    k.Progress(t.Context(), run.Asks[0].ID, large, perdure.Note{}),
			"Signal":      k.Signal(t.Context(), "t", "s", large, perdure.SignalOptions{}),
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
			wantErr(t, what, err, perdure.ErrErased)
			wantErr(t, what, err, perdure.ErrNoThread)
		}
		k.begin(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new"})
		wantOutput(t, k.wait("t", perdure.Succeeded), "new")
		wantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		wantNothing(t, k.store)
	})
}

func TestADamagedThreadCanBeErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, eraseFlows()...)
		k.start("t", "echo", large)
		k.wait("t", perdure.Succeeded)
		name := journalsOf(t, k.store)[0]
		seq, _ := endOf(t, k.store, name)
		if _, err := k.store.Append(t.Context(), name, seq, []byte("damage")); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Get(t.Context(), "t"); !errors.Is(err, perdure.ErrCorrupt) {
			t.Fatalf("Get: %v, want ErrCorrupt", err)
		}
		wantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		wantNothing(t, k.store)
	})
}

func TestWhatANewerVersionWroteIsNotErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, eraseFlows()...)
		k.start("t", "echo", "in")
		k.wait("t", perdure.Succeeded)
		synctest.Wait() // the worker has settled the hint
		name := journalsOf(t, k.store)[0]
		seq, head := endOf(t, k.store, name)
		e := journal.Entry{Seq: seq + 1, Kind: "novelty", ID: journal.NewID(), Body: []byte("{}")}
		if _, err := k.store.Append(t.Context(), name, seq, e.Encode(head)); err != nil {
			t.Fatal(err)
		}
		before := leftovers(t, k.store)
		wantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNewer)
		if after := leftovers(t, k.store); strings.Join(after, " ") != strings.Join(before, " ") {
			t.Errorf("it changed %q to %q", before, after)
		}
	})
}

func TestEraseChecksWhatItIsGiven(t *testing.T) {
	rt, err := perdure.New(t.Context(), memstore.New(), perdure.Options{}, eraseFlows()...)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, "no id", rt.Erase(t.Context(), "", perdure.EraseOptions{}), perdure.ErrInvalid)
	wantErr(t, "no thread", rt.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
	wantErr(t, "a long reason", rt.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{Reason: large}}), perdure.ErrInvalid)
	if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: "in"}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "another tenant", rt.Tenant("other").Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
	if _, err := rt.Get(t.Context(), "t"); err != nil {
		t.Error(err)
	}
}
