package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// till is what is paid for: by thread, how often, and how often it is to fail.
type till struct {
	mu    sync.Mutex
	paid  map[string]int
	fails map[string]int
}

func (p *till) pay(ctx context.Context, name string, opts ...perdure.StepOption) error {
	_, err := perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
		here, err := perdure.Here(ctx)
		if err != nil {
			return "", err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.fails[here.Thread] > 0 {
			p.fails[here.Thread]--
			return "", errors.New("out of order")
		}
		p.paid[here.Thread]++
		return "paid", tillNotes.Append(ctx, "paid "+name)
	}, opts...)
	return err
}

// took returns how often was paid since it was last asked.
func (p *till) took() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, times := range p.paid {
		n += times
	}
	p.paid = map[string]int{}
	return n
}

var tillNotes = perdure.NewList[string]("notes")

func sure(ctx context.Context, name string, q perdure.Question) error {
	_, err := perdure.Ask[bool](ctx, name, q)
	return err
}

// tillFlows pay after a person has agreed, each in another way.
func tillFlows(p *till) []perdure.Flow {
	child := perdure.NewFlow("child", func(ctx context.Context, _ string) (string, error) { return "", p.pay(ctx, "pay") })
	ways := map[string]func(ctx context.Context) error{
		"frame": func(ctx context.Context) error {
			return errors.Join(sure(ctx, "ok", perdure.Question{}), p.pay(ctx, "pay"))
		},
		"scope": func(ctx context.Context) error {
			_, err := perdure.Scope(ctx, "gate", func(ctx context.Context) (bool, error) { return true, sure(ctx, "ok", perdure.Question{}) })
			return errors.Join(err, p.pay(ctx, "pay"))
		},
		"composite": func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "gate", func(ctx context.Context) (bool, error) { return true, sure(ctx, "ok", perdure.Question{}) })
			return errors.Join(err, perdure.Emit(ctx, "agreed", true), p.pay(ctx, "pay"))
		},
		"branches": func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for _, name := range []string{"a", "b"} {
				g.Go(name, func(ctx context.Context) error {
					return errors.Join(sure(ctx, "ok", perdure.Question{}), p.pay(ctx, "pay"))
				})
			}
			return g.Wait()
		},
		"allows": func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "rule", func(context.Context) (bool, error) { return true, nil }, perdure.Allows("pay"))
			err = errors.Join(err, sure(ctx, "ok", perdure.Question{Guards: "pay", Allows: []string{"pay"}}))
			_, prepared := perdure.Step(ctx, "prepare", func(ctx context.Context) (int, error) { return 1, tillNotes.Append(ctx, "prepared") })
			return errors.Join(err, prepared, p.pay(ctx, "pay"))
		},
		"allows a composite": func(ctx context.Context) error {
			err := sure(ctx, "ok", perdure.Question{Allows: []string{"both"}})
			_, both := perdure.Step(ctx, "both", func(ctx context.Context) (int, error) {
				return 2, errors.Join(p.pay(ctx, "one"), perdure.Sleep(ctx, "pause", time.Minute), p.pay(ctx, "two"))
			})
			return errors.Join(err, both)
		},
		"at most once": func(ctx context.Context) error {
			return errors.Join(sure(ctx, "ok", perdure.Question{}), p.pay(ctx, "pay", perdure.AtMostOnce(), perdure.Timeout(time.Second)))
		},
		"unknown outcome": func(ctx context.Context) error {
			return p.pay(ctx, "pay", perdure.AtMostOnce(), perdure.Timeout(time.Second))
		},
		"tried again": func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "try", func(ctx context.Context) (int, error) {
				err := sure(ctx, "ok", perdure.Question{})
				if err == nil {
					err = p.pay(ctx, "pay")
				}
				return 0, err
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 3, Wait: time.Minute}))
			return err
		},
		"retried": func(ctx context.Context) error {
			return errors.Join(sure(ctx, "ok", perdure.Question{}), p.pay(ctx, "pay"))
		},
		"spawn": func(ctx context.Context) error {
			err := sure(ctx, "ok", perdure.Question{})
			c, spawned := perdure.Spawn(ctx, "child", "child", "")
			_, joined := perdure.Join[string](ctx, "join", c)
			return errors.Join(err, spawned, joined)
		},
		"waits": func(ctx context.Context) error {
			err := errors.Join(sure(ctx, "ok", perdure.Question{}), perdure.Sleep(ctx, "nap", time.Minute))
			_, word := perdure.Receive[string](ctx, "word", "go", 0)
			_, _, taken := perdure.Take[string](ctx, "more")
			return errors.Join(err, word, taken, sure(ctx, "still", perdure.Question{}), p.pay(ctx, "pay"))
		},
		"by default": func(ctx context.Context) error {
			q := perdure.Question{Expires: time.Hour, Default: &perdure.Answer{Value: true}}
			return errors.Join(sure(ctx, "ok", q), p.pay(ctx, "pay"))
		},
	}
	flows := []perdure.Flow{child}
	for name, way := range ways {
		flows = append(flows, perdure.NewFlow(name, func(ctx context.Context, _ string) (string, error) {
			err := way(ctx)
			if err != nil {
				return "", err
			}
			notes, err := tillNotes.Get(ctx)
			return fmt.Sprint(notes), err
		}))
	}
	return flows
}

