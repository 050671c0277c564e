package archive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// auditTally is a resumable dep.
type auditTally struct{ n atomic.Int64 }

func (c *auditTally) Dump(context.Context) (json.RawMessage, error) {
	return json.RawMessage(fmt.Sprintf(`{"n": %d}`, c.n.Load())), nil
}

func (c *auditTally) Load(_ context.Context, raw json.RawMessage) error {
	var s struct{ N int64 }
	err := json.Unmarshal(raw, &s)
	c.n.Store(s.N)
	return err
}

// ran counts the calls of step functions, to show that a replay makes none.
type ran struct {
	n     atomic.Int64
	tries sync.Map // by key of a step
	small bool     // no value of the flow is large
}

// long returns a text that is large unless r is small.
func (r *ran) long(text string) string {
	if r.small {
		return text
	}
	return strings.Repeat(text, 70_000/len(text)+1)
}

// attempt returns how often a step was tried.
func (r *ran) attempt(ctx context.Context) int64 {
	n, _ := r.tries.LoadOrStore(perdure.Key(ctx), new(atomic.Int64))
	return n.(*atomic.Int64).Add(1)
}

func (r *ran) step(ctx context.Context, name, result string, opts ...perdure.StepOption) (string, error) {
	return perdure.Step(ctx, name, func(context.Context) (string, error) {
		r.n.Add(1)
		return result, nil
	}, opts...)
}

var (
	auditMood  = perdure.NewState[string]("mood")
	auditCount = perdure.NewCounter("count")
	auditNotes = perdure.NewList[string]("notes")
)

// auditFlow uses every verb. It waits for an ask at /ok.
func auditFlow(r *ran) perdure.Flow {
	dep := perdure.NewDep("tally", func(context.Context) (*auditTally, error) { return new(auditTally), nil })
	return perdure.NewFlow("audit", func(ctx context.Context, in string) (out string, err error) {
		if err := perdure.Plan(ctx, "first", "group", "ok"); err != nil {
			return "", err
		}
		if _, err := r.step(ctx, "first", "one", perdure.Input(in)); err != nil {
			return "", err
		}
		if _, err := r.step(ctx, "large", r.long("large ")); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "state", func(ctx context.Context) (bool, error) {
			r.n.Add(1)
			d, err := dep.Get(ctx)
			if err != nil {
				return false, err
			}
			d.n.Add(1)
			return true, errors.Join(auditMood.Set(ctx, "so glad"), auditCount.Add(ctx, 2), auditNotes.Append(ctx, "a", r.long("b")),
				perdure.Spend(ctx, "tokens", 7))
		}); err != nil {
			return "", err
		}
		if _, err := r.step(ctx, "pay", "paid", perdure.AtMostOnce(), perdure.Timeout(time.Minute)); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "flaky", func(ctx context.Context) (int64, error) {
			r.n.Add(1)
			n := r.attempt(ctx)
			if n < 3 {
				return 0, errors.New("not yet")
			}
			return n, nil
		}, perdure.Retry(perdure.RetryPolicy{Wait: 5 * time.Second})); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "nested", func(ctx context.Context) (string, error) {
			return perdure.Scope(ctx, "scope", func(ctx context.Context) (string, error) { return r.step(ctx, "inner", strings.Repeat("inner ", 20)) })
		}); err != nil {
			return "", err
		}
		_, handled := perdure.Step(ctx, "fails", func(context.Context) (bool, error) {
			r.n.Add(1)
			return false, perdure.Coded("odd", errors.New("odd"))
		})
		if handled == nil {
			return "", errors.New("a failure was forgotten")
		}
		_ = perdure.Cleanup(ctx, "tidy", func(context.Context) error { r.n.Add(1); return nil })
		if err := perdure.Sleep(ctx, "nap", time.Hour); err != nil {
			return "", err
		}
		g := perdure.NewGroup(ctx)
		for i, name := range []string{"left", "right"} {
			g.Go(name, func(ctx context.Context) error {
				if _, err := r.step(ctx, "work", name); err != nil {
					return err
				}
				return perdure.Sleep(ctx, "wait", time.Duration(i+1)*time.Minute)
			})
		}
		if err := g.Wait(); err != nil {
			return "", err
		}
		if _, err := perdure.Receive[string](ctx, "signal", "go", time.Hour); err != nil {
			return "", err
		}
		if _, err := perdure.Receive[string](ctx, "none", "never", time.Minute); !errors.Is(err, perdure.ErrTimeout) {
			return "", err
		}
		taken, _, err := perdure.Take[string](ctx, "take")
		if err != nil {
			return "", err
		}
		if err := perdure.Emit(ctx, "news", map[string]string{"taken": taken}); err != nil {
			return "", err
		}
		mood, err := auditMood.Get(ctx)
		if err != nil {
			return "", err
		}
		ok, err := perdure.Ask[string](ctx, "ok", perdure.Question{Prompt: "Go on?", Data: r.long("d")})
		if err != nil {
			return "", err
		}
		return r.step(ctx, "last", mood+" "+ok+" "+perdure.Now(ctx).Format(time.RFC3339))
	})
}

// playAudit runs the flow on a thread up to its ask.
func playAudit(k *kit.Kit, thread string) *perdure.Run {
	k.T.Helper()
	k.StartOn(thread, "audit", "hello")
	time.Sleep(30 * time.Minute)
	kit.NoErr(k.T, k.Signal(k.T.Context(), thread, "go", "now", perdure.SignalOptions{Key: time.Now().String()}))
	kit.NoErr(k.T, k.SetMetadata(k.T.Context(), thread, nil, map[string]string{"colour": "rather blue"}, perdure.Note{}))
	k.MustStart(perdure.StartRequest{Thread: thread, Flow: "audit", Input: "faster", Policy: perdure.Steer})
	time.Sleep(time.Hour)
	info, err := k.Get(k.T.Context(), thread)
	if err != nil || len(info.Runs) != 1 {
		k.T.Fatalf("%+v, %v", info, err)
	}
	run := k.WaitForRun(thread, info.Runs[0].ID, perdure.Suspended)
	if err := errors.Join(k.Progress(k.T.Context(), run.Asks[0].ID, "still thinking", perdure.Note{}),
		k.Pause(k.T.Context(), thread, run.ID, perdure.Note{By: "ann"}), k.Resume(k.T.Context(), thread, run.ID, perdure.Note{By: "ann"})); err != nil {
		k.T.Fatal(err)
	}
	time.Sleep(time.Second)
	return k.WaitForRun(thread, run.ID, perdure.Suspended)
}

// cutReader returns a reader that fails after some bytes.
func cutReader(file []byte, at int, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(file[:at]), errReader{err})
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
