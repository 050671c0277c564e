package perduretest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/internal/sweeps"
	_ "github.com/perdure/perdure/store/natsstore"
	_ "github.com/perdure/perdure/store/pgstore"
	_ "github.com/perdure/perdure/store/redisstore"
	_ "github.com/perdure/perdure/store/s3store"
)

// progressLog is a resumable dep that is as it should be.
type progressLog struct {
	mu    sync.Mutex
	steps []string
}

func (l *progressLog) record(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, step)
}

func (l *progressLog) Dump(context.Context) (json.RawMessage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return json.Marshal(map[string][]string{"steps": l.steps})
}

func (l *progressLog) Load(_ context.Context, state json.RawMessage) error {
	var s struct{ Steps []string }
	if err := json.Unmarshal(state, &s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = s.Steps
	return nil
}

// everyVerb is a flow that uses every verb.
func everyVerb(fx *Effects) perdure.Flow {
	progress := perdure.NewDep("progress", func(context.Context) (*progressLog, error) { return new(progressLog), nil })
	spent := perdure.NewCounter("spent")
	step := func(ctx context.Context, name string, opts ...perdure.StepOption) error {
		_, err := perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
			fx.Count(ctx, name)
			log, err := progress.Get(ctx)
			if err != nil {
				return "", err
			}
			log.record(name)
			perdure.Delta(ctx, name)
			if err := perdure.Spend(ctx, "tokens", 3); err != nil {
				return "", err
			}
			return perdure.Key(ctx), spent.Add(ctx, 1)
		}, opts...)
		return err
	}
	outside := perdure.Step[string]
	return perdure.NewFlow("every", func(ctx context.Context, name string) (out string, err error) {
		if err := perdure.Plan(ctx, "first", "charge", "last"); err != nil {
			return "", err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, perdure.Cleanup(ctx, "tidy", func(ctx context.Context) error {
					fx.Count(ctx, "tidy")
					return nil
				}))
			}
		}()
		if err := step(ctx, "first", perdure.Input(name)); err != nil {
			return "", err
		}
		if _, err := outside(ctx, "flaky", func(ctx context.Context) (string, error) {
			fx.Count(ctx, "flaky")
			if Attempt(ctx) == 1 {
				return "", errors.New("try again")
			}
			return "at last", nil
		}, perdure.Retry(perdure.RetryPolicy{Wait: time.Minute})); err != nil {
			return "", err
		}
		g := perdure.NewGroup(ctx)
		g.Go("person", func(ctx context.Context) error {
			ok, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Prompt: "ok?"})
			if err != nil || !ok {
				return errors.Join(err, errors.New("not ok"))
			}
			_, err = perdure.Step(ctx, "note", func(ctx context.Context) (int, error) {
				fx.Count(ctx, "note")
				return 1, spent.Add(ctx, 1)
			})
			return err
		})
		g.Go("clock", func(ctx context.Context) error { return perdure.Sleep(ctx, "nap", time.Hour) })
		if err := g.Wait(); err != nil {
			return "", err
		}
		word, err := perdure.Receive[string](ctx, "word", "word", 0)
		if err != nil {
			return "", err
		}
		steer, took, err := perdure.Take[string](ctx, "steer")
		if err != nil {
			return "", err
		}
		if err := perdure.Emit(ctx, "news", fmt.Sprint(word, steer, took)); err != nil {
			return "", err
		}
		late, err := perdure.Ask[perdure.Answer](ctx, "late", perdure.Question{Expires: 20 * time.Minute, Default: &perdure.Answer{Value: "nobody"}})
		if err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "charge", func(ctx context.Context) (int, error) {
			fx.CountOnce(ctx, "charge")
			return 40, nil
		}, perdure.AtMostOnce(), perdure.Timeout(time.Minute), perdure.Reconcile(func(context.Context) (int, perdure.Outcome, error) {
			if fx.Of("charge") == 0 {
				return 0, perdure.OutcomeNotDone, nil
			}
			return 40, perdure.OutcomeDone, nil
		})); err != nil {
			return "", err
		}
		return perdure.Scope(ctx, "end", func(ctx context.Context) (string, error) {
			if err := step(ctx, "last"); err != nil {
				return "", err
			}
			log, err := progress.Get(ctx)
			if err != nil {
				return "", err
			}
			// What replay brings back is what was there.
			if n, err := spent.Get(ctx); n != 3 || err != nil || fmt.Sprint(log.steps) != "[first last]" {
				return "", fmt.Errorf("the count is %d (%w), the log %q", n, err, log.steps)
			}
			return fmt.Sprint(name, word, steer, string(late.Value.(json.RawMessage)), late.Expired), nil
		})
	})
}

