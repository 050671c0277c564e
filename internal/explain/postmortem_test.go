package explain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// TestPostMortemOfAFailedRun tells all that went wrong in a run, and what to do.
func TestPostMortemOfAFailedRun(t *testing.T) {
	tries, mended := 0, false
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "fetch", func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			if tries++; tries < 3 {
				return 0, fmt.Errorf("no answer, %d", tries)
			}
			return 1, perdure.Spend(ctx, "tokens", 7)
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 3, Wait: time.Minute})); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "pay", func(context.Context) (int, error) { return 0, errors.New("cut off") },
			perdure.AtMostOnce(), perdure.Timeout(time.Minute)); err == nil {
			return "", errors.New("it was paid")
		}
		return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
			return perdure.Step(ctx, "inner", func(context.Context) (string, error) {
				if !mended {
					panic("what now")
				}
				return "done", nil
			})
		})
	})
	kit.Bubble(t, "failed", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{Version: "v7"}, flow)
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Budget: map[string]int64{"tokens": 100}})
		waits := k.WaitFor("t", perdure.Suspended)
		m, err := k.PostMortem(t.Context(), "t", "")
		if err != nil || len(m.Next) != 2 || m.Next[0].Do != "answer" || m.Next[0].Ask != waits.Asks[0].ID || m.Next[1].Do != "cancel" || len(m.Effects) != 1 || m.Effects[0].Kind != "unknown" {
			t.Fatalf("while it waits: %+v, %v", m, err)
		}
		k.AnswerAt(waits, "/pay", perdure.Answer{Decision: "fail"})
		run := k.WaitFor("t", perdure.Failed)
		m, err = k.PostMortem(t.Context(), "t", "")
		kit.NoErr(t, err)
		var failures, effects, next []string
		for _, f := range m.Failures {
			failures = append(failures, f.Kind+" "+f.Path)
		}
		for _, e := range m.Effects {
			effects = append(effects, e.Kind+" "+e.Path)
		}
		for _, n := range m.Next {
			next = append(next, n.Do)
		}
		kit.NoDiff(t, cmp.Diff([]string{"attempt /fetch", "attempt /fetch", "problem /pay", "step /pay", "step /outer/inner", "step /outer", "ended "}, failures))
		kit.NoDiff(t, cmp.Diff([]string{"unknown /pay", "failed /outer/inner"}, effects))
		kit.NoDiff(t, cmp.Diff([]string{"retry", "fork", "again"}, next))
		if m.Run != run.ID || m.Status != perdure.Failed || m.Error != run.Error || !strings.Contains(m.Stack, "postmortem_test.go") || m.Failures[1].Error != "no answer, 2" || m.Failures[1].Attempt != 2 {
			t.Errorf("%+v", m)
		}
		u := m.Usage
		if u.Spent["tokens"] != 7 || u.Budget["tokens"] != 100 || u.Failed != 5 || u.StepsUS != 3e6 || u.WorkedUS != 3e6 || u.WaitedUS < 60e6 || u.TotalUS != u.QueuedUS+u.WorkedUS+u.WaitedUS {
			t.Errorf("it used %+v", u)
		}
		if n := len(m.Passes); n != 4 || m.Passes[0].End != "suspended" || m.Passes[3].End != "ended" || m.Passes[3].Version != "v7" || m.Passes[3].Worker == "" || m.Lost != 0 {
			t.Errorf("its passes are %+v", m.Passes)
		}

		// What it suggests works.
		mended = true
		f, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: m.Next[1].At, As: "copy"})
		kit.NoErr(t, err)
		kit.NoErr(t, k.Resume(t.Context(), f.Thread, "", perdure.Note{}))
		k.AnswerAt(k.WaitFor("copy", perdure.Suspended), "/pay", perdure.Answer{Decision: "fail"}) // an unused answer is void in a fork
		k.WaitFor("copy", perdure.Succeeded)
		kit.NoErr(t, k.Retry(t.Context(), "t", m.Run, perdure.Note{By: "ann"}))
		k.EndsAs("t", perdure.Succeeded)
		m, err = k.PostMortem(t.Context(), "t", "")
		if err != nil || m.Error != "" || m.Usage.Retries != 1 || len(m.Next) != 0 {
			t.Errorf("after a retry: %+v, %v", m, err)
		}
	})
	kit.Bubble(t, "lost", func(t *testing.T) {
		s := memstore.New()
		slow := perdure.NewFlow("slow", func(ctx context.Context, _ string) (string, error) {
			if _, err := perdure.Step(ctx, "first", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			return perdure.Step(ctx, "second", func(ctx context.Context) (string, error) {
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
				return "", errors.New("late")
			})
		})
		first := kit.NewMortal(t, s, perdure.Options{Lease: time.Second}, slow)
		first.StartOn("t", "slow", "")
		first.Until("it is in its second step", func() bool { return first.KindsOf("t")["step"] == 1 })
		first.Die()
		k := kit.New(t, s, perdure.Options{Lease: time.Second}, slow)
		k.WaitFor("t", perdure.Failed)
		m, err := k.PostMortem(t.Context(), "t", "")
		if err != nil || m.Lost != 1 || len(m.Passes) != 2 || m.Passes[0].End != "lost" || m.Passes[0].Worker == m.Passes[1].Worker || m.Usage.LostUS <= 0 {
			t.Fatalf("%+v, %v", m, err)
		}
		kit.NoDiff(t, cmp.Diff([]perdure.PossibleEffect{{Kind: "lost", Seq: m.Effects[0].Seq, Path: "/first"}, {Kind: "failed", Seq: m.Effects[1].Seq, Path: "/second"}}, m.Effects))
	})
}

// TestPostMortemIsBounded has a run that fails again and again.
func TestPostMortemIsBounded(t *testing.T) {
	attempts := kit.Sized(80, 230, 230)
	kit.Bubble(t, "many", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			return perdure.Step(ctx, "s", func(context.Context) (int, error) { return 0, errors.New(strings.Repeat("x", 10_000)) },
				perdure.Retry(perdure.RetryPolicy{Attempts: attempts, Wait: time.Minute}))
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Failed)
		m, err := k.PostMortem(t.Context(), "t", "")
		kit.NoErr(t, err)
		if len(m.Failures) != 50 || len(m.Passes) != 20 || len(m.Events) != 20 || m.Left != (perdure.LeftOut{Failures: attempts + 1 - 50, Passes: attempts - 20, Events: m.Left.Events}) || m.Left.Events < 2*attempts {
			t.Errorf("%d failures, %d passes, %d events, and left out %+v", len(m.Failures), len(m.Passes), len(m.Events), m.Left)
		}
		if m.Usage.Failed != attempts || m.Usage.Resumes != attempts-1 || len(m.Failures[0].Error) > 5000 {
			t.Errorf("%+v", m.Usage)
		}
	})
}
