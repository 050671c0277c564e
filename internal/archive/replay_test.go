package archive_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// calls is what the flows of these tests do their steps with. Once live is
// false, a step function that is called fails the test.
type calls struct {
	t    *testing.T
	live bool
}

func (c *calls) called(name string) {
	if !c.live {
		c.t.Errorf("the function of step %s was called", name)
	}
}

// step is a step that returns its own name.
func (c *calls) step(ctx context.Context, name string, opts ...perdure.StepOption) error {
	_, err := perdure.Step(ctx, name, func(context.Context) (string, error) {
		c.called(name)
		return name, nil
	}, opts...)
	return err
}

func (c *calls) steps(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := c.step(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *calls) fails(ctx context.Context, name string, why error, opts ...perdure.StepOption) error {
	_, err := perdure.Step(ctx, name, func(context.Context) (string, error) {
		c.called(name)
		return "", why
	}, opts...)
	return err
}

type replayBody func(ctx context.Context, c *calls) (string, error)

func (c *calls) flow(body replayBody) perdure.Flow {
	return perdure.NewFlow("flow", func(ctx context.Context, _ string) (string, error) { return body(ctx, c) })
}

// steady makes a body of steps that returns its output.
func steady(do func(ctx context.Context, c *calls) error) replayBody {
	return func(ctx context.Context, c *calls) (string, error) { return "done", do(ctx, c) }
}

func question(ctx context.Context, name string) error {
	_, err := perdure.Ask[bool](ctx, name, perdure.Question{})
	return err
}

// recordRun runs a body on a thread, lets the outside act, and returns the export.
func recordRun(t *testing.T, body replayBody, play func(k *kit.Kit)) (*calls, []byte) {
	t.Helper()
	c := &calls{t: t, live: true}
	k := kit.New(t, nil, perdure.Options{}, c.flow(body))
	k.StartOn("t", "flow", "")
	if play == nil {
		play = func(k *kit.Kit) { k.WaitForRun("t", "", perdure.Succeeded) }
	}
	play(k)
	k.Stop()
	c.live = false
	return c, k.MustExport("t", perdure.ExportOptions{})
}

// replayOne replays a file of one run.
func replayOne(t *testing.T, file []byte, flows ...perdure.Flow) perdure.ReplayedRun {
	t.Helper()
	r, err := perdure.Replay(t.Context(), bytes.NewReader(file), flows...)
	kit.NoErr(t, err)
	if len(r.Runs) != 1 || r.Thread != "t" || r.OK() != r.Runs[0].Fits {
		t.Fatalf("%+v", r)
	}
	return r.Runs[0]
}

func suspended(k *kit.Kit) { k.WaitForRun("t", "", perdure.Suspended) }

func failed(k *kit.Kit) { k.WaitForRun("t", "", perdure.Failed) }

func TestReplayOfTheSameCodeFits(t *testing.T) {
	mood := perdure.NewState[string]("mood")
	cases := map[string]struct {
		body replayBody
		play func(k *kit.Kit)
		note string
	}{
		"steps": {body: steady(func(ctx context.Context, c *calls) error { return c.steps(ctx, "a", "b", "c") })},
		"large": {body: func(ctx context.Context, c *calls) (string, error) {
			return perdure.Step(ctx, "large", func(context.Context) (string, error) {
				c.called("large")
				return strings.Repeat("x", 300_000), nil
			})
		}},
		"group": {body: steady(func(ctx context.Context, c *calls) error {
			g := perdure.NewGroup(ctx)
			for _, name := range []string{"left", "right"} {
				g.Go(name, func(ctx context.Context) error { return c.steps(ctx, "a", "b") })
			}
			return g.Wait()
		})},
		"abandoned group": {body: steady(func(ctx context.Context, c *calls) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (bool, error) {
				g := perdure.NewGroup(ctx)
				g.Go("asks", func(ctx context.Context) error { return errors.Join(c.step(ctx, "a"), question(ctx, "never")) })
				g.Go("fast", func(ctx context.Context) error { return c.step(ctx, "b") })
				time.Sleep(time.Second)
				return true, nil
			})
			return err
		})},
		"ask": {body: steady(func(ctx context.Context, c *calls) error {
			return errors.Join(c.step(ctx, "a"), question(ctx, "ok"), c.step(ctx, "b"))
		}), play: func(k *kit.Kit) {
			k.AnswerAt(k.WaitForRun("t", "", perdure.Suspended), "/ok", perdure.Answer{Value: true})
			k.WaitForRun("t", "", perdure.Succeeded)
		}},
		"ask with a schema": {body: steady(func(ctx context.Context, c *calls) error {
			_, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Expires: time.Hour, Default: &perdure.Answer{Value: true}})
			return err
		}), play: func(k *kit.Kit) {
			time.Sleep(2 * time.Hour)
			k.WaitForRun("t", "", perdure.Succeeded)
		}},
		"timer and signal": {body: func(ctx context.Context, c *calls) (string, error) {
			if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
				return "", err
			}
			if _, err := perdure.Receive[int](ctx, "no", "no", time.Minute); !errors.Is(err, perdure.ErrTimeout) {
				return "", err
			}
			return perdure.Receive[string](ctx, "yes", "yes", 0)
		}, play: func(k *kit.Kit) {
			kit.NoErr(k.T, k.Signal(k.T.Context(), "t", "yes", "now", perdure.SignalOptions{}))
			time.Sleep(time.Hour)
			k.WaitForRun("t", "", perdure.Succeeded)
		}},
		"steering, plan and events": {body: func(ctx context.Context, c *calls) (string, error) {
			if err := errors.Join(perdure.Plan(ctx, "a", "b"), perdure.Sleep(ctx, "nap", time.Minute)); err != nil {
				return "", err
			}
			text, _, err := perdure.Take[string](ctx, "first")
			_, more, errMore := perdure.Take[string](ctx, "second")
			return text, errors.Join(err, errMore, perdure.Emit(ctx, "news", more))
		}, play: func(k *kit.Kit) {
			time.Sleep(time.Second)
			k.MustStart(perdure.StartRequest{Thread: "t", Flow: "flow", Input: "faster", Policy: perdure.Steer})
			time.Sleep(time.Hour)
			k.WaitForRun("t", "", perdure.Succeeded)
		}},
		"retries": {body: steady(func(ctx context.Context, c *calls) error {
			if err := c.fails(ctx, "flaky", errors.New("no"), perdure.Retry(perdure.RetryPolicy{Wait: 10 * time.Second})); err == nil {
				return errors.New("it did not fail")
			}
			return c.step(ctx, "after")
		}), play: func(k *kit.Kit) {
			time.Sleep(time.Hour)
			k.WaitForRun("t", "", perdure.Succeeded)
		}},
		"waiting for a retry": {body: steady(func(ctx context.Context, c *calls) error {
			return c.fails(ctx, "flaky", errors.New("no"), perdure.Retry(perdure.RetryPolicy{Wait: 10 * time.Hour, MaxWait: 10 * time.Hour}))
		}), play: func(k *kit.Kit) { time.Sleep(time.Minute) }, note: "goes on at step /flaky"},
		"at most once": {body: steady(func(ctx context.Context, c *calls) error {
			return c.step(ctx, "pay", perdure.AtMostOnce(), perdure.Timeout(time.Minute))
		})},
		"unknown outcome": {body: steady(func(ctx context.Context, c *calls) error {
			return c.fails(ctx, "pay", errors.New("lost"), perdure.AtMostOnce(), perdure.Timeout(time.Minute))
		}), play: suspended, note: "waits at step /pay"},
		"state, time and key": {body: func(ctx context.Context, c *calls) (string, error) {
			_, err := perdure.Step(ctx, "set", func(ctx context.Context) (bool, error) {
				c.called("set")
				return true, mood.Set(ctx, "glad")
			})
			if err != nil {
				return "", err
			}
			text, err := mood.Get(ctx)
			return text + perdure.Now(ctx).String() + perdure.Key(ctx), errors.Join(err, c.step(ctx, "keyed", perdure.Input(perdure.Key(ctx))))
		}},
		"nested": {body: func(ctx context.Context, c *calls) (string, error) {
			return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
				return perdure.Scope(ctx, "scope", func(ctx context.Context) (string, error) {
					return "inside", errors.Join(c.step(ctx, "a"), question(ctx, "ok"), c.step(ctx, "b"))
				})
			}, perdure.Timeout(time.Minute))
		}, play: func(k *kit.Kit) {
			k.AnswerAt(k.WaitForRun("t", "", perdure.Suspended), "/outer/scope/ok", perdure.Answer{Value: true})
			k.WaitForRun("t", "", perdure.Succeeded)
		}},
		"nested and suspended": {body: steady(func(ctx context.Context, c *calls) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (bool, error) {
				return true, errors.Join(c.step(ctx, "a"), question(ctx, "ok"), c.step(ctx, "b"))
			})
			return err
		}), play: suspended, note: "waits at ask /outer/ok"},
		"a failed composite": {body: func(ctx context.Context, c *calls) (string, error) {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (bool, error) {
				return true, errors.Join(c.step(ctx, "a"), c.fails(ctx, "b", errors.New("broken")))
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 2}))
			return "", err
		}, play: failed},
		"failed with cleanup": {body: func(ctx context.Context, c *calls) (out string, err error) {
			defer func() {
				_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { c.called("undo"); return nil })
			}()
			return "", errors.Join(c.step(ctx, "a"), c.fails(ctx, "b", perdure.Coded("sold-out", errors.New("sold out"))))
		}, play: failed},
		"a panic": {body: func(ctx context.Context, c *calls) (string, error) {
			_ = c.step(ctx, "a")
			panic("ouch")
		}, play: failed},
		"retried by a person": {body: func(ctx context.Context, c *calls) (string, error) {
			return "", errors.Join(c.step(ctx, "a"), c.fails(ctx, "b", errors.New("broken")))
		}, play: func(k *kit.Kit) {
			failed(k)
			kit.NoErr(k.T, k.Retry(k.T.Context(), "t", "", perdure.Note{}))
			time.Sleep(time.Minute)
			failed(k)
		}},
		"cancelled": {body: func(ctx context.Context, c *calls) (out string, err error) {
			defer func() {
				if err != nil {
					_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { c.called("undo"); return nil })
				}
			}()
			return "", errors.Join(c.step(ctx, "a"), question(ctx, "ok"))
		}, play: func(k *kit.Kit) {
			suspended(k)
			kit.NoErr(k.T, k.Cancel(k.T.Context(), "t", "", perdure.Note{}))
			k.WaitForRun("t", "", perdure.Cancelled)
		}, note: "up to its cancel"},
		"suspended in a group": {body: steady(func(ctx context.Context, c *calls) error {
			g := perdure.NewGroup(ctx)
			g.Go("person", func(ctx context.Context) error { return errors.Join(question(ctx, "ok"), c.step(ctx, "after")) })
			g.Go("machine", func(ctx context.Context) error { return c.steps(ctx, "a", "b") })
			return errors.Join(g.Wait(), c.step(ctx, "last"))
		}), play: suspended, note: "waits at ask /person/ok"},
		"paused": {body: steady(func(ctx context.Context, c *calls) error {
			return errors.Join(perdure.Sleep(ctx, "nap", time.Minute), c.step(ctx, "a"))
		}), play: func(k *kit.Kit) {
			time.Sleep(time.Second)
			kit.NoErr(k.T, k.Pause(k.T.Context(), "t", "", perdure.Note{}))
			time.Sleep(time.Hour)
		}, note: "waits at sleep /nap"},
	}
	for name, c := range cases {
		kit.Bubble(t, name, func(t *testing.T) {
			r, file := recordRun(t, c.body, c.play)
			time.Sleep(24 * time.Hour) // all that was due is long over
			run := replayOne(t, file, r.flow(c.body))
			if !run.Fits || !strings.Contains(run.Note, c.note) || (run.Note == "") != (c.note == "") {
				t.Errorf("%+v, want a note with %q", run, c.note)
			}
		})
	}
}

