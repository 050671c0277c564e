package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// changeCase is a change of a flow's code while a run of it waits at an ask.
type changeCase struct {
	before, after func(context.Context, *kit.Tally) error
	diff          []string // lines of the diff, nil if the change is fine
	ran           string   // what ran in the new code, if it is fine
}

// stepsOf runs leaves one after the other; "?x" asks.
func stepsOf(names ...string) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error {
		for _, name := range names {
			var err error
			if ask, ok := strings.CutPrefix(name, "?"); ok {
				err = kit.AskYesNo(ctx, ask)
			} else {
				err = c.OK(ctx, name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// nestedIn runs something inside a scope, step or branch.
func nestedIn(frame, name string, fn func(context.Context, *kit.Tally) error) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error {
		in := func(ctx context.Context) (int, error) { return 1, fn(ctx, c) }
		var err error
		switch frame {
		case "scope":
			_, err = perdure.Scope(ctx, name, in)
		case "step":
			_, err = perdure.Step(ctx, name, in)
		case "branch":
			g := perdure.NewGroup(ctx)
			g.Go(name, func(ctx context.Context) error { return fn(ctx, c) })
			err = g.Wait()
		}
		return err
	}
}

// oneThen runs functions one after the other.
func oneThen(fns ...func(context.Context, *kit.Tally) error) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error {
		for _, fn := range fns {
			if err := fn(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

func opt(name string, opts ...perdure.StepOption) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error { return c.OK(ctx, name, opts...) }
}

func drop(names ...string) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, _ *kit.Tally) error { return perdure.Dropped(ctx, names...) }
}

func inGroup(branches ...string) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error {
		g := perdure.NewGroup(ctx)
		for _, name := range branches {
			g.Go(name, func(ctx context.Context) error { return c.OK(ctx, "in "+name) })
		}
		return g.Wait()
	}
}

var changeCases = map[string]changeCase{
	"inserted":       {stepsOf("a", "?ok"), stepsOf("a", "new", "?ok"), []string{"in /:", `  step "a"`, `- ask "ok"`, `+ step "new"`}, ""},
	"inserted first": {stepsOf("a", "?ok"), stepsOf("new", "a", "?ok"), []string{`- step "a"`, `- ask "ok"`, `+ step "new"`}, ""},
	"removed":        {stepsOf("a", "b", "?ok"), stepsOf("a", "?ok", "end"), []string{`- step "b"`, `+ step "end"`}, ""},
	"removed last":   {stepsOf("a", "?ok"), stepsOf("a"), []string{`- ask "ok"`, "+ return"}, ""},
	"renamed":        {stepsOf("a", "?ok"), stepsOf("b", "?ok"), []string{`- step "a"`, `+ step "b"`}, ""},
	"another verb": {stepsOf("a", "?ok"), oneThen(func(ctx context.Context, _ *kit.Tally) error {
		return perdure.Sleep(ctx, "a", time.Second)
	}, stepsOf("?ok")), []string{"at /a:", "- recorded: step", "+ the code: sleep"}, ""},
	"ask became step": {stepsOf("a", "?ok"), stepsOf("a", "ok"), []string{"at /ok:", "- recorded: ask", "+ the code: step"}, ""},
	"another input": {oneThen(opt("a", perdure.Input(1)), stepsOf("?ok")), oneThen(opt("a", perdure.Input(2)), stepsOf("?ok")),
		[]string{"at /a:", "- recorded: input", "+ the code: input"}, ""},
	"in a scope":   {nestedIn("scope", "s", stepsOf("a", "?ok")), nestedIn("scope", "s", stepsOf("new", "a", "?ok")), []string{"in /s:", `+ step "new"`}, ""},
	"in a step":    {nestedIn("step", "s", stepsOf("a", "?ok")), nestedIn("step", "s", stepsOf("new", "a", "?ok")), []string{"in /s:", `+ step "new"`}, ""},
	"in a branch":  {nestedIn("branch", "s", stepsOf("a", "?ok")), nestedIn("branch", "s", stepsOf("new", "a", "?ok")), []string{"in /s:", `+ step "new"`}, ""},
	"scope leaves": {nestedIn("scope", "s", stepsOf("a", "?ok")), nestedIn("scope", "s", stepsOf("a")), []string{"in /s:", `- ask "ok"`, "+ return"}, ""},
	"a scope came": {stepsOf("a", "?ok"), oneThen(nestedIn("scope", "s", stepsOf("new")), stepsOf("a", "?ok")), []string{`- step "a"`}, ""},
	"a scope went": {oneThen(nestedIn("scope", "s", stepsOf("a")), stepsOf("?ok")), stepsOf("?ok", "end"), []string{`- scope "s"`, `+ step "end"`}, ""},
	"branch went":  {oneThen(inGroup("a", "b"), stepsOf("?ok")), oneThen(inGroup("a"), stepsOf("?ok")), []string{`- branch "b"`, "+ return"}, ""},
	"branch became step": {oneThen(inGroup("a"), stepsOf("?ok")), oneThen(nestedIn("step", "a", stepsOf("in a")), stepsOf("?ok")),
		[]string{"at /a:", "- recorded: a branch of a group", "+ the code: step"}, ""},
	"step became branch": {oneThen(nestedIn("step", "a", stepsOf("in a")), stepsOf("?ok")), oneThen(inGroup("a"), stepsOf("?ok")),
		[]string{"at /a:", "- recorded: step", "+ the code: a branch of a group"}, ""},

	"nothing":              {stepsOf("a", "?ok"), stepsOf("a", "?ok"), nil, ""},
	"appended":             {stepsOf("a", "?ok"), stepsOf("a", "?ok", "new"), nil, "new"},
	"reordered":            {stepsOf("a", "b", "c", "?ok"), stepsOf("c", "?ok", "a", "b"), nil, ""},
	"reordered, then":      {stepsOf("a", "b", "?ok"), stepsOf("b", "a", "?ok", "new"), nil, "new"},
	"Added":                {stepsOf("a", "?ok"), oneThen(opt("new", perdure.Added()), stepsOf("a", "?ok")), nil, "new"},
	"appended in a scope":  {oneThen(nestedIn("scope", "s", stepsOf("a")), stepsOf("?ok")), oneThen(nestedIn("scope", "s", stepsOf("a", "new")), stepsOf("?ok")), nil, "new"},
	"appended in a branch": {oneThen(nestedIn("branch", "s", stepsOf("a")), stepsOf("?ok")), oneThen(nestedIn("branch", "s", stepsOf("a", "new")), stepsOf("?ok")), nil, "new"},
	"Added in a branch":    {stepsOf("a", "?ok"), oneThen(nestedIn("branch", "s", opt("new", perdure.Added())), stepsOf("a", "?ok")), nil, "new"},
	"Dropped":              {stepsOf("a", "b", "?ok"), oneThen(stepsOf("a"), drop("b"), stepsOf("?ok", "end")), nil, "end"},
	"Dropped ask":          {stepsOf("a", "?ok"), oneThen(drop("ok"), stepsOf("a", "end")), nil, "end"},
	"Renamed":              {stepsOf("a", "?ok"), oneThen(opt("b", perdure.Renamed("a")), stepsOf("?ok")), nil, ""},
	"Renamed composite":    {oneThen(nestedIn("step", "s", stepsOf("a")), stepsOf("?ok")), oneThen(opt("new s", perdure.Renamed("s")), stepsOf("?ok")), nil, ""},
	"Renamed, not there":   {stepsOf("?ok"), oneThen(stepsOf("?ok"), opt("b", perdure.Renamed("a"))), nil, "b"},
	"swapped by Renamed":   {stepsOf("a", "b", "?ok"), oneThen(opt("x", perdure.Renamed("a")), opt("y", perdure.Renamed("b")), stepsOf("?ok")), nil, ""},
	"in a finished step":   {oneThen(nestedIn("step", "s", stepsOf("a", "b")), stepsOf("?ok")), oneThen(nestedIn("step", "s", stepsOf("x", "y", "z")), stepsOf("?ok")), nil, ""},
	"branches swapped":     {oneThen(inGroup("a", "b"), stepsOf("?ok")), oneThen(inGroup("b", "a"), stepsOf("?ok")), nil, ""},
	"branch Dropped":       {oneThen(inGroup("a", "b"), stepsOf("?ok")), oneThen(inGroup("a"), drop("b"), stepsOf("?ok")), nil, ""},
	"empty branch came":    {oneThen(inGroup("a"), stepsOf("?ok")), oneThen(nestedIn("branch", "new", stepsOf()), inGroup("a"), stepsOf("?ok")), nil, ""},
	"same input":           {oneThen(opt("a", perdure.Input(1)), stepsOf("?ok")), oneThen(opt("a", perdure.Input(1)), stepsOf("?ok")), nil, ""},
	"input said":           {stepsOf("a", "?ok"), oneThen(opt("a", perdure.Input(1)), stepsOf("?ok")), nil, ""},
	"scope became step":    {oneThen(nestedIn("scope", "s", stepsOf("a")), nestedIn("scope", "t", stepsOf("?ok"))), oneThen(nestedIn("scope", "s", stepsOf("a")), nestedIn("step", "t", stepsOf("?ok"))), nil, ""},
}

func TestAChangeOfTheCodeBlocksTheRunOrIsFine(t *testing.T) {
	for what, change := range changeCases {
		kit.Bubble(t, what, func(t *testing.T) {
			inner := memstore.New()
			var old, now kit.Tally
			k := kit.New(t, inner, perdure.Options{Version: "v1"}, kit.FlowOf(func(ctx context.Context) error { return change.before(ctx, &old) }))
			k.StartOn("t", "f", struct{}{})
			run := k.WaitFor("t", perdure.Suspended)
			k.Stop()
			k = kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error { return change.after(ctx, &now) }))
			k.AnswerYes(run, run.Asks[0].Path)
			if change.diff == nil {
				k.WaitFor("t", perdure.Succeeded)
				all := now.All()
				delete(all, change.ran)
				if len(all) > 0 || change.ran != "" && now.Of(change.ran) != 1 {
					t.Errorf("the new code ran %v, want %q once", now.All(), change.ran)
				}
				return
			}
			run = k.WaitFor("t", perdure.Blocked)
			if len(now.All()) != 0 {
				t.Errorf("something ran before the run was blocked: %v", now.All())
			}
			if run.Version != "v2" {
				t.Errorf("blocked names version %q", run.Version)
			}
			lines := strings.Split(run.Diff, "\n")
			for _, want := range change.diff {
				if !hasLine(lines, want) {
					t.Errorf("the diff lacks %q:\n%s", want, run.Diff)
				}
			}
			if _, err := perdure.Output[struct{}](run); !errors.Is(err, perdure.ErrBlocked) || !strings.Contains(err.Error(), run.Diff) {
				t.Errorf("Output: %v", err)
			}
		})
	}
}

