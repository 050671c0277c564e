package perdure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// specChange is a change of a flow's code while a run of it waits at an ask.
type specChange struct {
	before, after func(context.Context, *specTally) error
	diff          []string // lines of the diff, nil if the change is fine
	ran           string   // what ran in the new code, if it is fine
}

// specSeq runs leaves one after the other; "?x" asks.
func specSeq(names ...string) func(context.Context, *specTally) error {
	return func(ctx context.Context, c *specTally) error {
		for _, name := range names {
			var err error
			if ask, ok := strings.CutPrefix(name, "?"); ok {
				err = specAsk(ctx, ask)
			} else {
				err = c.ok(ctx, name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// specIn runs something inside a scope, step or branch.
func specIn(frame, name string, fn func(context.Context, *specTally) error) func(context.Context, *specTally) error {
	return func(ctx context.Context, c *specTally) error {
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
func specThen(fns ...func(context.Context, *specTally) error) func(context.Context, *specTally) error {
	return func(ctx context.Context, c *specTally) error {
		for _, fn := range fns {
			if err := fn(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

func specOpt(name string, opts ...perdure.StepOption) func(context.Context, *specTally) error {
	return func(ctx context.Context, c *specTally) error { return c.ok(ctx, name, opts...) }
}

func specDrop(names ...string) func(context.Context, *specTally) error {
	return func(ctx context.Context, _ *specTally) error { return perdure.Dropped(ctx, names...) }
}

func specGroup(branches ...string) func(context.Context, *specTally) error {
	return func(ctx context.Context, c *specTally) error {
		g := perdure.NewGroup(ctx)
		for _, name := range branches {
			g.Go(name, func(ctx context.Context) error { return c.ok(ctx, "in "+name) })
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
	"another verb": {specSeq("a", "?ok"), specThen(func(ctx context.Context, _ *specTally) error {
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
				var old, now specTally
				k := newKit(t, inner, perdure.Options{Version: "v1"}, specFlow(func(ctx context.Context) error { return change.before(ctx, &old) }))
				k.start("t", "f", struct{}{})
				run := k.wait("t", perdure.Suspended)
				k.stop()
				k = newKit(t, inner, perdure.Options{Version: "v2"}, specFlow(func(ctx context.Context) error { return change.after(ctx, &now) }))
				k.yes(run, run.Asks[0].Path)
				if change.diff == nil {
					k.wait("t", perdure.Succeeded)
					all := now.all()
					delete(all, change.ran)
					if len(all) > 0 || change.ran != "" && now.of(change.ran) != 1 {
						t.Errorf("the new code ran %v, want %q once", now.all(), change.ran)
					}
					return
				}
				run = k.wait("t", perdure.Blocked)
				if len(now.all()) != 0 {
					t.Errorf("something ran before the run was blocked: %v", now.all())
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
func specBlocked(t *testing.T, c *specTally) (store.Store, *kit) {
	t.Helper()
	inner := memstore.New()
	k := newKit(t, inner, perdure.Options{Version: "v1"}, specFlow(func(ctx context.Context) error { return specSeq("a", "?ok", "b")(ctx, c) }))
	k.start("t", "f", struct{}{})
	run := k.wait("t", perdure.Suspended)
	k.stop()
	k.yes(run, "/ok")
	k = newKit(t, inner, perdure.Options{Version: "v2"}, specFlow(func(ctx context.Context) error { return specSeq("x", "a", "?ok", "b")(ctx, c) }))
	k.wait("t", perdure.Blocked)
	return inner, k
}

func TestABlockedRunIsClaimedByAnotherVersionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner, k := specBlocked(t, &c)
		claims := k.kinds("t")["claimed"]
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := k.kinds("t")["claimed"]; n != claims {
			t.Errorf("the version that is blocked claimed the run %d times more", n-claims)
		}
		// The old code comes back beside the new one.
		newKit(t, inner, perdure.Options{Version: "v1"}, specFlow(func(ctx context.Context) error { return specSeq("a", "?ok", "b")(ctx, &c) }))
		specEndOf(k, perdure.Succeeded)
		if c.of("a") != 1 || c.of("b") != 1 || c.of("x") != 0 {
			t.Errorf("ran %v", c.all())
		}
	})
}

// specEndOf is specEnd for a run that is blocked first.
func specEndOf(k *kit, want perdure.Status) *perdure.Run {
	k.t.Helper()
	k.until("the run is taken up", func() bool {
		run, err := k.GetRun(k.t.Context(), "t", "")
		return err == nil && run.Status != perdure.Blocked
	})
	return k.ends("t", want)
}

func TestABlockedRunGoesOnWithAMendedVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner, k := specBlocked(t, &c)
		k.stop()
		k = newKit(t, inner, perdure.Options{Version: "v3"}, specFlow(func(ctx context.Context) error {
			return specThen(specOpt("x", perdure.Added()), specSeq("a", "?ok", "b"))(ctx, &c)
		}))
		specEndOf(k, perdure.Succeeded)
		if c.of("a") != 1 || c.of("b") != 1 || c.of("x") != 1 {
			t.Errorf("ran %v", c.all())
		}
	})
}

func TestRetryLiftsABlockForTheSameVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner, k := specBlocked(t, &c)
		if err := k.Retry(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.wait("t", perdure.Blocked) // the code is as it was
		k.stop()
		k = newKit(t, inner, perdure.Options{Version: "v2"}, specFlow(func(ctx context.Context) error { return specSeq("a", "?ok", "b")(ctx, &c) }))
		if err := k.Retry(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.wait("t", perdure.Succeeded)
		if c.of("a") != 1 || c.of("x") != 0 {
			t.Errorf("ran %v", c.all())
		}
	})
}

func TestABlockedRunIsCancelledWithoutRunningCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		_, k := specBlocked(t, &c)
		k.stop() // nobody is there to run code
		before := c.all()
		if err := k.Cancel(t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		run := k.wait("t", perdure.Cancelled)
		if _, err := perdure.Output[struct{}](run); !errors.Is(err, perdure.ErrCancelled) {
			t.Errorf("Output: %v", err)
		}
		if len(before) != len(c.all()) || k.kinds("t")["ended"] != 1 {
			t.Errorf("ran %v:\n%s", c.all(), k.trace("t"))
		}
	})
}

func TestWorkersClaimOnlyFlowsTheyHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		other := perdure.NewFlow("g", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
		flow := specFlow(func(context.Context) error { return nil })
		rt, err := perdure.New(t.Context(), inner, perdure.Options{}, flow)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "f", Thread: "t", Input: struct{}{}}); err != nil {
			t.Fatal(err)
		}
		k := newKit(t, inner, perdure.Options{}, other)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if run, err := k.GetRun(t.Context(), "t", ""); err != nil || run.Status != perdure.Queued {
			t.Fatalf("without the flow the run is %+v, %v", run, err)
		}
		if _, err := k.Start(t.Context(), perdure.StartRequest{Flow: "f", Thread: "t", Input: struct{}{}}); !errors.Is(err, perdure.ErrNoFlow) {
			t.Errorf("starting a flow that is not there: %v", err)
		}
		k = newKit(t, inner, perdure.Options{}, flow)
		k.wait("t", perdure.Succeeded)
	})
}

// An at-most-once step whose start is recorded must not lose its care.
func TestAStartedAtMostOnceStepCannotBecomeAPlainOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered := memstore.New(), make(chan bool, 1)
		m := newSpecMortal(t, inner, perdure.Options{Version: "v1"}, specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				entered <- true
				<-ctx.Done()
				return 0, ctx.Err()
			}, specAtMostOnce()...)
			return err
		}))
		m.start("t", "f", struct{}{})
		<-entered
		m.die()
		var c specTally
		k := newKit(t, inner, perdure.Options{Version: "v2"}, specFlow(func(ctx context.Context) error { return c.ok(ctx, "pay") }))
		run := k.wait("t", perdure.Blocked)
		if c.of("pay") != 0 || !strings.Contains(run.Diff, "at-most-once") {
			t.Errorf("it ran %d times: %s", c.of("pay"), run.Diff)
		}
		if err := k.Cancel(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if run = k.wait("t", perdure.Cancelled); len(run.Unknown) != 1 || run.Unknown[0] != "/pay" {
			t.Errorf("unknown outcomes %v", run.Unknown)
		}
	})
}