// goOn drives a thread until its runs have ended or it needs an answer that it
// is not to be given.
func goOn(k *kit.Kit, thread string, answers bool) *perdure.Run {
	k.T.Helper()
	ctx := k.T.Context()
	for range 30 {
		run, err := k.Wait(ctx, thread, "")
		kit.NoErr(k.T, err)
		switch {
		case !run.Paused.IsZero():
			err = k.Resume(ctx, thread, run.ID, perdure.Note{})
		case run.Status == perdure.Failed && run.Retries < 4:
			err = k.Retry(ctx, thread, run.ID, perdure.Note{})
		case run.Status.Final(), run.Status == perdure.Blocked, len(run.Asks) > 0 && !answers:
			return run
		case len(run.Asks) > 0 && run.Asks[0].Kind == perdure.KindOutcome:
			err = k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Decision: perdure.DecisionNotDone})
		case len(run.Asks) > 0:
			err = k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Value: true, By: "ann"})
		case len(run.Waits) > 0 && run.Waits[0].Kind == "signal":
			err = k.Signal(ctx, thread, "go", "now", perdure.SignalOptions{})
		}
		if err != nil {
			k.T.Fatalf("%s: %v\n%s", thread, err, k.Trace(thread))
		}
	}
	k.T.Fatalf("%s does not end\n%s", thread, k.Trace(thread))
	return nil
}