func TestReplayReportsEachKindOfChange(t *testing.T) {
	steps := func(names ...string) replayBody {
		return steady(func(ctx context.Context, c *calls) error { return c.steps(ctx, names...) })
	}
	waits := func(names ...string) replayBody {
		return steady(func(ctx context.Context, c *calls) error {
			return errors.Join(c.steps(ctx, names...), question(ctx, "ok"))
		})
	}
	inside := func(body replayBody) replayBody {
		return func(ctx context.Context, c *calls) (string, error) {
			return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) { return body(ctx, c) })
		}
	}
	group := func(names ...string) replayBody {
		return steady(func(ctx context.Context, c *calls) error {
			g := perdure.NewGroup(ctx)
			for _, name := range names {
				g.Go(name, func(ctx context.Context) error { return c.step(ctx, "work") })
			}
			return g.Wait()
		})
	}
	branches := func(left, right string) replayBody {
		return steady(func(ctx context.Context, c *calls) error {
			g := perdure.NewGroup(ctx)
			g.Go("left", func(ctx context.Context) error { return errors.Join(c.step(ctx, left), question(ctx, "ok")) })
			g.Go("right", func(ctx context.Context) error {
				return errors.Join(c.step(ctx, "r"), question(ctx, "sure"), c.step(ctx, right))
			})
			return g.Wait()
		})
	}
	returns := func(text string, err error) replayBody {
		return func(ctx context.Context, c *calls) (string, error) { return text, errors.Join(c.step(ctx, "a"), err) }
	}
	coded := func(code string) replayBody { return returns("", perdure.Coded(code, errors.New("no"))) }
	cases := map[string]struct {
		old, new replayBody
		play     func(k *kit.Kit)
		says     []string // nothing: it fits
		note     string
	}{
		"inserted":             {old: steps("a", "c"), new: steps("a", "b", "c"), says: []string{`- step "c"`, `+ step "b"`}},
		"appended to an ended": {old: steps("a"), new: steps("a", "b"), says: []string{"the end of the run", "goes on at step /b"}},
		"appended to a waiting": {old: waits("a"), new: steady(func(ctx context.Context, c *calls) error {
			return errors.Join(c.step(ctx, "a"), question(ctx, "ok"), c.step(ctx, "b"))
		}), play: suspended},
		"removed":             {old: steps("a", "b"), new: steps("a"), says: []string{`- step "b"`, "+ return"}},
		"removed and waiting": {old: waits("a", "b"), new: waits("a"), play: suspended, note: `- step "b"`},
		"renamed":             {old: steps("a", "b"), new: steps("a", "c"), says: []string{`- step "b"`, `+ step "c"`}},
		"reordered":           {old: steps("a", "b"), new: steps("b", "a")},
		"another kind": {old: steps("a", "b"), new: steady(func(ctx context.Context, c *calls) error {
			return errors.Join(c.step(ctx, "a"), perdure.Emit(ctx, "b", 1))
		}), says: []string{"at /b", "- recorded: step", "+ the code: emit"}},
		"marked as renamed": {old: steps("a", "b"), new: steady(func(ctx context.Context, c *calls) error {
			return errors.Join(c.step(ctx, "a"), c.step(ctx, "c", perdure.Renamed("b")))
		})},
		"marked as dropped": {old: steps("a", "b"), new: steady(func(ctx context.Context, c *calls) error {
			return errors.Join(c.step(ctx, "a"), perdure.Dropped(ctx, "b"))
		})},
		"marked as added": {old: steps("a", "c"), new: steady(func(ctx context.Context, c *calls) error {
			if err := c.step(ctx, "a"); err != nil {
				return err
			}
			if err := c.step(ctx, "b", perdure.Added()); err != nil {
				return err
			}
			return c.step(ctx, "c")
		})},
		"another output":             {old: returns("one", nil), new: returns("two", nil), says: []string{`- recorded: "one"`, `+ the code: "two"`}},
		"an error, was none":         {old: returns("one", nil), new: returns("", errors.New("no")), says: []string{"- recorded: succeeded", "+ the code: the error no"}},
		"no error, was one":          {old: returns("", errors.New("no")), new: returns("", nil), play: failed, says: []string{"- recorded: the error no", "+ the code: no error"}},
		"another message":            {old: returns("", errors.New("no")), new: returns("", errors.New("never")), play: failed, says: []string{"- recorded: no", "+ the code: never"}},
		"another code":               {old: coded("a"), new: coded("b"), play: failed, says: []string{`- recorded: no ["a"]`, `+ the code: no ["b"]`}},
		"inserted inside":            {old: inside(steps("a", "c")), new: inside(steps("a", "b", "c")), says: []string{"in /outer", `+ step "b"`}},
		"appended inside":            {old: inside(steps("a")), new: inside(steps("a", "b")), says: []string{"at /outer/b", "inside a step that is done"}},
		"removed inside":             {old: inside(steps("a", "b")), new: inside(steps("a")), says: []string{"in /outer", `- step "b"`}},
		"another inner result":       {old: inside(returns("one", nil)), new: inside(returns("two", nil)), says: []string{"the result of /outer", `- recorded: "one"`}},
		"an inner error":             {old: inside(returns("one", nil)), new: inside(returns("", errors.New("no"))), says: []string{"at /outer", "+ the code: the error no"}},
		"a branch removed":           {old: group("a", "b"), new: group("a"), says: []string{`- branch "b"`}},
		"a branch added":             {old: group("a"), new: group("a", "b"), says: []string{"goes on at step /b/work"}},
		"a branch became a step":     {old: group("a"), new: steps("a"), says: []string{"recorded: a branch of a group", "+ the code: step"}},
		"beside a branch that waits": {old: branches("l", "x"), new: branches("other", "x"), play: suspended, says: []string{"in /left", `- step "l"`}},
		"behind a branch that waits": {old: branches("l", "x"), new: branches("l", "y"), play: suspended},
		"another input": {old: steady(func(ctx context.Context, c *calls) error { return c.step(ctx, "a", perdure.Input(1)) }),
			new: steady(func(ctx context.Context, c *calls) error { return c.step(ctx, "a", perdure.Input(2)) }), says: []string{"input with digest"}},
	}
	for name, c := range cases {
		kit.Bubble(t, name, func(t *testing.T) {
			r, file := recordRun(t, c.old, c.play)
			run := replayOne(t, file, r.flow(c.new))
			if c.says == nil {
				if !run.Fits || !strings.Contains(run.Note, c.note) {
					t.Errorf("it does not fit, or does not note %q: %+v", c.note, run)
				}
				return
			}
			if run.Fits {
				t.Errorf("it fits: %+v", run)
			}
			for _, text := range c.says {
				if !strings.Contains(run.Problem, text) {
					t.Errorf("it does not say %q:\n%s", text, run.Problem)
				}
			}
			if fits := replayOne(t, file, r.flow(c.old)); !fits.Fits {
				t.Errorf("the old code does not fit: %s", fits.Problem)
			}
		})
	}
}

func TestReplayOfAThreadThatUsesEveryVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(ran)
		k := kit.New(t, nil, perdure.Options{}, auditFlow(r))
		playAudit(k, "t")
		k.StartOn("t", "audit", "later") // it waits for the first
		file := k.MustExport("t", perdure.ExportOptions{})
		n := r.n.Load()
		got, err := perdure.Replay(t.Context(), bytes.NewReader(file), auditFlow(r))
		if err != nil || !got.OK() || len(got.Runs) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		if got.Runs[0].Note != "the code waits at ask /ok" || got.Runs[1].Note != "it has not begun" || r.n.Load() != n {
			t.Errorf("%+v, and %d functions were called", got, r.n.Load()-n)
		}
		// An import is replayed as well, and so is a thread that has ended.
		k.MustImport(file, "u")
		kit.NoErr(t, k.Resume(t.Context(), "u", got.Runs[0].ID, perdure.Note{}))
		k.AnswerAt(k.WaitForRun("u", got.Runs[0].ID, perdure.Suspended), "/ok", perdure.Answer{Value: "fine"})
		k.WaitForRun("u", got.Runs[0].ID, perdure.Succeeded)
		got, err = perdure.Replay(t.Context(), bytes.NewReader(k.MustExport("u", perdure.ExportOptions{})), auditFlow(r))
		if err != nil || !got.OK() || got.Runs[0].Note != "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestReplayRefusesWhatItCannotJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := steady(func(ctx context.Context, c *calls) error { return c.step(ctx, "a") })
		c, file := recordRun(t, body, nil)
		if run := replayOne(t, file, kit.EchoFlow("another")); run.Fits || !strings.Contains(run.Problem, `no flow "flow"`) {
			t.Errorf("without the flow: %+v", run)
		}
		_, err := perdure.Replay(t.Context(), bytes.NewReader(file[:len(file)-2]), c.flow(body))
		kit.WantErr(t, "a file cut short", err, perdure.ErrCorrupt)
		_, err = perdure.Replay(t.Context(), bytes.NewReader(file), c.flow(body), c.flow(body))
		kit.WantErr(t, "two flows of a name", err, perdure.ErrName)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = perdure.Replay(cancelled, bytes.NewReader(file), c.flow(body))
		kit.WantErr(t, "a context that has ended", err, context.Canceled)
	})
}
