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

// specChange is a change of a flow's code while a run of it waits at an ask.
type specChange struct {
	before, after func(context.Context, *kit.Tally) error
	diff          []string // lines of the diff, nil if the change is fine
	ran           string   // what ran in the new code, if it is fine
}

// specSeq runs leaves one after the other; "?x" asks.
func specSeq(names ...string) func(context.Context, *kit.Tally) error {
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

// specIn runs something inside a scope, step or branch.
func specIn(frame, name string, fn func(context.Context, *kit.Tally) error) func(context.Context, *kit.Tally) error {
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

// specThen runs functions one after the other.
func specThen(fns ...func(context.Context, *kit.Tally) error) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error {
		for _, fn := range fns {
			if err := fn(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

func specOpt(name string, opts ...perdure.StepOption) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error { return c.OK(ctx, name, opts...) }
}

func specDrop(names ...string) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, _ *kit.Tally) error { return perdure.Dropped(ctx, names...) }
}

func specGroup(branches ...string) func(context.Context, *kit.Tally) error {
	return func(ctx context.Context, c *kit.Tally) error {
		g := perdure.NewGroup(ctx)
		for _, name := range branches {
			g.Go(name, func(ctx context.Context) error { return c.OK(ctx, "in "+name) })
		}
		return g.Wait()
	}
}

var specChanges = map[string]specChange{
	"inserted":       {specSeq("a", "?ok"), specSeq("a", "new", "?ok"), []string{"in /:", `  step "a"`, `- ask "ok"`, `+ step "new"`}, ""},
	"inserted first": {specSeq("a", "?ok"), specSeq("new", "a", "?ok"), []string{`- step "a"`, `- ask "ok"`, `+ step "new"`}, ""},
	"removed":        {specSeq("a", "b", "?ok"), specSeq("a", "?ok", "end"), []string{`- step "b"`, `+ step "end"`}, ""},
	"removed last":   {specSeq("a", "?ok"), specSeq("a"), []string{`- ask "ok"`, "+ return"}, ""},
	"renamed":        {specSeq("a", "?ok"), specSeq("b", "?ok"), []string{`- step "a"`, `+ step "b"`}, ""},
	"another verb": {specSeq("a", "?ok"), specThen(func(ctx context.Context, _ *kit.Tally) error {
		return perdure.Sleep(ctx, "a", time.Second)
	}, specSeq("?ok")), []string{"at /a:", "- recorded: step", "+ the code: sleep"}, ""},
	"ask became step": {specSeq("a", "?ok"), specSeq("a", "ok"), []string{"at /ok:", "- recorded: ask", "+ the code: step"}, ""},
	"another input": {specThen(specOpt("a", perdure.Input(1)), specSeq("?ok")), specThen(specOpt("a", perdure.Input(2)), specSeq("?ok")),
		[]string{"at /a:", "- recorded: input", "+ the code: input"}, ""},
	"in a scope":   {specIn("scope", "s", specSeq("a", "?ok")), specIn("scope", "s", specSeq("new", "a", "?ok")), []string{"in /s:", `+ step "new"`}, ""},
	"in a step":    {specIn("step", "s", specSeq("a", "?ok")), specIn("step", "s", specSeq("new", "a", "?ok")), []string{"in /s:", `+ step "new"`}, ""},
	"in a branch":  {specIn("branch", "s", specSeq("a", "?ok")), specIn("branch", "s", specSeq("new", "a", "?ok")), []string{"in /s:", `+ step "new"`}, ""},
	"scope leaves": {specIn("scope", "s", specSeq("a", "?ok")), specIn("scope", "s", specSeq("a")), []string{"in /s:", `- ask "ok"`, "+ return"}, ""},
	"a scope came": {specSeq("a", "?ok"), specThen(specIn("scope", "s", specSeq("new")), specSeq("a", "?ok")), []string{`- step "a"`}, ""},
	"a scope went": {specThen(specIn("scope", "s", specSeq("a")), specSeq("?ok")), specSeq("?ok", "end"), []string{`- scope "s"`, `+ step "end"`}, ""},
	"branch went":  {specThen(specGroup("a", "b"), specSeq("?ok")), specThen(specGroup("a"), specSeq("?ok")), []string{`- branch "b"`, "+ return"}, ""},
	"branch became step": {specThen(specGroup("a"), specSeq("?ok")), specThen(specIn("step", "a", specSeq("in a")), specSeq("?ok")),
		[]string{"at /a:", "- recorded: a branch of a group", "+ the code: step"}, ""},
	"step became branch": {specThen(specIn("step", "a", specSeq("in a")), specSeq("?ok")), specThen(specGroup("a"), specSeq("?ok")),
		[]string{"at /a:", "- recorded: step", "+ the code: a branch of a group"}, ""},

	"nothing":              {specSeq("a", "?ok"), specSeq("a", "?ok"), nil, ""},
	"appended":             {specSeq("a", "?ok"), specSeq("a", "?ok", "new"), nil, "new"},
	"reordered":            {specSeq("a", "b", "c", "?ok"), specSeq("c", "?ok", "a", "b"), nil, ""},
	"reordered, then":      {specSeq("a", "b", "?ok"), specSeq("b", "a", "?ok", "new"), nil, "new"},
	"Added":                {specSeq("a", "?ok"), specThen(specOpt("new", perdure.Added()), specSeq("a", "?ok")), nil, "new"},
	"appended in a scope":  {specThen(specIn("scope", "s", specSeq("a")), specSeq("?ok")), specThen(specIn("scope", "s", specSeq("a", "new")), specSeq("?ok")), nil, "new"},
	"appended in a branch": {specThen(specIn("branch", "s", specSeq("a")), specSeq("?ok")), specThen(specIn("branch", "s", specSeq("a", "new")), specSeq("?ok")), nil, "new"},
	"Added in a branch":    {specSeq("a", "?ok"), specThen(specIn("branch", "s", specOpt("new", perdure.Added())), specSeq("a", "?ok")), nil, "new"},
	"Dropped":              {specSeq("a", "b", "?ok"), specThen(specSeq("a"), specDrop("b"), specSeq("?ok", "end")), nil, "end"},
	"Dropped ask":          {specSeq("a", "?ok"), specThen(specDrop("ok"), specSeq("a", "end")), nil, "end"},
	"Renamed":              {specSeq("a", "?ok"), specThen(specOpt("b", perdure.Renamed("a")), specSeq("?ok")), nil, ""},
	"Renamed composite":    {specThen(specIn("step", "s", specSeq("a")), specSeq("?ok")), specThen(specOpt("new s", perdure.Renamed("s")), specSeq("?ok")), nil, ""},
	"Renamed, not there":   {specSeq("?ok"), specThen(specSeq("?ok"), specOpt("b", perdure.Renamed("a"))), nil, "b"},
	"swapped by Renamed":   {specSeq("a", "b", "?ok"), specThen(specOpt("x", perdure.Renamed("a")), specOpt("y", perdure.Renamed("b")), specSeq("?ok")), nil, ""},
	"in a finished step":   {specThen(specIn("step", "s", specSeq("a", "b")), specSeq("?ok")), specThen(specIn("step", "s", specSeq("x", "y", "z")), specSeq("?ok")), nil, ""},
	"branches swapped":     {specThen(specGroup("a", "b"), specSeq("?ok")), specThen(specGroup("b", "a"), specSeq("?ok")), nil, ""},
	"branch Dropped":       {specThen(specGroup("a", "b"), specSeq("?ok")), specThen(specGroup("a"), specDrop("b"), specSeq("?ok")), nil, ""},
	"empty branch came":    {specThen(specGroup("a"), specSeq("?ok")), specThen(specIn("branch", "new", specSeq()), specGroup("a"), specSeq("?ok")), nil, ""},
	"same input":           {specThen(specOpt("a", perdure.Input(1)), specSeq("?ok")), specThen(specOpt("a", perdure.Input(1)), specSeq("?ok")), nil, ""},
	"input said":           {specSeq("a", "?ok"), specThen(specOpt("a", perdure.Input(1)), specSeq("?ok")), nil, ""},
	"scope became step":    {specThen(specIn("scope", "s", specSeq("a")), specIn("scope", "t", specSeq("?ok"))), specThen(specIn("scope", "s", specSeq("a")), specIn("step", "t", specSeq("?ok"))), nil, ""},
}

func TestAChangeOfTheCodeBlocksTheRunOrIsFine(t *testing.T) {
	for what, change := range specChanges {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
					if !specHasLine(lines, want) {
						t.Errorf("the diff lacks %q:\n%s", want, run.Diff)
					}
				}
				if _, err := perdure.Output[struct{}](run); !errors.Is(err, perdure.ErrBlocked) || !strings.Contains(err.Error(), run.Diff) {
					t.Errorf("Output: %v", err)
				}
			})
		})
	}
}

