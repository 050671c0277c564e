package proof_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"pgregory.net/rapid"
)

// TestRandomFlowsSurviveCrashes generates flows as data and plays each one
// twice: undisturbed, and with workers that crash, stop and meet a store that
// fails, while answers and signals come in any order. Both must end alike:
//   - status, output, error, state, facts, deps and what was spent are equal;
//   - the outcomes in the journal are equal, as a multiset: no step is recorded
//     twice, and none is missing;
//   - the same attempts of leaf steps were executed, each once, and once more
//     for each worker that crashed with it; none is executed when its outcome
//     was recorded, or after the run was sealed;
//   - an at-most-once effect happened as often as undisturbed, at most once;
//   - what flow code reads (state, Now, Key) is the same in every pass.
//
// Some runs are cancelled. They must end, and all that does not depend on how
// far they came holds for them too.
func TestRandomFlowsSurviveCrashes(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		seen := randomFlows(t, inMemory, kit.Sized(125, 250, 5000)) // with -short, rapid checks a fifth
		if !t.Failed() && !testing.Short() {                        // which plays too few for all that is to be met
			seen.check(t)
		}
	})
	t.Run("postgres", func(t *testing.T) { randomFlows(t, kit.Postgres(t), kit.Sized(25, 100, 1000)) })
	t.Run("redis", func(t *testing.T) { randomFlows(t, kit.Redis(t), kit.Sized(25, 100, 1000)) })
	t.Run("nats", func(t *testing.T) { randomFlows(t, kit.At(natstest.Volatile)(t), kit.Sized(25, 50, 1000)) })
	t.Run("s3", func(t *testing.T) { randomFlows(t, kit.At(s3test.Empty)(t), kit.Sized(25, 50, 1000)) })
}

func inMemory() store.Store { return memstore.New() }

// randomFlows checks flows on stores that create makes.
func randomFlows(t *testing.T, create func() store.Store, checks int) *coverage {
	// The same flows every time, so that all that is to be met is met; under
	// torture others each time. Flags given by hand win.
	seed := "1"
	if os.Getenv("PERDURE_TORTURE") != "" {
		seed = "0"
	}
	for name, value := range map[string]string{"rapid.checks": fmt.Sprint(checks), "rapid.seed": seed} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			kit.SetFlag(t, name, value)
		}
	}
	kit.SetFlag(t, "rapid.nofailfile", "true")
	seen := &coverage{}
	rapid.Check(t, func(rt *rapid.T) {
		p, c := drawProgram(rt), drawChaos(rt)
		var want, got *outcome
		synctest.Test(t, func(*testing.T) { want = play(create(), p, chaos{Slots: [][]cut{nil}}, &coverage{}) })
		c.aim(want.appends, want.leaves, want.took)
		synctest.Test(t, func(*testing.T) { got = play(create(), p, c, seen) })
		for what, o := range map[string]*outcome{"undisturbed": want, "disturbed": got} {
			if len(o.bad) > 0 {
				rt.Fatalf("%s: %s\n%s%s%s", what, strings.Join(o.bad, "\n"), p, c, o.journal)
			}
		}
		if got.ends.Status == string(perdure.Cancelled) {
			seen.meet("cancelled run")
			return // how far it came is a matter of time
		}
		if d := cmp.Diff(want.ends, got.ends); d != "" {
			rt.Fatalf("the disturbed run ends otherwise (-undisturbed +disturbed):\n%s\n%s%s--- undisturbed\n%s--- disturbed\n%s", d, p, c, want.journal, got.journal)
		}
	})
	return seen
}

// TestFixedFlowsSurviveEveryCrash plays flows that are easily got wrong, with
// a crash at every append and in every leaf.
func TestFixedFlowsSurviveEveryCrash(t *testing.T) {
	t.Run("memory", func(t *testing.T) { fixedFlows(t, inMemory, kit.Sized(6, 1, 1)) })
	t.Run("postgres", func(t *testing.T) { fixedFlows(t, kit.Postgres(t), kit.Sized(48, 3, 1)) })
	t.Run("redis", func(t *testing.T) { fixedFlows(t, kit.Redis(t), kit.Sized(48, 3, 1)) })
	t.Run("nats", func(t *testing.T) { fixedFlows(t, kit.At(natstest.Volatile)(t), kit.Sized(48, 12, 1)) })
	t.Run("s3", func(t *testing.T) { fixedFlows(t, kit.At(s3test.Empty)(t), kit.Sized(48, 12, 1)) })
}

