package perduretest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

func TestVirtualTimePasses(t *testing.T) {
	flow := perdure.NewFlow("wait", func(ctx context.Context, _ string) (string, error) {
		if err := perdure.Sleep(ctx, "day", 24*time.Hour); err != nil {
			return "", err
		}
		word, err := perdure.Receive[string](ctx, "word", "word", 0)
		if err != nil {
			return "", err
		}
		_, err = perdure.Ask[bool](ctx, "late", perdure.Question{Expires: time.Hour})
		if !errors.Is(err, perdure.ErrExpired) {
			return "", err
		}
		return word, nil
	})
	Virtual(t, Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *Env) {
		begun := time.Now()
		e.Start("t", "wait", "")
		e.Advance(20 * time.Hour)
		if run, err := e.Runtime().GetRun(t.Context(), "t", ""); err != nil || run.Waits[0].Path != "/day" {
			t.Errorf("after twenty hours: %+v, %v", run, err)
		}
		e.Wait("t", perdure.Suspended)
		e.Signal("t", "word", "hello")
		run := e.Wait("t", perdure.Succeeded)
		if out, err := perdure.Output[string](run); out != "hello" || err != nil {
			t.Errorf("output %q, %v", out, err)
		}
		if took := time.Since(begun); took < 25*time.Hour || took > 26*time.Hour {
			t.Errorf("it took %v", took)
		}
	})
}

// TestVirtualRestart kills a worker inside a step, which is then done again,
// and not what is recorded.
func TestVirtualRestart(t *testing.T) {
	var e *Env
	flow := perdure.NewFlow("steps", func(ctx context.Context, _ string) (int, error) {
		if _, err := perdure.Step(ctx, "one", func(ctx context.Context) (int, error) {
			e.Effects.Count(ctx, "one")
			return 1, nil
		}); err != nil {
			return 0, err
		}
		return perdure.Step(ctx, "two", func(ctx context.Context) (int, error) {
			e.Effects.Count(ctx, "two")
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Minute):
				return 2, nil
			}
		})
	})
	Virtual(t, Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, env *Env) {
		e = env
		e.Start("t", "steps", "")
		e.Advance(10 * time.Second)
		e.Restart()
		run := e.Wait("t", perdure.Succeeded)
		if one, two := e.Effects.Of("one"), e.Effects.Of("two"); one != 1 || two != 2 || run.Resumes != 1 {
			t.Errorf("the steps ran %d and %d times with %d resumes\n%s", one, two, run.Resumes, e.Trace("t"))
		}
	})
}

// TestVirtualStop hands a run over in order: the next worker goes on at once.
func TestVirtualStop(t *testing.T) {
	flow := perdure.NewFlow("steps", func(ctx context.Context, _ string) (int, error) {
		for _, name := range []string{"one", "two"} {
			if _, err := perdure.Step(ctx, name, func(context.Context) (int, error) {
				time.Sleep(time.Second)
				return 1, nil
			}); err != nil {
				return 0, err
			}
		}
		return 2, nil
	})
	Virtual(t, Setup{Flows: []perdure.Flow{flow}, Options: perdure.Options{Grace: time.Minute}}, func(t *testing.T, e *Env) {
		e.Start("t", "steps", "")
		synctest.Wait()
		e.Stop()
		before := time.Now()
		e.Restart()
		e.Wait("t", perdure.Succeeded)
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("the next worker needed %v\n%s", took, e.Trace("t"))
		}
	})
}