func specHasLine(lines []string, want string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, want) {
			return true
		}
	}
	return false
}

// specBlocked returns a store with a run on thread t that version v2 is
// blocked at: v1 has steps a, ask ok, b; v2 has x before them.
func specBlocked(t *testing.T, c *kit.Tally) (store.Store, *kit.Kit) {
	t.Helper()
	inner := memstore.New()
	k := kit.New(t, inner, perdure.Options{Version: "v1"}, kit.FlowOf(func(ctx context.Context) error { return specSeq("a", "?ok", "b")(ctx, c) }))
	k.StartOn("t", "f", struct{}{})
	run := k.WaitFor("t", perdure.Suspended)
	k.Stop()
	k.AnswerYes(run, "/ok")
	k = kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error { return specSeq("x", "a", "?ok", "b")(ctx, c) }))
	k.WaitFor("t", perdure.Blocked)
	return inner, k
}

func TestABlockedRunIsClaimedByAnotherVersionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner, k := specBlocked(t, &c)
		claims := k.KindsOf("t")["claimed"]
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := k.KindsOf("t")["claimed"]; n != claims {
			t.Errorf("the version that is blocked claimed the run %d times more", n-claims)
		}
		// The old code comes back beside the new one.
		kit.New(t, inner, perdure.Options{Version: "v1"}, kit.FlowOf(func(ctx context.Context) error { return specSeq("a", "?ok", "b")(ctx, &c) }))
		specEndOf(k, perdure.Succeeded)
		if c.Of("a") != 1 || c.Of("b") != 1 || c.Of("x") != 0 {
			t.Errorf("ran %v", c.All())
		}
	})
}