// fixedFlows plays flows on stores that create makes, with every n-th crash.
func fixedFlows(t *testing.T, create func() store.Store, every int) {
	leaf := func(name string, n int, acts ...string) op {
		return op{Kind: "leaf", Name: name, N: n, Acts: acts, Mode: "error"}
	}
	fails := func(name string, rounds int, mode string) op {
		return op{Kind: "leaf", Name: name, N: 1, Mode: mode, FailOwn: 1, Rounds: rounds, Acts: []string{"counter", "spend"}}
	}
	for name, ops := range map[string][]op{
		"a scope without records": {{Kind: "scope", Name: "s", Body: []op{{Kind: "read", Name: "r"}}}, leaf("a", 1), leaf("b", 1)},
		"a dep of the root in one branch": {leaf("a", 1, "dep"), {Kind: "group", Name: "g", Branches: [][]op{
			{leaf("x", 5, "dep", "nap")}, {leaf("y", 1, "nap"), leaf("z", 1, "nap"), leaf("w", 9, "nap")}}}, leaf("b", 2, "dep")},
		"a dep beside a long leaf": {{Kind: "group", Name: "g", Branches: [][]op{
			{{Kind: "sleep", Name: "s", N: 6}, leaf("w", 9, "nap"), leaf("x", 9, "dep", "node", "nap")}, {leaf("y", 1, "long", "exact")}}}, leaf("b", 2, "dep")},
		"branches that fail in a composite": {{Kind: "composite", Name: "c", Tries: 3, Wait: 3 * time.Second, Body: []op{leaf("p", 1, "counter"), {Kind: "group", Name: "g", Branches: [][]op{
			{leaf("x", 5, "counter"), fails("f", 1, "error")},
			{{Kind: "ask", Name: "q"}, fails("f", 2, "panic")},
			{{Kind: "composite", Name: "d", Tries: 2, Wait: time.Second, Body: []op{leaf("l", 1, "list"), fails("f", 1, "error")}}, {Kind: "once", Name: "o", N: 3, Mode: "unsure"}},
		}}, {Kind: "read", Name: "r"}}}},
		"groups in groups": {{Kind: "group", Name: "g", Branches: [][]op{
			{{Kind: "group", Name: "h", Branches: [][]op{{{Kind: "ask", Name: "q"}, leaf("x", 5, "counter", "dep")}, {{Kind: "sleep", Name: "s", N: 9}, leaf("l", 1, "list", "shared")}}},
				leaf("x", 5, "counter", "dep"), {Kind: "read", Name: "r"}},
			{{Kind: "receive", Name: "q"}, leaf("l", 1, "list", "nap", "shared"), {Kind: "once", Name: "o", N: 3, Mode: "ask"}},
		}}, {Kind: "read", Name: "r"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := program{Ops: ops}
			var want, got *outcome
			synctest.Test(t, func(*testing.T) { want = play(create(), p, chaos{Slots: [][]cut{nil}}, &coverage{}) })
			if len(want.bad) > 0 {
				t.Fatalf("undisturbed: %s\n%s", strings.Join(want.bad, "\n"), want.journal)
			}
			for i, how := range []string{"append before", "append after", "leaf"} {
				for n := 1 + i*every/3; n <= want.appends; n += every {
					c := chaos{Slots: [][]cut{{{How: how, n: n}}}}
					synctest.Test(t, func(*testing.T) { got = play(create(), p, c, &coverage{}) })
					if d := cmp.Diff(want.ends, got.ends); d != "" || len(got.bad) > 0 {
						t.Fatalf("crash %s %d: %s\n%s\n%s", how, n, strings.Join(got.bad, "\n"), d, got.journal)
					}
				}
			}
		})
	}
}

// coverage counts what was met over all runs.
type coverage struct {
	mu  sync.Mutex
	met map[string]int
}

func (c *coverage) meet(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.met == nil {
		c.met = map[string]int{}
	}
	c.met[what]++
}