// playEvery answers, signals and steers.
func playEvery(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
	for _, w := range run.Waits {
		switch w.Path {
		case "/person/ok":
			return rt.Answer(ctx, perdure.AskAnswer{Ask: w.Ask, Answer: perdure.Answer{Value: true}})
		case "/word":
			if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "every", Thread: run.Thread, Input: "left", Key: "steer", Policy: perdure.Steer}); err != nil {
				return err
			}
			return rt.Signal(ctx, run.Thread, "word", "hello", perdure.SignalOptions{Key: "word"})
		}
	}
	return nil
}

func init() {
	sweeps.Stores["postgres"] = kit.Postgres
	sweeps.Stores["redis"] = kit.Redis
	kit.Costly("nats", kit.At(natstest.Volatile))
	kit.Costly("s3", kit.At(s3test.Empty))
}

func TestCrashEverywhereEveryVerb(t *testing.T) {
	var fx Effects
	CrashEverywhere(t, Crash{
		Flows:   []perdure.Flow{everyVerb(&fx)},
		Start:   []perdure.StartRequest{{Flow: "every", Input: "ann"}},
		Outside: playEvery,
		Want:    perdure.Succeeded,
		Options: perdure.Options{Lease: 5 * time.Minute}, // fewer renewals while it sleeps
		Effects: &fx,
		MinCuts: 60,
	})
}

// TestCrashEverywhereCancel cuts a run that is cancelled, with its cleanups. It is
// the one that goes on to servers in the short form, and to S3 in the usual one.
func TestCrashEverywhereCancel(t *testing.T) {
	var fx Effects
	c := Crash{
		Flows: []perdure.Flow{everyVerb(&fx)},
		Start: []perdure.StartRequest{{Flow: "every", Input: "ann"}},
		Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
			return rt.Cancel(ctx, run.Thread, run.ID, perdure.Note{By: "bob"})
		},
		Want:    perdure.Cancelled,
		Effects: &fx,
		MinCuts: 30,
	}
	CrashEverywhere(t, c)
	if testing.Short() {
		for name, stores := range sweeps.Stores {
			t.Run(name, func(t *testing.T) {
				c := c
				c.Store = stores(t)
				CrashEverywhere(t, c)
			})
		}
		return
	}
	t.Run("s3", func(t *testing.T) {
		c := c
		c.Store = kit.At(s3test.Empty)(t)
		CrashEverywhere(t, c)
	})
}

// TestCrashEverywhereThreads cuts several runs on two threads at once.
func TestCrashEverywhereThreads(t *testing.T) {
	var fx Effects
	flow := perdure.NewFlow("ask", func(ctx context.Context, name string) (bool, error) {
		return perdure.Ask[bool](ctx, "ok", perdure.Question{Prompt: name})
	})
	CrashEverywhere(t, Crash{
		Flows: []perdure.Flow{flow},
		Start: []perdure.StartRequest{
			{Flow: "ask", Thread: "a", Input: "1"},
			{Flow: "ask", Thread: "b", Input: "2"},
			{Flow: "ask", Thread: "a", Input: "3"},
		},
		Outside: answerAll(true),
		Effects: &fx,
	})
}
