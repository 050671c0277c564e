package explain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// whyFlows returns a flow that does what its input says. Changed is a later version
// of its code.
func whyFlows(changed bool) []perdure.Flow {
	return []perdure.Flow{perdure.NewFlow("f", func(ctx context.Context, what string) (string, error) {
		if err := perdure.Plan(ctx, "first", "second"); err != nil {
			return "", err
		}
		first := "first"
		if changed && what == "blocked" {
			first = "renamed"
		}
		if err := kit.NamedStep(ctx, first, 0); err != nil {
			return "", err
		}
		switch what {
		case "working":
			return perdure.Step(ctx, "second", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		case "once":
			return perdure.Step(ctx, "second", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}, perdure.AtMostOnce(), perdure.Timeout(time.Hour))
		case "person", "blocked":
			return perdure.Ask[string](ctx, "question", perdure.Question{Prompt: "May I?\nPlease.", Who: []string{"ann", "group:g"}, Expires: time.Hour})
		case "signal":
			return perdure.Receive[string](ctx, "word", "paid", time.Hour)
		case "sleep":
			return "", perdure.Sleep(ctx, "nap", time.Hour)
		case "retry":
			return perdure.Step(ctx, "second", func(context.Context) (string, error) { return "", errors.New("no luck") },
				perdure.Retry(perdure.RetryPolicy{Attempts: 5, Wait: time.Hour, MaxWait: time.Hour}))
		case "child":
			c, err := perdure.Spawn(ctx, "spawn", "f", "person")
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", c)
		case "failed":
			return perdure.Step(ctx, "second", func(context.Context) (string, error) { return "", errors.New("no luck") })
		}
		return "", nil
	})}
}

// whyOf returns why a thread does not move, in a list and alone, which agree.
func whyOf(t *testing.T, rt *perdure.Runtime, thread string) perdure.Why {
	t.Helper()
	got, err := rt.Get(t.Context(), thread)
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range rt.List(t.Context(), perdure.ListOptions{Why: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.ID == thread && (s.Why == nil || s.Why.State != got.Why.State || s.Why.Text != got.Why.Text || s.Why.Until != got.Why.Until) {
			t.Errorf("%s is %+v in a list, and %+v alone", thread, s.Why, got.Why)
		}
	}
	return *got.Why
}

func TestWhyAThreadDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, memstore.New(), perdure.Options{}, whyFlows(false)...)
		looker := kit.Runtime(t, k.Store, perdure.Options{}, whyFlows(false)...) // without a worker
		for _, c := range []struct {
			state perdure.WhyState
			step  string
			until time.Duration
			text  string
		}{
			{perdure.WhyWorking, "/second", 0, "a worker executes it"},
			{perdure.WhyPerson, "/question", time.Hour, "it waits for an answer of ann or group:g: May I?"},
			{perdure.WhySignal, "/word", time.Hour, "it waits for the signal paid"},
			{perdure.WhySleep, "/nap", time.Hour, "it sleeps"},
			{perdure.WhyRetry, "/second", time.Hour, "attempt 1 of 5 failed: no luck"},
			{perdure.WhyChild, "/join", 0, "it waits for the thread "},
			{perdure.WhyFailed, "/second", 0, "it failed: "},
			{perdure.WhyDone, "", 0, "it has succeeded"},
		} {
			thread, begun := string(c.state), time.Now()
			run := k.StartOn(thread, "f", thread)
			time.Sleep(10 * time.Second) // a worker keeps a run for a moment
			got := whyOf(t, looker, thread)
			if got.State != c.state || got.Run != run.ID || got.Step != c.step || !strings.HasPrefix(got.Text, c.text) || got.Since.Before(begun) {
				t.Errorf("%s: it is %+v", thread, got)
			}
			// A retry may be a fifth earlier.
			if wait := got.Until.Sub(begun); got.Until.IsZero() != (c.until == 0) || c.until != 0 && (wait > c.until || wait < c.until*4/5) {
				t.Errorf("%s: it lasts until %v", thread, got.Until)
			}
			if c.state == perdure.WhyRetry && (got.Attempt != 2 || got.Attempts != 5) {
				t.Errorf("the retry is %+v", got)
			}
			if (got.Worker != "") != (c.state == perdure.WhyWorking) {
				t.Errorf("%s: its worker is %q", thread, got.Worker)
			}
		}
		want := func(thread string, state perdure.WhyState, text string) {
			t.Helper()
			if got := whyOf(t, looker, thread); got.State != state || !strings.Contains(got.Text, text) {
				t.Errorf("%s: it is %+v, want %s, %q", thread, got, state, text)
			}
		}
		kit.NoErr(t, k.Pause(t.Context(), "sleep", "", perdure.Note{}))
		want("sleep", perdure.WhyPaused, "it is paused")
		kit.NoErr(t, k.Cancel(t.Context(), "signal", "", perdure.Note{}))
		synctest.Wait()
		want("signal", perdure.WhyDone, "it has been cancelled")
		if _, err := k.Create(t.Context(), perdure.CreateRequest{Thread: "idle"}); err != nil {
			t.Fatal(err)
		}
		want("idle", perdure.WhyIdle, "it has no run")

		k.StartOn("blocked", "f", "blocked")
		run := k.WaitFor("blocked", perdure.Suspended)
		k.Stop()
		kit.NoErr(t, k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Value: "y", By: "ann"}))
		want("blocked", perdure.WhyNoWorker, `no living worker has the flow "f"`)
		other := kit.New(t, k.Store, perdure.Options{Version: "other"}, kit.EchoFlow("other"))
		want("blocked", perdure.WhyNoWorker, `no living worker has the flow "f"`)
		other.Stop()
		changed := kit.New(t, k.Store, perdure.Options{Version: "changed"}, whyFlows(true)...)
		synctest.Wait()
		want("blocked", perdure.WhyBlocked, `the code does not fit what is recorded: in /: - step "first" - ask "question" + step "renamed"`)
		changed.Stop()
	})
}