// check fails the test if something was never met.
func (c *coverage) check(t *testing.T) {
	t.Logf("met: %v", c.met)
	for _, what := range []string{
		"leaf", "retried leaf", "once reconcile", "once ask", "once unsure", "once unsure-ask", "once fail", "ask", "silent-ask", "sleep", "receive",
		"silent-receive", "take", "emit", "plan", "read", "fail", "cleanup", "scope", "composite", "retried composite", "group",
		"counter", "list", "result", "edit", "edit-own", "replace", "drop-text", "fact", "set", "delete", "spend", "dep", "exact", "shared", "node", "now", "key", "nap", "long", "big", "text", "delta", "input",
		"mode error", "mode panic", "mode permanent", "mode timeout", "retried run", "cancelled run", "steered run", "over budget",
		"crash", "crash in scope", "crash in composite", "crash in branch", "crash in leaf", "stopped worker", "reconciled after a crash", "leaf executed again",
	} {
		if c.met[what] == 0 {
			t.Errorf("never met: %s", what)
		}
	}
}

// ends is what both plays of a program must agree on.
type ends struct {
	Status, Output, Error string
	Runs                  []string // statuses, also of steering that nobody took
	State, Facts, Deps    map[string]string
	Spent                 map[string]int64
	Steps                 int
	Events                []string // outcomes, sorted: branches commit in any order
	Leaves                []string // attempts that were executed
	Effects               map[string]int
}

// outcome is what came of a play.
type outcome struct {
	ends            ends
	model           model
	bad             []string
	journal         string
	appends, leaves int
	took            time.Duration
}

const thread = "t"

// patience is how long a play may take, in virtual time.
const patience = 30 * time.Minute

