package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/journal"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// venom kills the worker that executes it.
type venom struct {
	t       *testing.T
	cured   atomic.Bool
	victims atomic.Int32
	in      crowd
}

// worker starts a worker that dies of the poison, with healthy work beside it.
func (v *venom) worker(s store.Store, o perdure.Options) *kit.Mortal {
	id := fmt.Sprint(v.victims.Load())
	var m *kit.Mortal
	made := make(chan struct{})
	defer close(made)
	poison := perdure.NewFlow("poison", func(ctx context.Context, _ string) (string, error) {
		if v.cured.Load() {
			return "cured", nil
		}
		v.in.mu.Lock()
		beside := v.in.inside[id]
		v.in.mu.Unlock()
		if v.victims.Load() >= 2 {
			if beside != 0 {
				v.t.Errorf("a suspect runs beside %d others", beside)
			}
			before := v.in.came()
			time.Sleep(time.Second)
			if v.in.came() != before {
				v.t.Errorf("others began beside a suspect")
			}
		}
		v.victims.Add(1)
		<-made
		m.Die()
		<-ctx.Done()
		return "", ctx.Err()
	})
	m = kit.NewMortal(v.t, s, o, poison, v.in.flow("healthy", id, 700*time.Millisecond))
	return m
}

// kill lets workers die of the poison until it is quarantined.
func (v *venom) kill(s store.Store, o perdure.Options, thread string) *kit.Mortal {
	v.t.Helper()
	for range 8 {
		m := v.worker(s, o)
		for range 36_000 {
			time.Sleep(100 * time.Millisecond)
			if m.Dead.Load() {
				break
			}
			if run, err := m.GetRun(v.t.Context(), thread, ""); err == nil && run.Status == perdure.Quarantined {
				return m
			}
		}
		if !m.Dead.Load() {
			v.t.Fatalf("in an hour nothing came of the suspect\n%s", m.Trace(thread))
		}
		m.Stop()
	}
	v.t.Fatal("it was never quarantined")
	return nil
}

// TestPoisonIsQuarantined lets a run kill five workers, which are never idle:
// it is run alone from the third on, then stopped, and healthy runs continue.
func TestPoisonIsQuarantined(t *testing.T) {
	const healthy = 400
	scene := func(t *testing.T) (*venom, *kit.Mortal) {
		s := memstore.New()
		v := &venom{t: t}
		o := perdure.Options{Concurrency: 4, Grace: time.Second}
		rt := kit.Runtime(t, s, o, v.in.flow("healthy", "", 0), kit.EchoFlow("poison"))
		kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "poison", Input: ""})
		queueUp(t, rt, "healthy", "ann", healthy)
		m := v.kill(s, o, "t")
		if got := v.victims.Load(); got != 5 {
			t.Errorf("%d workers died, want 5", got)
		}
		if v.in.came() >= healthy {
			t.Errorf("it waited until all others were done")
		}
		return v, m
	}
	kit.Bubble(t, "with a post-mortem", func(t *testing.T) {
		v, m := scene(t)
		run := m.WaitFor("t", perdure.Quarantined)
		p, err := m.PostMortem(t.Context(), "t", run.ID)
		if err != nil || p.Deaths != 5 || p.Lost != 5 || len(p.Passes) != 5 || len(p.Effects) != 5 || len(p.Events) == 0 || p.Next[0].Do != "retry" {
			t.Errorf("the post-mortem is %+v, %v", p, err)
		}
		if run.Err == nil || run.Error == "" {
			t.Errorf("the run says %v", run.Err)
		}
		// Its thread waits, no other does.
		if _, err := m.StartAgain(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		until(t, "all healthy runs are executed", func() bool { return v.in.came() >= healthy })
		time.Sleep(time.Minute)
		for i := range healthy {
			m.WaitForRun(fmt.Sprint("healthy-ann-", i), "", perdure.Succeeded)
		}
		if got := m.KindsOf("t")["claimed"]; got != 5 {
			t.Errorf("it was claimed %d times", got)
		}
	})
	kit.Bubble(t, "until a person retries it", func(t *testing.T) {
		v, m := scene(t)
		v.cured.Store(true)
		kit.NoErr(t, m.Retry(t.Context(), "t", "", perdure.Note{By: "ann"}))
		time.Sleep(10 * time.Minute)
		kit.WantOutput(t, m.WaitFor("t", perdure.Succeeded), "cured")
	})
	kit.Bubble(t, "until a person cancels it", func(t *testing.T) {
		v, m := scene(t)
		v.cured.Store(true)
		again, err := m.StartAgain(t.Context(), "t", "", perdure.Note{})
		kit.NoErr(t, err)
		time.Sleep(10 * time.Minute)
		first := m.EventsOf("t")[1].Run
		if run, err := m.GetRun(t.Context(), "t", again.ID); err != nil || run.Status != perdure.Queued {
			t.Errorf("a run behind one in quarantine is %+v, %v", run, err)
		}
		kit.NoErr(t, m.Cancel(t.Context(), "t", first, perdure.Note{}))
		synctest.Wait()
		if run, err := m.GetRun(t.Context(), "t", first); err != nil || run.Status != perdure.Cancelled {
			t.Errorf("%+v, %v", run, err)
		}
		time.Sleep(time.Minute)
		run, err := m.WaitEnd(t.Context(), "t", again.ID)
		if err != nil || run.Status != perdure.Succeeded {
			t.Errorf("%+v, %v", run, err)
		}
	})
}