// However a person's answer allows a payment, and wherever the thread is forked,
// also the fork of a fork: nothing is paid in a fork before someone has answered
// there, nothing that was paid is paid again, and it ends as the other did.
func TestForkAsksAnew(t *testing.T) {
	p := &till{paid: map[string]int{}}
	for _, flow := range tillFlows(p) {
		if flow.Name() == "child" {
			continue
		}
		for _, end := range []string{"ends", "is cancelled"} {
			kit.Bubble(t, flow.Name()+" "+end, func(t *testing.T) {
				p.fails = map[string]int{}
				if slices.Contains([]string{"tried again", "retried", "unknown outcome"}, flow.Name()) {
					p.fails["t"] = 1
				}
				k := kit.New(t, nil, perdure.Options{}, tillFlows(p)...)
				k.StartOn("t", flow.Name(), "")
				if end == "is cancelled" && flow.Name() != "by default" {
					ask, answer := k.WaitFor("t", perdure.Suspended).Asks[0], perdure.Answer{Value: true, By: "ann"}
					if ask.Kind == perdure.KindOutcome {
						answer = perdure.Answer{Decision: perdure.DecisionNotDone}
					}
					kit.WantErr(t, "answer", k.AnswerAsk(ask.ID, answer), nil)
					if err := k.Cancel(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) { // else it was faster
						kit.WantErr(t, "cancel", err, nil)
					}
				}
				run := goOn(k, "t", true)
				p.took()
				last := k.SeqOf("t")
				whole := string(run.Output)
				for at := uint64(1); at <= last; at++ {
					as := fmt.Sprint("fork-", at)
					k.MustFork(perdure.ForkRequest{Thread: "t", At: at, As: as})
					if len(k.MustStateAt(as, 0).Thread.Runs) == 0 {
						continue
					}
					kinds := map[string]int{}
					for _, e := range k.EventsOf("t")[:at] {
						kinds[e.Kind]++
					}
					free := flow.Name() == "by default" || flow.Name() == "unknown outcome" && kinds["intent"] == kinds["attempt"]
					paid := slices.ContainsFunc(k.EventsOf("t")[:at], func(e perdure.Event) bool { return e.Kind == "step" && string(e.Value) == `"paid"` })
					if run := goOn(k, as, false); p.took() > 0 && !paid && !free {
						t.Fatalf("the fork at %d paid without an answer, and is %s\n%s", at, run.Status, k.Trace(as))
					}
					k.MustFork(perdure.ForkRequest{Thread: as, As: as + "-again"})
					if goOn(k, as+"-again", false); p.took() > 0 && !free {
						t.Fatalf("the fork of the fork at %d paid without an answer\n%s", at, k.Trace(as+"-again"))
					}
					for _, as := range []string{as, as + "-again"} {
						run := goOn(k, as, true)
						if run.Status != perdure.Succeeded && end == "ends" {
							t.Fatalf("the fork at %d is %s: %s%s\n%s", at, run.Status, run.Error, run.Diff, k.Trace(as))
						}
						if end == "ends" && flow.Name() != "branches" && string(run.Output) != whole {
							t.Errorf("the fork at %d returned %s, the other %s\n%s", at, run.Output, whole, k.Trace(as))
						}
						var notes []string
						if raw := k.MustStateAt(as, 0).State["notes"]; raw != nil {
							kit.WantErr(t, "the notes", json.Unmarshal(raw, &notes), nil)
						}
						if run.Status == perdure.Succeeded && fmt.Sprintf("%q", fmt.Sprint(notes)) != string(run.Output) {
							t.Errorf("the state of the fork at %d is %s, its run saw %s\n%s", at, notes, run.Output, k.Trace(as))
						}
						events := k.EventsOf("t")[:at]
						if last := events[at-1].Kind; last == "intent" && !slices.ContainsFunc(k.EventsOf(as)[at:], func(e perdure.Event) bool { return e.AskKind == perdure.KindOutcome }) {
							t.Errorf("the fork at %d did not find out what became of the start\n%s", at, k.Trace(as))
						}
						k.MustVerify(as)
					}
					p.took()
				}
			})
		}
	}
}

// The time of an open ask starts over in a fork: that nobody rejected a payment
// in the past does not allow it there.
func TestForkGivesAsksTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &till{paid: map[string]int{}}
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			ok, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Expires: time.Hour, Default: &perdure.Answer{Value: true}})
			if err == nil && ok {
				err = p.pay(ctx, "pay")
			}
			return "", err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		at := k.SeqOf("t")
		k.AnswerAt(run, "/ok", perdure.Answer{Value: false})
		k.WaitFor("t", perdure.Succeeded)
		time.Sleep(24 * time.Hour)
		k.MustFork(perdure.ForkRequest{Thread: "t", At: at, As: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		kit.WantErr(t, "resume", k.Resume(ctx, "a", "", perdure.Note{}), nil)
		k.AnswerAt(k.WaitFor("a", perdure.Suspended), "/ok", perdure.Answer{Value: false})
		k.WaitFor("a", perdure.Succeeded)
		if n := p.took(); n != 0 {
			t.Errorf("paid %d times\n%s", n, k.Trace("a"))
		}
	})
}