// A branch that is not there yet when another goes on is not divergence: only
// Wait can tell.
func TestBranchesAreJudgedAtWaitNotAtGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		k, run := specOnce(t, perdure.Suspended, func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for _, name := range []string{"a", "b", "c"} {
				g.Go(name, func(ctx context.Context) error {
					if err := specAsk(ctx, "one"); err != nil {
						return err
					}
					if err := c.ok(ctx, "new in "+name); err != nil {
						return err
					}
					return specAsk(ctx, "two")
				})
				time.Sleep(time.Second) // the branch before is far ahead
			}
			return g.Wait()
		})
		for _, path := range []string{"/c/one", "/a/one", "/b/one", "/b/two", "/c/two", "/a/two"} {
			k.yes(run, path)
			if path != "/a/two" {
				run = k.wait("t", perdure.Suspended)
			}
		}
		k.wait("t", perdure.Succeeded)
		for name, n := range c.all() {
			if n != 1 {
				t.Errorf("%q ran %d times", name, n)
			}
		}
	})
}

// A blocked run can be looked at: the diff is in its event.
func TestTheBlockedEventCarriesTheDiff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		_, k := specBlocked(t, &c)
		found := false
		for _, e := range k.events("t") {
			if e.Kind == "blocked" {
				found = strings.Contains(e.Diff, `+ step "x"`)
			}
		}
		if !found {
			t.Errorf("the journal is\n%s", k.trace("t"))
		}
	})
}