func hasLine(lines []string, want string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, want) {
			return true
		}
	}
	return false
}

// blockedKit returns a store with a run on thread t that version v2 is
// blocked at: v1 has steps a, ask ok, b; v2 has x before them.
func blockedKit(t *testing.T, c *kit.Tally) (store.Store, *kit.Kit) {
	t.Helper()
	inner := memstore.New()
	k := kit.New(t, inner, perdure.Options{Version: "v1"}, kit.FlowOf(func(ctx context.Context) error { return stepsOf("a", "?ok", "b")(ctx, c) }))
	k.StartOn("t", "f", struct{}{})
	run := k.WaitFor("t", perdure.Suspended)
	k.Stop()
	k.AnswerYes(run, "/ok")
	k = kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error { return stepsOf("x", "a", "?ok", "b")(ctx, c) }))
	k.WaitFor("t", perdure.Blocked)
	return inner, k
}

func TestABlockedRunIsClaimedByAnotherVersionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner, k := blockedKit(t, &c)
		claims := k.KindsOf("t")["claimed"]
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := k.KindsOf("t")["claimed"]; n != claims {
			t.Errorf("the version that is blocked claimed the run %d times more", n-claims)
		}
		// The old code comes back beside the new one.
		kit.New(t, inner, perdure.Options{Version: "v1"}, kit.FlowOf(func(ctx context.Context) error { return stepsOf("a", "?ok", "b")(ctx, &c) }))
		endOf(k, perdure.Succeeded)
		if c.Of("a") != 1 || c.Of("b") != 1 || c.Of("x") != 0 {
			t.Errorf("ran %v", c.All())
		}
	})
}