// A thread that is taken back does not use an answer twice.
func TestRewindAsksAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &till{paid: map[string]int{}, fails: map[string]int{"t": 1}}
		k := kit.New(t, nil, perdure.Options{}, tillFlows(p)...)
		k.StartOn("t", "retried", "")
		k.AnswerAt(k.WaitFor("t", perdure.Suspended), "/ok", perdure.Answer{Value: true, By: "ann"})
		k.WaitFor("t", perdure.Failed)
		failed := k.SeqOf("t")
		kit.WantErr(t, "retry", k.Retry(t.Context(), "t", "", perdure.Note{}), nil)
		k.WaitFor("t", perdure.Succeeded)
		if n := p.took(); n != 1 {
			t.Fatalf("paid %d times", n)
		}
		for range 2 {
			k.MustRewind("t", failed)
			kit.WantErr(t, "retry", k.Retry(t.Context(), "t", "", perdure.Note{}), nil)
			run := k.WaitFor("t", perdure.Suspended)
			if p.took() != 0 {
				t.Fatalf("paid again without an answer\n%s", k.Trace("t"))
			}
			k.AnswerAt(run, "/ok", perdure.Answer{Value: true, By: "bob"})
			k.WaitFor("t", perdure.Succeeded)
			if n := p.took(); n != 1 {
				t.Fatalf("paid %d times", n)
			}
		}
	})
}

// Keep keeps answers for those who may give them, and records that.
func TestForkKeepsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pays atomic.Int64
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			err := sure(ctx, "ok", perdure.Question{Who: []string{"ann", "group:board"}, Allows: []string{"pay"}})
			_, rule := perdure.Step(ctx, "hold", func(context.Context) (int, error) { return 1, nil })
			err = errors.Join(err, rule, perdure.Sleep(ctx, "hour", time.Hour))
			return perdure.Step(ctx, "pay", func(context.Context) (string, error) { pays.Add(1); return "paid", err })
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		ask := k.WaitFor("t", perdure.Suspended).Asks[0].ID
		kit.WantErr(t, "answer", k.Answer(t.Context(), perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: true, By: "ann"}}), nil)
		at := k.SeqOf("t")
		for _, by := range []string{"", "eve"} {
			_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: at, As: "no", Keep: true, By: by, Groups: []string{"staff"}})
			kit.WantErr(t, "fork by "+by, err, perdure.ErrForbidden)
		}
		_, err := k.Get(t.Context(), "no")
		kit.WantErr(t, "the refused fork", err, perdure.ErrNoThread)
		for as, q := range map[string]perdure.ForkRequest{"a": {By: "ann"}, "b": {By: "bob", Groups: []string{"board"}}} {
			q.Thread, q.At, q.As, q.Keep = "t", at, as, true
			k.MustFork(q)
			k.MustFork(q) // again
			goOn(k, as, false)
			kit.WantOutput(t, k.WaitFor(as, perdure.Succeeded), "paid")
			events := k.EventsOf(as)
			if e := events[at]; e.Kind != "forked" || e.By != q.By || len(e.Keep) != 1 || e.Keep[0] != events[slices.IndexFunc(events, func(e perdure.Event) bool { return e.Kind == "asked" })].Ask {
				t.Errorf("the fork says %+v", e)
			}
			_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: at, As: as})
			kit.WantErr(t, "another fork", err, perdure.ErrExists)
		}
		k.WaitFor("t", perdure.Succeeded)
		if pays.Load() != 3 {
			t.Errorf("paid %d times", pays.Load())
		}
		// What a fork has kept is not kept by a fork of it.
		k.MustFork(perdure.ForkRequest{Thread: "a", At: at + 1, As: "c"})
		goOn(k, "c", false)
		if pays.Load() != 3 {
			t.Errorf("a fork of a fork paid without an answer\n%s", k.Trace("c"))
		}
		kit.NoDiff(t, cmp.Diff(goOn(k, "c", true).Status, perdure.Succeeded))
	})
}