// Only Wait can tell that a branch is new, and nothing of it runs before, so
// that the old code can still go on.
func TestANewBranchBeforeRecordedStepsBlocksBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		var c specTally
		old := specFlow(func(ctx context.Context) error { return specThen(specGroup("a"), specSeq("?ok"))(ctx, &c) })
		k := newKit(t, inner, perdure.Options{Version: "v1"}, old)
		k.start("t", "f", struct{}{})
		run := k.wait("t", perdure.Suspended)
		k.stop()
		k = newKit(t, inner, perdure.Options{Version: "v2"}, specFlow(func(ctx context.Context) error {
			return specThen(specGroup("new", "a"), specSeq("?ok", "end"))(ctx, &c)
		}))
		k.yes(run, "/ok")
		run = k.wait("t", perdure.Blocked)
		if !strings.Contains(run.Diff, `- ask "ok"`) || !strings.Contains(run.Diff, `+ step "new/`) {
			t.Errorf("the diff is\n%s", run.Diff)
		}
		if len(c.all()) != 1 {
			t.Errorf("ran %v before it was blocked", c.all())
		}
		k.stop()
		k = newKit(t, inner, perdure.Options{Version: "v1"}, old)
		specEndOf(k, perdure.Succeeded)
	})
}

// TestABlockKeepsWhatOtherBranchesHaveBegun: a branch that no longer fits may be
// found when another has begun a step. It is finished and recorded, so that it
// does not run again once the code fits.
func TestABlockKeepsWhatOtherBranchesHaveBegun(t *testing.T) {
	for _, opts := range [][]perdure.StepOption{nil, {perdure.AtMostOnce(), perdure.Timeout(time.Minute)}} {
		synctest.Test(t, func(t *testing.T) {
			var c specTally
			flow := func(first string) perdure.Flow {
				return specFlow(func(ctx context.Context) error {
					paying := make(chan struct{})
					g := perdure.NewGroup(ctx)
					g.Go("x", func(ctx context.Context) error {
						if first != "recorded" {
							<-paying
						}
						return c.ok(ctx, first)
					})
					g.Go("y", func(ctx context.Context) error {
						if err := specAsk(ctx, "gate"); err != nil {
							return err
						}
						if _, err := perdure.Step(ctx, "pay", func(context.Context) (int, error) {
							close(paying)
							time.Sleep(5 * time.Second)
							return c.hit("pay"), nil
						}, opts...); err != nil {
							return err
						}
						return c.ok(ctx, "after")
					})
					return g.Wait()
				})
			}
			s := memstore.New()
			k := newKit(t, s, perdure.Options{Version: "1"}, flow("recorded"))
			k.start("t", "f", struct{}{})
			run := k.wait("t", perdure.Suspended)
			k.stop()
			k.yes(run, "/y/gate")
			k = newKit(t, s, perdure.Options{Version: "2"}, flow("renamed"))
			run = k.wait("t", perdure.Blocked)
			k.stop()
			if c.of("pay") != 1 || c.of("after") != 0 || c.of("renamed") != 0 || !strings.Contains(run.Diff, `+ step "renamed"`) {
				t.Errorf("%v ran; %s", c.all(), run.Diff)
			}
			k.hasLines("step /y/pay 1")
			k = newKit(t, s, perdure.Options{Version: "3"}, flow("recorded"))
			k.ends("t", perdure.Succeeded)
			if c.of("pay") != 1 || c.of("after") != 1 || c.of("recorded") != 1 {
				t.Errorf("%v ran in the end", c.all())
			}
		})
	}
}