// specEndOf is specEnd for a run that is blocked first.
func specEndOf(k *kit.Kit, want perdure.Status) *perdure.Run {
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
		inner, k := specBlocked(t, &c)
		k.Stop()
		k = kit.New(t, inner, perdure.Options{Version: "v3"}, kit.FlowOf(func(ctx context.Context) error {
			return specThen(specOpt("x", perdure.Added()), specSeq("a", "?ok", "b"))(ctx, &c)
		}))
		specEndOf(k, perdure.Succeeded)
		if c.Of("a") != 1 || c.Of("b") != 1 || c.Of("x") != 1 {
			t.Errorf("ran %v", c.All())
		}
	})
}

func TestRetryLiftsABlockForTheSameVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner, k := specBlocked(t, &c)
		if err := k.Retry(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.WaitFor("t", perdure.Blocked) // the code is as it was
		k.Stop()
		k = kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error { return specSeq("a", "?ok", "b")(ctx, &c) }))
		if err := k.Retry(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.WaitFor("t", perdure.Succeeded)
		if c.Of("a") != 1 || c.Of("x") != 0 {
			t.Errorf("ran %v", c.All())
		}
	})
}

func TestABlockedRunIsCancelledWithoutRunningCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		_, k := specBlocked(t, &c)
		k.Stop() // nobody is there to run code
		before := c.All()
		if err := k.Cancel(t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		run := k.WaitFor("t", perdure.Cancelled)
		if _, err := perdure.Output[struct{}](run); !errors.Is(err, perdure.ErrCancelled) {
			t.Errorf("Output: %v", err)
		}
		if len(before) != len(c.All()) || k.KindsOf("t")["ended"] != 1 {
			t.Errorf("ran %v:\n%s", c.All(), k.Trace("t"))
		}
	})
}

func TestWorkersClaimOnlyFlowsTheyHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		other := perdure.NewFlow("g", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
		flow := kit.FlowOf(func(context.Context) error { return nil })
		rt, err := perdure.New(t.Context(), inner, perdure.Options{}, flow)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "f", Thread: "t", Input: struct{}{}}); err != nil {
			t.Fatal(err)
		}
		k := kit.New(t, inner, perdure.Options{}, other)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if run, err := k.GetRun(t.Context(), "t", ""); err != nil || run.Status != perdure.Queued {
			t.Fatalf("without the flow the run is %+v, %v", run, err)
		}
		if _, err := k.Start(t.Context(), perdure.StartRequest{Flow: "f", Thread: "t", Input: struct{}{}}); !errors.Is(err, perdure.ErrNoFlow) {
			t.Errorf("starting a flow that is not there: %v", err)
		}
		k = kit.New(t, inner, perdure.Options{}, flow)
		k.WaitFor("t", perdure.Succeeded)
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
		if err := k.Cancel(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if run = k.WaitFor("t", perdure.Cancelled); len(run.Unknown) != 1 || run.Unknown[0] != "/pay" {
			t.Errorf("unknown outcomes %v", run.Unknown)
		}
	})
}

// A branch that is not there yet when another goes on is not divergence: only
// Wait can tell.
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
		_, k := specBlocked(t, &c)
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

// Only Wait can tell that a branch is new, and nothing of it runs before, so
// that the old code can still go on.
func TestANewBranchBeforeRecordedStepsBlocksBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		var c kit.Tally
		old := kit.FlowOf(func(ctx context.Context) error { return specThen(specGroup("a"), specSeq("?ok"))(ctx, &c) })
		k := kit.New(t, inner, perdure.Options{Version: "v1"}, old)
		k.StartOn("t", "f", struct{}{})
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k = kit.New(t, inner, perdure.Options{Version: "v2"}, kit.FlowOf(func(ctx context.Context) error {
			return specThen(specGroup("new", "a"), specSeq("?ok", "end"))(ctx, &c)
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
		specEndOf(k, perdure.Succeeded)
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