// endOf is specEnd for a run that is blocked first.
func endOf(k *kit.Kit, want perdure.Status) *perdure.Run {
	k.T.Helper()
	k.Until("the run is taken up", func() bool {
		run, err := k.GetRun(k.T.Context(), "t", "")
		return err == nil && run.Status != perdure.Blocked
	})
	return k.EndsAs("t", want)
}

func TestABlockedRunGoesOnWithAMendedVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner, k := blockedKit(t, &c)
		k.Stop()
		k = kit.New(t, inner, perdure.Options{Version: "v3"}, kit.FlowOf(func(ctx context.Context) error {
			return oneThen(opt("x", perdure.Added()), stepsOf("a", "?ok", "b"))(ctx, &c)
		}))
		endOf(k, perdure.Succeeded)
		if c.Of("a") != 1 || c.Of("b") != 1 || c.Of("x") != 1 {
			t.Errorf("ran %v", c.All())
		}
	})
}

func TestRetryLiftsABlockForTheSameVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner, k := blockedKit(t, &c)
		kit.NoErr(t, k.Retry(t.Context(), "t", "", perdure.Note{}))
		k.WaitFor("t", perdure.Blocked) // the code is as it was
		k.Stop()
		k = kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error { return stepsOf("a", "?ok", "b")(ctx, &c) }))
		kit.NoErr(t, k.Retry(t.Context(), "t", "", perdure.Note{}))
		k.WaitFor("t", perdure.Succeeded)
		if c.Of("a") != 1 || c.Of("x") != 0 {
			t.Errorf("ran %v", c.All())
		}
	})
}