// play runs a program to its end on an empty store. It is called in a bubble of its
// own.
func play(inner store.Store, p program, c chaos, cover *coverage) *outcome {
	w := &world{cover: cover, execs: map[string]map[*life]int{}, recorded: map[string]bool{}, effects: map[string]int{},
		seen: map[string]string{}, keys: map[string]string{}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	first := &life{world: w, program: p, inside: map[string]int{}, current: map[string]string{}}
	ctl, err := perdure.New(ctx, inner, perdure.Options{Version: "test"}, first.flow())
	if err != nil {
		return &outcome{bad: []string{err.Error()}}
	}
	d := &driver{Runtime: ctl, world: w, program: p, noise: c.Noise, random: rand.New(rand.NewPCG(c.Seed, 1)), inputs: p.signals(), cancel: c.cancel}
	if err := d.begin(ctx); err != nil {
		return &outcome{bad: []string{err.Error()}}
	}
	working, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for slot, cuts := range c.Slots {
		workers.Go(func() { w.slot(working, inner, p, cuts, c.Seed+uint64(slot)) })
	}
	if err := d.drive(ctx); err != nil {
		w.wrong("%v", err)
	}
	stop()
	workers.Wait()
	return d.outcome()
}

// slot runs workers one after the other: each is cut as planned, and the last
// one works on until the play is over.
func (w *world) slot(ctx context.Context, inner store.Store, p program, cuts []cut, seed uint64) {
	var gone sync.WaitGroup
	defer gone.Wait()
	for i, c := range append(slices.Clone(cuts), cut{}) {
		over := make(chan struct{}, 2)
		gone.Go(func() {
			w.work(ctx, inner, p, c, seed+uint64(i)<<8, func() {
				if c.Overlap {
					over <- struct{}{}
				}
			})
			over <- struct{}{}
		})
		<-over
		time.Sleep(c.Delay)
		if ctx.Err() != nil {
			return
		}
	}
}

// work is the life of one worker.
func (w *world) work(ctx context.Context, inner store.Store, p program, c cut, seed uint64, onCrash func()) {
	l := &life{world: w, program: p, cut: c, inside: map[string]int{}, current: map[string]string{}}
	plan := func(faulty.Call) faulty.Fault { return faulty.None }
	if c.Flaky {
		plan = faulty.Random(seed, faulty.Rate{Fault: faulty.FailBefore, P: 0.03}, faulty.Rate{Fault: faulty.FailAfter, P: 0.03}, faulty.Rate{Fault: faulty.Conflict, P: 0.03})
	}
	writes := 0
	s := faulty.New(inner, func(call faulty.Call) faulty.Fault {
		op, when, _ := strings.Cut(c.How, " ")
		if when != "" && (op == "append" && call.Op == store.OpAppend || op == "write" && call.W > 0) {
			writes++
		}
		switch {
		case l.killed.Load(), when == "before" && writes == c.n:
			return faulty.CrashBefore
		case when == "after" && writes == c.n:
			return faulty.CrashAfter
		}
		return plan(call)
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.OnCrash(func() {
		l.crash()
		cancel()
		onCrash()
	})
	switch c.How {
	case "stop":
		defer time.AfterFunc(c.after, func() {
			w.cover.meet("stopped worker")
			cancel()
		}).Stop()
	case "kill":
		defer time.AfterFunc(c.after, func() { l.killed.Store(true) }).Stop()
	}
	for range 100 {
		rt, err := perdure.New(ctx, s, perdure.Options{Version: "test", Observer: l}, l.flow())
		if err == nil {
			err = rt.Work(ctx)
		}
		if err == nil || s.Crashed() || ctx.Err() != nil {
			return
		}
		if !c.Flaky {
			w.wrong("a worker ended: %v", err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// driver is the outside of a run.
type driver struct {
	*perdure.Runtime
	*world
	program program
	noise   bool
	random  *rand.Rand
	inputs  []string // paths of receives whose signal is to be sent
	run     string
	paused  bool
	cancel  time.Duration // when to cancel the run, 0 for never
}

// signals returns the paths that wait for a signal.
func (p program) signals() []string {
	var paths []string
	var walk func(path string, ops []op)
	walk = func(path string, ops []op) {
		for _, o := range ops {
			if o.Kind == "receive" {
				paths = append(paths, path+"/"+o.Name)
			}
			walk(path+"/"+o.Name, o.Body)
			for i, b := range o.Branches {
				walk(fmt.Sprintf("%s/%s-%d", path, o.Name, i), b)
			}
		}
	}
	walk("", p.Ops)
	return paths
}

func (d *driver) begin(ctx context.Context) error {
	q := perdure.StartRequest{Thread: thread, Flow: "prog", Input: "main"}
	if d.program.Budget > 0 {
		q.Budget = map[string]int64{"cents": d.program.Budget}
	}
	run, err := d.Start(ctx, q)
	if err != nil {
		return err
	}
	d.run = run.ID
	for i := range d.program.Steer {
		_, err := d.Start(ctx, perdure.StartRequest{Thread: thread, Flow: "prog", Input: fmt.Sprint("steer", i), Policy: perdure.Steer})
		if err != nil {
			return err
		}
	}
	return nil
}

// drive answers and signals until all runs of the thread have ended.
func (d *driver) drive(ctx context.Context) error {
	idle, began := time.Millisecond, time.Now()
	for {
		if d.cancel > 0 && time.Since(began) >= d.cancel {
			d.cancel = 0
			d.mu.Lock()
			d.cancels = true
			d.mu.Unlock()
			if err := d.Cancel(ctx, thread, d.run, perdure.Note{}); err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the run did not end within %v", patience)
		case <-time.After(idle + time.Duration(d.random.IntN(20))*time.Millisecond):
		}
		t, err := d.Get(ctx, thread)
		if err != nil {
			return err
		}
		open := slices.DeleteFunc(t.Runs, func(r *perdure.Run) bool { return r.Status.Final() })
		if len(open) == 0 {
			again, err := d.retry(ctx)
			if err != nil || !again {
				return err
			}
			continue
		}
		acted, err := d.act(ctx, open[0])
		if err != nil {
			return err
		}
		if idle = min(2*idle, 2*time.Second); acted {
			idle = time.Millisecond
		}
	}
}

// retry retries a failed run, if the program wants that.
func (d *driver) retry(ctx context.Context) (bool, error) {
	run, err := d.GetRun(ctx, thread, d.run)
	if err != nil || run.Status != perdure.Failed || d.retriesNow() >= d.program.Retries {
		return false, err
	}
	d.mu.Lock()
	d.retries++
	d.mu.Unlock()
	err = d.Retry(ctx, thread, d.run, perdure.Note{})
	if errors.Is(err, perdure.ErrNothingToDo) {
		return false, nil
	}
	d.cover.meet("retried run")
	return true, err
}

// act does what the run waits for: all at once and in order, or in a noisy
// play some of it, whenever it likes, among other things.
func (d *driver) act(ctx context.Context, run *perdure.Run) (bool, error) {
	acted := false
	if d.noise {
		if err := d.disturb(ctx, run); err != nil {
			return false, err
		}
		d.random.Shuffle(len(run.Asks), func(i, j int) { run.Asks[i], run.Asks[j] = run.Asks[j], run.Asks[i] })
		d.random.Shuffle(len(d.inputs), func(i, j int) { d.inputs[i], d.inputs[j] = d.inputs[j], d.inputs[i] })
	}
	for _, ask := range run.Asks {
		if ask.Kind == "silent" || d.noise && d.random.IntN(2) == 0 {
			continue
		}
		acted = true
		a := perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: "yes", Value: "answer of " + ask.Path}}
		if ask.Kind == perdure.KindOutcome {
			a.Decision, a.Value = perdure.DecisionNotDone, nil
			switch {
			case d.program.at(ask.Path).Mode == "fail":
				a.Decision = perdure.DecisionFail
			case d.done(ask.Path):
				a.Decision, a.Value = perdure.DecisionDone, "done "+ask.Path
			}
		}
		if err := d.Answer(ctx, a); err != nil {
			return false, fmt.Errorf("answering %s: %w", ask.Path, err)
		}
	}
	for len(d.inputs) > 0 && (!d.noise || d.random.IntN(3) == 0) {
		path := d.inputs[0]
		d.inputs, acted = d.inputs[1:], true
		for range 1 + d.random.IntN(2) {
			if err := d.Signal(ctx, thread, signalOf(path), "signal of "+path, perdure.SignalOptions{Key: path}); err != nil {
				return false, err
			}
		}
	}
	return acted, nil
}

// disturb writes what must not change how the run ends.
func (d *driver) disturb(ctx context.Context, run *perdure.Run) error {
	var err error
	switch n := d.random.IntN(8); {
	case d.paused:
		d.paused = false
		err = d.Resume(ctx, thread, run.ID, perdure.Note{})
	case n == 0:
		if err = d.Pause(ctx, thread, run.ID, perdure.Note{}); err == nil {
			d.paused = true
		}
	case n == 1:
		err = d.SetMetadata(ctx, thread, nil, map[string]string{"n": fmt.Sprint(d.random.Int())}, perdure.Note{})
	case n == 2 && len(run.Asks) > 0:
		err = d.Progress(ctx, run.Asks[0].ID, "soon", perdure.Note{})
	case n == 3:
		err = d.Signal(ctx, thread, "nobody", 1, perdure.SignalOptions{})
	}
	if errors.Is(err, perdure.ErrNothingToDo) || errors.Is(err, perdure.ErrAskOver) {
		return nil // it was too late
	}
	return err
}

// at returns the operation at a path.
func (p program) at(path string) op {
	var find func(prefix string, ops []op) (op, bool)
	find = func(prefix string, ops []op) (op, bool) {
		for _, o := range ops {
			at := prefix + "/" + o.Name
			if at == path {
				return o, true
			}
			if found, ok := find(at, o.Body); ok {
				return found, true
			}
			for i, b := range o.Branches {
				if found, ok := find(fmt.Sprintf("%s-%d", at, i), b); ok {
					return found, true
				}
			}
		}
		return op{}, false
	}
	o, _ := find("", p.Ops)
	return o
}

// outcome collects how a play ended, when nobody works any more.
func (d *driver) outcome() *outcome {
	ctx := context.Background()
	o := &outcome{}
	e := &o.ends
	t, err := d.Get(ctx, thread)
	if err != nil {
		d.wrong("Get: %v", err)
		o.bad = d.bad
		return o
	}
	for _, run := range t.Runs {
		e.Runs = append(e.Runs, string(run.Status))
		if run.ID == d.run {
			e.Status, e.Output, e.Error, e.Spent, e.Steps = string(run.Status), string(run.Output), run.Error+run.Diff, run.Spent, run.Steps
		} else {
			d.cover.meet("steered run")
		}
	}
	point, err := d.StateAt(ctx, thread, 0)
	if err != nil {
		d.wrong("StateAt: %v", err)
		point = &perdure.Checkpoint{}
	}
	e.State, e.Facts, e.Deps = texts(point.State), texts(point.Facts), texts(point.Deps)
	d.events(ctx, o)
	if wrong := o.model.check(e); wrong != "" {
		d.wrong("%s", wrong)
	}
	d.effectsOf(e)
	o.bad, o.appends, o.leaves, o.took = d.bad, int(t.Seq), len(e.Leaves)+len(e.Effects), t.Updated.Sub(t.Created)
	return o
}

// texts makes values comparable; lists lose the order in which branches
// appended.
func texts(values map[string]json.RawMessage) map[string]string {
	all := map[string]string{}
	for key, raw := range values {
		var list []string
		if json.Unmarshal(raw, &list) == nil {
			slices.Sort(list)
			raw, _ = json.Marshal(list)
		}
		all[key] = string(raw)
	}
	return all
}

// events collects the outcomes in the journal, whatever the passes and the
// moments in which they were recorded.
func (d *driver) events(ctx context.Context, o *outcome) {
	values := map[uint64]string{}
	var lines strings.Builder
	for ev, err := range d.Events(ctx, thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			d.wrong("Events: %v", err)
			break
		}
		value := string(ev.Value)
		if ev.ValueOf != 0 {
			value = values[ev.ValueOf]
		}
		values[ev.Seq] = value
		fmt.Fprintln(&lines, ev.Seq, ev.Time.Format("04:05.000"), ev.Kind, ev.Path, ev.Name, clip(value), ev.Error, ev.Decision, ev.Status, ev.Diff, ev.Worker)
		kind := ev.Kind
		if kind == "step" || kind == "attempt" || kind == "problem" { // which a step that a cancel cut off leaves
			o.model.record(d.program.at(ev.Path), ev)
		}
		once := d.program.at(ev.Path).Kind == "once"
		switch {
		case kind == "problem" && ev.Name != "":
			d.wrong("a problem with %s: %s", ev.Name, ev.Error)
			continue
		case kind == "signal" && ev.Path != "":
			kind = "received"
		case once && (kind == "asked" || kind == "answered"), kind == "attempt" && ev.Error == "an earlier start had no effect":
			continue // a crash may leave an unknown outcome, or another one
		case !slices.Contains([]string{"step", "attempt", "asked", "answered", "expired", "timer", "fired", "received", "took", "emitted", "planned", "retried", "ended"}, kind):
			continue
		}
		if kind == "received" {
			ev.Name = ""
		}
		o.ends.Events = append(o.ends.Events, fmt.Sprint(kind, " ", ev.Path, " ", ev.Name, " ", ev.Attempt, " ", clip(value), ev.Error, ev.Decision, ev.Status, ev.Plan))
	}
	slices.Sort(o.ends.Events)
	o.journal = lines.String()
}

// model is what the recorded outcomes must have left behind, worked out apart
// from the runtime.
type model struct {
	total, own int
	cents      int64
	log        []string
	facts      []string
}

func (m *model) record(o op, e perdure.Event) {
	for _, act := range o.Acts {
		if act == "spend" {
			m.cents += int64(o.N) // also when it fails
		}
		if e.Kind != "step" || e.Error != "" {
			continue
		}
		switch act {
		case "counter":
			m.total += o.N
		case "list":
			m.log = append(m.log, e.Path, e.Path)
		case "fact":
			m.facts = append(m.facts, e.Path)
		case "dep":
			if !slices.Contains(o.Acts, "long") {
				m.own += o.N
			}
		}
	}
}

// check compares the model with what the runtime says.
func (m *model) check(e *ends) string {
	slices.Sort(m.log)
	slices.Sort(m.facts)
	want := fmt.Sprint(m.total, m.own, m.cents, m.log, m.facts)
	var total int
	var own struct{ N int }
	var log []string
	for text, v := range map[string]any{e.State["total"]: &total, e.Deps["own"]: &own, e.State["log"]: &log} {
		if text != "" && json.Unmarshal([]byte(text), v) != nil {
			return "not readable: " + text
		}
	}
	if got := fmt.Sprint(total, own.N, e.Spent["cents"], log, slices.Sorted(maps.Keys(e.Facts))); got != want {
		return fmt.Sprintf("counter, dep, spent, list and facts are\n%s\nand by the outcomes in the journal\n%s", got, want)
	}
	return ""
}

func clip(s string) string {
	if len(s) > 2000 {
		return fmt.Sprintf("%s… of %d", s[:100], len(s))
	}
	return s
}

// effectsOf collects what was executed, and judges how often.
func (d *driver) effectsOf(e *ends) {
	e.Leaves = slices.Sorted(maps.Keys(d.execs))
	for key, by := range d.execs {
		alive := 0
		for l, n := range by {
			if n > 1 && !l.cut.Flaky {
				d.wrong("one worker executed %s %d times", key, n)
			}
			if !l.crashed && !l.cut.Flaky {
				alive += n
			}
		}
		if alive > 1 {
			d.wrong("workers that did not crash executed %s %d times", key, alive)
		}
	}
	e.Effects = map[string]int{}
	for path, n := range d.effects {
		if n > 1 {
			d.wrong("the at-most-once effect of %s happened %d times", path, n)
		}
		// Whether it began before the crash is open where a person lets it fail.
		if d.program.at(path).Mode != "fail" {
			e.Effects[path] = n
		}
	}
}