// TestWhyItIsQueued: a worker has the flow, and is busy.
func TestWhyItIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, memstore.New(), perdure.Options{Concurrency: 1}, whyFlows(false)...)
		k.StartOn("busy", "f", "working")
		synctest.Wait()
		k.StartOn("next", "f", "done")
		synctest.Wait()
		if got := whyOf(t, k.Runtime, "next"); got.State != perdure.WhyQueued || got.Text != "it waits for a worker" {
			t.Errorf("it is %+v", got)
		}
	})
}

// TestWhyItIsQuarantined is also about a thread that has moved, by the entries that
// both leave.
func TestWhyItIsQuarantined(t *testing.T) {
	for kind, state := range map[journal.Kind]perdure.WhyState{journal.Quarantined: perdure.WhyQuarantined, journal.Moved: perdure.WhyMoved} {
		kit.Bubble(t, string(kind), func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, whyFlows(false)...)
			k.StartOn("t", "f", "person")
			run := k.WaitFor("t", perdure.Suspended)
			k.Stop()
			name := kit.Journals(t, k.Store)[0]
			seq, prev := kit.JournalEnd(t, k.Store, name)
			body, err := (&journal.Body{Worker: "dead", Version: "test"}).Encode()
			kit.NoErr(t, err)
			claim := journal.Entry{Kind: journal.Claimed, ID: journal.NewID(), Time: time.Now().UnixMicro(), Run: run.Seq, Epoch: 2, Body: body}
			first := claim.Encode(prev)
			last, about := journal.Entry{Kind: kind, ID: journal.NewID(), Time: time.Now().UnixMicro(), Run: run.Seq, Epoch: 2}, &journal.Body{Fail: &journal.Failure{Msg: "it killed five workers"}}
			if kind == journal.Moved {
				last.Run, last.Epoch, about = 0, 0, &journal.Body{Name: "there"}
			}
			last.Body, err = about.Encode()
			kit.NoErr(t, err)
			if _, err := k.Store.Append(t.Context(), name, seq, first, last.Encode(claim.Hash)); err != nil {
				t.Fatal(err)
			}
			got, err := kit.Runtime(t, k.Store, perdure.Options{}, whyFlows(false)...).Get(t.Context(), "t")
			if err != nil || got.Why.State != state || state == perdure.WhyQuarantined && got.Why.Text != "it killed five workers" {
				t.Errorf("it is %+v: %v", got.Why, err)
			}
		})
	}
}