func TestABlockedRunIsCancelledWithoutRunningCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		_, k := blockedKit(t, &c)
		k.Stop() // nobody is there to run code
		before := c.All()
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{By: "ann"}))
		run := k.WaitFor("t", perdure.Cancelled)
		if _, err := perdure.Output[struct{}](run); !errors.Is(err, perdure.ErrCancelled) {
			t.Errorf("Output: %v", err)
		}
		if len(before) != len(c.All()) || k.KindsOf("t")["ended"] != 1 {
			t.Errorf("ran %v:\n%s", c.All(), k.Trace("t"))
		}
	})
}

// An at-most-once step whose start is recorded must not lose its care.
func TestAStartedAtMostOnceStepCannotBecomeAPlainOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered := memstore.New(), make(chan bool, 1)
		m := kit.NewMortal(t, inner, perdure.Options{Version: "v1"}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				entered <- true
				<-ctx.Done()
				return 0, ctx.Err()
			}, kit.AtMostOnce()...)
			return err
		}))
		m.StartOn("t", "f", struct{}{})
		<-entered
		m.Die()
		var c kit.Tally
		k := kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error { return c.OK(ctx, "pay") }))
		run := k.WaitFor("t", perdure.Blocked)
		if c.Of("pay") != 0 || !strings.Contains(run.Diff, "at-most-once") {
			t.Errorf("it ran %d times: %s", c.Of("pay"), run.Diff)
		}
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{}))
		if run = k.WaitFor("t", perdure.Cancelled); len(run.Unknown) != 1 || run.Unknown[0] != "/pay" {
			t.Errorf("unknown outcomes %v", run.Unknown)
		}
	})
}

// A branch that has not started yet when another continues is not a divergence:
// only Wait can tell.
func TestBranchesAreJudgedAtWaitNotAtGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for _, name := range []string{"a", "b", "c"} {
				g.Go(name, func(ctx context.Context) error {
					if err := kit.AskYesNo(ctx, "one"); err != nil {
						return err
					}
					if err := c.OK(ctx, "new in "+name); err != nil {
						return err
					}
					return kit.AskYesNo(ctx, "two")
				})
				time.Sleep(time.Second) // the branch before is far ahead
			}
			return g.Wait()
		})
		for _, path := range []string{"/c/one", "/a/one", "/b/one", "/b/two", "/c/two", "/a/two"} {
			k.AnswerYes(run, path)
			if path != "/a/two" {
				run = k.WaitFor("t", perdure.Suspended)
			}
		}
		k.WaitFor("t", perdure.Succeeded)
		for name, n := range c.All() {
			if n != 1 {
				t.Errorf("%q ran %d times", name, n)
			}
		}
	})
}