// TestQuarantinedRunIsRetriedOrCancelledByAPerson writes the entries that a
// run which kills its workers leaves.
func TestQuarantinedRunIsRetriedOrCancelledByAPerson(t *testing.T) {
	for call, want := range map[string]perdure.Status{"retry": perdure.Suspended, "cancel": perdure.Cancelled} {
		kit.Bubble(t, call, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.EchoFlow("other"))
			id := k.StartOn("t", "f", "").ID
			run := k.WaitFor("t", perdure.Suspended)
			k.Stop()
			name := kit.Journals(t, k.Store)[0]
			seq, prev := kit.JournalEnd(t, k.Store, name)
			body, err := (&journal.Body{Worker: "dead", Version: "test"}).Encode()
			kit.NoErr(t, err)
			claim := journal.Entry{Kind: journal.Claimed, ID: journal.NewID(), Time: time.Now().UnixMicro(), Run: run.Seq, Epoch: 2, Body: body}
			first := claim.Encode(prev)
			body, err = (&journal.Body{Fail: &journal.Failure{Msg: "it killed five workers", Stack: "stack"}}).Encode()
			kit.NoErr(t, err)
			stop := journal.Entry{Kind: journal.Quarantined, ID: journal.NewID(), Time: time.Now().UnixMicro(), Run: run.Seq, Epoch: 2, Body: body}
			if _, err := k.Store.Append(t.Context(), name, seq, first, stop.Encode(claim.Hash)); err != nil {
				t.Fatal(err)
			}
			next := k.StartOn("t", "other", "x")
			k = kit.New(t, k.Store, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.EchoFlow("other"))
			time.Sleep(time.Minute)
			run = k.WaitForRun("t", id, perdure.Quarantined)
			if !strings.Contains(run.Error, "five workers") {
				t.Errorf("it says %q", run.Error)
			}
			kit.WantErr(t, "resume", k.Control("resume", "t", id), perdure.ErrNothingToDo)
			kit.WantErr(t, call, k.Control(call, "t", id), nil)
			run = k.WaitForRun("t", id, want)
			if call == "retry" {
				k.AnswerAt(run, "/ask", perdure.Answer{Value: "y"})
				kit.WantOutput(t, k.WaitForRun("t", id, perdure.Succeeded), "y")
			}
			kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
		})
	}
}