// TestWhyALostStartIsWaitedFor: the next worker does not ask about an at-most-once step
// before its timeout is over.
func TestWhyALostStartIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		m := kit.NewMortal(t, s, perdure.Options{}, whyFlows(false)...)
		looker := kit.Runtime(t, s, perdure.Options{}, whyFlows(false)...)
		kit.Start(t, looker, perdure.StartRequest{Thread: "t", Flow: "f", Input: "once"})
		synctest.Wait()
		if got := whyOf(t, looker, "t"); got.State != perdure.WhyWorking {
			t.Errorf("at first it is %+v", got)
		}
		m.Die()
		k := kit.New(t, s, perdure.Options{}, whyFlows(false)...)
		time.Sleep(time.Minute)
		got := whyOf(t, looker, "t")
		if got.State != perdure.WhySleep || got.Step != "/second" || got.Text != "it waits until a lost start of /second cannot be running any more" || got.Until != got.Since.Add(time.Hour) {
			t.Errorf("with another worker it is %+v", got)
		}
		k.WaitFor("t", perdure.Suspended)
		if now := time.Now(); now.Before(got.Until) || now.After(got.Until.Add(time.Minute)) {
			t.Errorf("it asks at %v, and said %v", now, got.Until)
		}
		if got := whyOf(t, looker, "t"); got.State != perdure.WhyPerson {
			t.Errorf("in the end it is %+v", got)
		}
	})
}

// TestWhyAWorkerDied follows a run whose worker disappears: at first nobody knows,
// then its lease is about to end, and then another worker is missing or takes over.
func TestWhyAWorkerDied(t *testing.T) {
	for _, other := range []bool{false, true} {
		kit.Bubble(t, fmt.Sprint("another worker: ", other), func(t *testing.T) {
			s := memstore.New()
			o := perdure.Options{Lease: 4 * time.Second}
			m := kit.NewMortal(t, s, o, whyFlows(false)...)
			looker := kit.Runtime(t, s, o, whyFlows(false)...)
			kit.Start(t, looker, perdure.StartRequest{Thread: "t", Flow: "f", Input: "working"})
			synctest.Wait()
			first := whyOf(t, looker, "t")
			if first.State != perdure.WhyWorking || first.Worker == "" {
				t.Fatalf("it is %+v", first)
			}
			if other {
				kit.New(t, s, o, whyFlows(false)...)
			}
			m.Die()
			died := time.Now()
			var seen []perdure.WhyState
			for range 40 {
				got := whyOf(t, looker, "t")
				if len(seen) == 0 || seen[len(seen)-1] != got.State {
					seen = append(seen, got.State)
				}
				if got.State == perdure.WhyLease && (got.Worker != first.Worker || !got.Until.IsZero() && (got.Until.Before(time.Now()) || got.Until.After(died.Add(7*time.Second)))) {
					t.Errorf("%v after the death it is %+v", time.Since(died), got)
				}
				time.Sleep(300 * time.Millisecond)
			}
			want := []perdure.WhyState{perdure.WhyWorking, perdure.WhyLease, perdure.WhyNoWorker}
			if other {
				want[2] = perdure.WhyWorking
			}
			if fmt.Sprint(seen) != fmt.Sprint(want) {
				t.Errorf("it was %v, want %v", seen, want)
			}
		})
	}
}

// TestWhyDoesNotHideTheThread: a thread can be read while its worker's lease cannot,
// but a list that is to explain it fails.
func TestWhyDoesNotHideTheThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, memstore.New(), perdure.Options{}, whyFlows(false)...)
		k.StartOn("t", "f", "working")
		synctest.Wait()
		broken := faulty.New(k.Store, func(c faulty.Call) faulty.Fault {
			if strings.HasPrefix(c.Name, "worker/") {
				return faulty.FailBefore
			}
			return faulty.None
		})
		looker := kit.Runtime(t, broken, perdure.Options{}, whyFlows(false)...)
		got, err := looker.Get(t.Context(), "t")
		if err != nil || got.Why != nil || len(got.Runs) != 1 || got.Runs[0].Status != perdure.Running {
			t.Errorf("the thread is %+v: %v", got, err)
		}
		for _, err := range looker.List(t.Context(), perdure.ListOptions{Why: true}) {
			if !errors.Is(err, faulty.ErrInjected) {
				t.Errorf("a list that was to explain it returned %v", err)
			}
		}
	})
}