// A blocked run can be looked at: the diff is in its event.
func TestTheBlockedEventCarriesTheDiff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		_, k := blockedKit(t, &c)
		found := false
		for _, e := range k.EventsOf("t") {
			if e.Kind == "blocked" {
				found = strings.Contains(e.Diff, `+ step "x"`)
			}
		}
		if !found {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
	})
}

// Only Wait can tell that a branch is new, and nothing of it runs before that,
// so that the old code can still continue.
func TestANewBranchBeforeRecordedStepsBlocksBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		var c kit.Tally
		old := kit.FlowOf(func(ctx context.Context) error { return oneThen(inGroup("a"), stepsOf("?ok"))(ctx, &c) })
		k := kit.New(t, inner, perdure.Options{Version: "v1"}, old)
		k.StartOn("t", "f", struct{}{})
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k = kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error {
			return oneThen(inGroup("new", "a"), stepsOf("?ok", "end"))(ctx, &c)
		}))
		k.AnswerYes(run, "/ok")
		run = k.WaitFor("t", perdure.Blocked)
		if !strings.Contains(run.Diff, `- ask "ok"`) || !strings.Contains(run.Diff, `+ step "new/`) {
			t.Errorf("the diff is\n%s", run.Diff)
		}
		if len(c.All()) != 1 {
			t.Errorf("ran %v before it was blocked", c.All())
		}
		k.Stop()
		k = kit.New(t, inner, perdure.Options{Version: "v1"}, old)
		endOf(k, perdure.Succeeded)
	})
}

// TestABlockKeepsWhatOtherBranchesHaveBegun: a branch that no longer fits may be
// found when another has begun a step. It is finished and recorded, so that it
// does not run again once the code fits.
func TestABlockKeepsWhatOtherBranchesHaveBegun(t *testing.T) {
	for _, opts := range [][]perdure.StepOption{nil, {perdure.AtMostOnce(), perdure.Timeout(time.Minute)}} {
		synctest.Test(t, func(t *testing.T) {
			var c kit.Tally
			flow := func(first string) perdure.Flow {
				return kit.FlowOf(func(ctx context.Context) error {
					paying := make(chan struct{})
					g := perdure.NewGroup(ctx)
					g.Go("x", func(ctx context.Context) error {
						if first != "recorded" {
							<-paying
						}
						return c.OK(ctx, first)
					})
					g.Go("y", func(ctx context.Context) error {
						if err := kit.AskYesNo(ctx, "gate"); err != nil {
							return err
						}
						if _, err := perdure.Step(ctx, "pay", func(context.Context) (int, error) {
							close(paying)
							time.Sleep(5 * time.Second)
							return c.Hit("pay"), nil
						}, opts...); err != nil {
							return err
						}
						return c.OK(ctx, "after")
					})
					return g.Wait()
				})
			}
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{Version: "1"}, flow("recorded"))
			k.StartOn("t", "f", struct{}{})
			run := k.WaitFor("t", perdure.Suspended)
			k.Stop()
			k.AnswerYes(run, "/y/gate")
			k = kit.New(t, s, perdure.Options{Version: "2"}, flow("renamed"))
			run = k.WaitFor("t", perdure.Blocked)
			k.Stop()
			if c.Of("pay") != 1 || c.Of("after") != 0 || c.Of("renamed") != 0 || !strings.Contains(run.Diff, `+ step "renamed"`) {
				t.Errorf("%v ran; %s", c.All(), run.Diff)
			}
			k.WantLines("step /y/pay 1")
			k = kit.New(t, s, perdure.Options{Version: "3"}, flow("recorded"))
			k.EndsAs("t", perdure.Succeeded)
			if c.Of("pay") != 1 || c.Of("after") != 1 || c.Of("recorded") != 1 {
				t.Errorf("%v ran in the end", c.All())
			}
		})
	}
}
