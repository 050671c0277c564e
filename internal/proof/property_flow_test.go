package proof_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"pgregory.net/rapid"
)

// op is one operation of a generated flow.
type op struct {
	Kind     string
	Name     string        `json:",omitempty"`
	Acts     []string      `json:",omitempty"` // what a leaf does
	N        int           `json:",omitempty"`
	Mode     string        `json:",omitempty"` // how it fails, waits or is reconciled
	FailOwn  int           `json:",omitempty"` // so many of its own attempts fail,
	Rounds   int           `json:",omitempty"` // in so many rounds of what is around it
	Tries    int           `json:",omitempty"` // attempts; 0: no Retry
	Wait     time.Duration `json:",omitempty"`
	Catch    bool          `json:",omitempty"` // the flow goes on after any error, also a suspension
	Body     []op          `json:",omitempty"`
	Branches [][]op        `json:",omitempty"`
}

// program is a generated flow and what its outside does.
type program struct {
	Ops     []op
	Steer   int   // inputs for Take, queued before it begins
	Retries int   // how often a person retries it when it fails
	Budget  int64 // of cents, 0 for none
}

func (p program) String() string { return "program " + pretty(p) }

func pretty(v any) string {
	raw, _ := json.MarshalIndent(v, "", " ")
	return string(raw) + "\n"
}

// cut is how one worker of a slot ends: it crashes before or after a write,
// before or after an append, in a leaf or at any time ("kill"), or it is told
// to stop.
type cut struct {
	How     string
	At      int           // where, in thousandths of what the undisturbed play did
	Flaky   bool          // its store fails now and then
	Overlap bool          // the next one starts before it is gone
	Delay   time.Duration // until the next one starts
	n       int           // which write, append or leaf it is, from the worker's start
	after   time.Duration // when it is killed or told to stop
}

// aim sets where the cuts are, by the size of the undisturbed play. Later
// workers of a slot have less left to do.
func (c *chaos) aim(appends, leaves int, took time.Duration) {
	c.cancel = took * time.Duration(c.Cancel) / 1000
	for _, cuts := range c.Slots {
		for i := range cuts {
			c, of := &cuts[i], appends
			switch c.How {
			case "write before", "write after":
				of = 2 * appends
			case "leaf":
				of = leaves
			}
			c.n = 1 + c.At*of/1000/(i+1)
			c.after = took * time.Duration(c.At) / 1000
		}
	}
}

// chaos is what disturbs a run.
type chaos struct {
	Seed  uint64
	Slots [][]cut // workers one after the other, in each of one or two slots
	Noise bool    // the order and time of answers and signals is random, and others write too

	Cancel int // when the run is cancelled, in thousandths of what the undisturbed play took; 0 for never
	cancel time.Duration
}

func (c chaos) String() string { return "chaos " + pretty(c) }

func drawProgram(t *rapid.T) program {
	groups := rapid.Bool().Draw(t, "groups")
	d := &drawing{T: t, left: number(t, 3, 30, "size"), groups: groups}
	p := program{Ops: d.frame(0, true, false)}
	if number(t, 0, 3, "steers") == 0 {
		p.Steer = number(t, 1, 3, "steer")
	} else {
		p.Retries = number(t, 0, 2, "retries")
	}
	if !groups && rapid.Bool().Draw(t, "budgeted") {
		p.Budget = int64(number(t, 1, 12, "budget"))
	}
	return p
}

// drawing draws operations until its budget is used up.
type drawing struct {
	*rapid.T
	left   int
	groups bool
	strict int // how many of four errors end their frame, less one
}

// number draws a number between low and high, each as likely as the others:
// the generators of rapid prefer small ones, and small flows meet little.
func number(t *rapid.T, low, high int, label string) int {
	span, n := high-low+1, 0
	for range bits.Len(uint(span)) + 3 {
		n *= 2
		if rapid.Bool().Draw(t, label) {
			n++
		}
	}
	return low + n%span
}

func pick[V any](t *rapid.T, label string, from ...V) V {
	return from[number(t, 0, len(from)-1, label)]
}

func (d *drawing) int(low, high int, label string) int { return number(d.T, low, high, label) }

func (d *drawing) pick(label string, from ...string) string { return pick(d.T, label, from...) }

// frame draws the operations of a frame. Only one branch of a group owns the
// deps that are not shared; what depends on the order of branches is left out
// inside groups.
func (d *drawing) frame(depth int, owner, inGroup bool) []op {
	kinds := []string{"leaf", "leaf", "leaf", "leaf", "leaf", "leaf", "leaf", "once", "once", "ask", "ask", "silent-ask", "sleep", "receive", "silent-receive", "emit", "plan", "read", "read", "fail", "cleanup"}
	if !inGroup {
		kinds = append(kinds, "take")
	}
	if depth < 3 {
		kinds = append(kinds, "scope", "composite", "composite")
		if d.groups {
			kinds = append(kinds, "group", "group", "group")
		}
	}
	var ops []op
	planned := false
	for n := d.int(1, 7, "length"); n > 0 && d.left > 0; n-- {
		d.left--
		o := op{Kind: d.pick("kind", kinds...), N: d.int(1, 9, "n"), Catch: d.int(0, 3, "catch") > d.strict}
		if o.Kind == "plan" && planned {
			continue
		}
		planned = planned || o.Kind == "plan"
		o.Name = fmt.Sprintf("%s%d", o.Kind, len(ops))
		switch o.Kind {
		case "leaf":
			d.leaf(&o, owner, inGroup)
		case "cleanup":
			d.leaf(&o, owner, inGroup)
			o.Tries = 0
		case "once":
			o.Mode = d.pick("mode", "reconcile", "reconcile", "reconcile", "ask", "unsure", "unsure-ask", "fail")
			o.FailOwn, o.Rounds, o.Tries = d.int(0, 1, "fail"), d.int(0, 2, "rounds"), d.int(0, 3, "tries")
			if o.Mode == "fail" {
				o.FailOwn = 0 // a person lets it fail whether it was refused or not
			}
		case "silent-ask":
			o.Mode = d.pick("default", "default", "none")
		case "scope":
			o.Body = d.frame(depth+1, owner, inGroup)
		case "composite":
			was := d.strict
			d.strict = 2 // so that there is something to retry
			o.Body = d.frame(depth+1, owner, inGroup)
			d.strict = was
			o.Tries, o.Wait = d.int(0, 3, "tries"), time.Duration(d.int(1, 3, "wait"))*900*time.Millisecond
		case "group":
			for b := d.int(1, 3, "branches"); b > 0; b-- {
				o.Branches = append(o.Branches, d.frame(depth+1, owner && len(o.Branches) == 0, true))
			}
		}
		ops = append(ops, o)
	}
	return ops
}

func (d *drawing) leaf(o *op, owner, inGroup bool) {
	acts := []string{"counter", "list", "fact", "spend", "spend", "result", "edit-own", "shared", "node", "now", "key", "delta", "input", "long", "text", "big"}
	if owner {
		acts = append(acts, "exact")
	}
	if !inGroup {
		acts = append(acts, "set", "delete", "edit", "edit", "replace", "drop-text")
	}
	if d.int(0, 2, "naps") == 0 {
		o.Acts = append(o.Acts, "nap")
	}
	if owner && d.int(0, 2, "owns") == 0 {
		o.Acts = append(o.Acts, "dep")
	}
	for range d.int(0, 3, "acts") {
		if a := d.pick("act", acts...); !slices.Contains(o.Acts, a) {
			o.Acts = append(o.Acts, a)
		}
	}
	o.FailOwn, o.Rounds = max(0, d.int(0, 6, "fail")-4), d.int(0, 2, "rounds")
	o.Mode = d.pick("mode", "error", "error", "panic", "permanent", "timeout")
	o.Tries, o.Wait = d.int(0, 3, "tries"), time.Duration(d.int(1, 3, "wait"))*900*time.Millisecond
}

func drawChaos(t *rapid.T) chaos {
	c := chaos{Seed: rapid.Uint64().Draw(t, "seed"), Noise: rapid.Bool().Draw(t, "noise")}
	if number(t, 0, 7, "cancels") == 0 {
		c.Cancel = number(t, 1, 1000, "cancel")
	}
	left := 4 // one death more would quarantine the run
	for range number(t, 1, 2, "slots") {
		var cuts []cut
		for n := number(t, 0, left, "cuts"); n > 0; n-- {
			left--
			c := cut{
				How: pick(t, "how", "write before", "write after", "append before", "append after", "append before", "append after",
					"leaf", "leaf", "leaf", "kill", "stop"),
				At:      number(t, 0, 999, "at"),
				Flaky:   number(t, 0, 3, "flaky") == 0,
				Overlap: rapid.Bool().Draw(t, "overlap"),
				Delay:   time.Duration(number(t, 0, 4, "delay")) * time.Second,
			}
			cuts = append(cuts, c)
		}
		c.Slots = append(c.Slots, cuts)
	}
	return c
}

// tally is a dep that counts.
type tally struct {
	mu sync.Mutex
	n  int
}

func (d *tally) add(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n += n
	return d.n
}

func (d *tally) Dump(context.Context) (json.RawMessage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Marshal(map[string]int{"n": d.n})
}

func (d *tally) Load(_ context.Context, raw json.RawMessage) error {
	var state struct{ N int }
	err := json.Unmarshal(raw, &state)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n = state.N
	return err
}

// names is a dep that keeps a set, so that adding twice is adding once.
type names struct {
	mu  sync.Mutex
	set map[string]bool
}

func (d *names) add(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set[name] = true
}

func (d *names) Dump(context.Context) (json.RawMessage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Marshal(d.set)
}

func (d *names) Load(_ context.Context, raw json.RawMessage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Unmarshal(raw, &d.set)
}

func newTally(context.Context) (*tally, error) { return &tally{}, nil }

var (
	ownTally   = perdure.NewDep("own", newTally)
	exactTally = perdure.NewDep("exact", newTally, perdure.AtSteps())
	nodeTally  = perdure.NewDep("node", newTally, perdure.PerNode())
	allNames   = perdure.NewDep("names", func(context.Context) (*names, error) { return &names{set: map[string]bool{}}, nil }, perdure.Shared())
)

// world is what outlives all workers of a play: the effects, and what was
// seen of the runs.
type world struct {
	mu       sync.Mutex
	cover    *coverage
	execs    map[string]map[*life]int // executions of leaf attempts
	recorded map[string]bool          // leaf attempts with an outcome in the journal
	effects  map[string]int           // of at-most-once steps, by path
	seen     map[string]string        // what flow code read, by place
	keys     map[string]string        // paths by their Key
	retries  int
	cancels  bool // the run is, or is about to be, cancelled
	bad      []string
}

func (w *world) wrong(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = append(w.bad, fmt.Sprintf(format, args...))
}

// stable notes what flow code reads in a place, which every pass reads alike
// until the run is cancelled.
func (w *world) stable(ctx context.Context, place, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancels {
		return
	}
	place = fmt.Sprintf("%d|%s|%s", w.retries, attemptOf(ctx).key, place)
	if was, ok := w.seen[place]; ok && was != value {
		w.bad = append(w.bad, fmt.Sprintf("at %s flow code read %q and later %q", place, was, value))
	}
	w.seen[place] = value
}

// attempt says which attempt of which steps a context belongs to.
type attempt struct {
	key   string
	own   int // number of the innermost one
	round int // how often what is around it was tried before
}

type attemptKey struct{}

func attemptOf(ctx context.Context) attempt {
	a, _ := ctx.Value(attemptKey{}).(attempt)
	return a
}

// life is one worker, from its start to its end. It interprets the program,
// and sees its steps as the runtime's Observer.
type life struct {
	*world
	program program
	cut     cut
	killed  atomic.Bool // the next call of its store makes it crash

	// Guarded by the world's mu.
	crashed bool
	leaves  int               // that were started
	inside  map[string]int    // frames that are being executed, by kind
	current map[string]string // leaf attempts that were started last, by path
}

// StepStarted puts the attempt into the context.
func (l *life) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	around := attemptOf(ctx)
	a := attempt{key: fmt.Sprintf("%s %s#%d", around.key, s.Path, s.Attempt), own: s.Attempt, round: around.round + max(0, around.own-1)}
	return context.WithValue(ctx, attemptKey{}, a), func(error) {}
}

// Committed notes which leaf attempts have an outcome.
func (l *life) Committed(e perdure.Event) {
	if e.Kind != "step" && e.Kind != "attempt" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if key, ok := l.current[e.Path]; ok {
		l.recorded[key] = true
	}
}

// started notes that a leaf's function was called.
func (l *life) started(ctx context.Context, path string, dead bool) attempt {
	a := attemptOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	key := fmt.Sprintf("%d|%s", l.retries, a.key)
	if l.recorded[key] {
		l.bad = append(l.bad, "executed although its outcome was recorded: "+key)
	}
	if dead {
		l.bad = append(l.bad, "started although the run was sealed: "+key)
	}
	l.current[path] = key
	if l.execs[key] == nil {
		l.execs[key] = map[*life]int{}
	}
	l.execs[key][l]++
	if len(l.execs[key]) == 2 {
		l.cover.meet("leaf executed again")
	}
	if at := perdure.Key(ctx); l.keys[at] == "" {
		l.keys[at] = path
	} else if l.keys[at] != path {
		l.bad = append(l.bad, fmt.Sprintf("%s and %s have one Key", path, l.keys[at]))
	}
	return a
}

// within counts a frame as being executed until its end.
func (l *life) within(kind string) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside[kind]++
	if kind == "leaf" {
		l.leaves++
		if l.cut.How == "leaf" && l.leaves == l.cut.n {
			l.killed.Store(true)
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inside[kind]--
	}
}

// crash is called when the worker's store crashes.
func (l *life) crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashed = true
	l.cover.meet("crash")
	for kind, n := range l.inside {
		if n > 0 {
			l.cover.meet("crash in " + kind)
		}
	}
}

func (l *life) flow() perdure.Flow {
	return perdure.NewFlow("prog", func(ctx context.Context, in string) (string, error) {
		if in != "main" {
			return "steered", nil
		}
		return l.frame(ctx, "", l.program.Ops)
	})
}

func interrupted(err error) bool {
	return errors.Is(err, perdure.ErrSuspended) || errors.Is(err, perdure.ErrFenced) || errors.Is(err, perdure.ErrBlocked)
}

// frame executes the operations of a frame and returns what they gave.
func (l *life) frame(ctx context.Context, path string, ops []op) (out string, err error) {
	var log []string
	dead := false // a verb said that the run is sealed
	var now time.Time
	for _, o := range ops {
		at := path + "/" + o.Name
		if o.Kind == "cleanup" {
			defer func() {
				if err == nil {
					return
				}
				l.cover.meet("cleanup")
				_ = perdure.Cleanup(ctx, o.Name, func(ctx context.Context) error {
					_, err := l.leaf(ctx, at, o, dead)
					return err
				})
			}()
			continue
		}
		v, err := l.do(ctx, at, o, dead)
		dead = dead || interrupted(err)
		if !dead {
			if n := perdure.Now(ctx); n.Before(now) {
				l.wrong("Now goes backwards at %s", at)
			} else {
				now = n
			}
			l.stable(ctx, at+" now", now.String())
			l.stable(ctx, at+" gave", fmt.Sprint(v, err))
		}
		if err != nil && !o.Catch {
			return "", err
		}
		if err != nil {
			v = "!" + err.Error()
		}
		log = append(log, o.Name+"="+v)
	}
	return "{" + strings.Join(log, " ") + "}", nil
}

// do executes one operation.
func (l *life) do(ctx context.Context, path string, o op, dead bool) (string, error) {
	l.cover.meet(o.Kind)
	switch o.Kind {
	case "leaf":
		return perdure.Step(ctx, o.Name, func(ctx context.Context) (string, error) { return l.leaf(ctx, path, o, dead) }, leafOptions(o)...)
	case "once":
		return l.once(ctx, path, o, dead)
	case "scope":
		return perdure.Scope(ctx, o.Name, func(ctx context.Context) (string, error) {
			defer l.within("scope")()
			return l.frame(ctx, path, o.Body)
		})
	case "composite":
		opts := []perdure.StepOption{perdure.Timeout(time.Hour)}
		if o.Tries > 0 {
			opts = append(opts, perdure.Retry(perdure.RetryPolicy{Attempts: o.Tries, Wait: o.Wait}))
		}
		return perdure.Step(ctx, o.Name, func(ctx context.Context) (string, error) {
			defer l.within("composite")()
			if attemptOf(ctx).own > 1 {
				l.cover.meet("retried composite")
			}
			return l.frame(ctx, path, o.Body)
		}, opts...)
	case "group":
		return l.group(ctx, path, o)
	case "ask":
		a, err := perdure.Ask[perdure.Answer](ctx, o.Name, perdure.Question{Prompt: path, Decisions: []string{"yes", "no"}})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s %s", a.Decision, a.Value), nil
	case "silent-ask":
		q := perdure.Question{Kind: "silent", Expires: time.Duration(o.N) * time.Second}
		if o.Mode == "default" {
			q.Default = &perdure.Answer{Value: "nobody"}
		}
		return perdure.Ask[string](ctx, o.Name, q)
	case "sleep":
		return "", perdure.Sleep(ctx, o.Name, time.Duration(o.N*o.N)*100*time.Millisecond)
	case "receive":
		return perdure.Receive[string](ctx, o.Name, signalOf(path), 0)
	case "silent-receive":
		return perdure.Receive[string](ctx, o.Name, "never", time.Duration(o.N)*time.Second)
	case "take":
		v, ok, err := perdure.Take[string](ctx, o.Name)
		return fmt.Sprint(v, ok), err
	case "emit":
		return "", perdure.Emit(ctx, o.Name, o.N)
	case "plan":
		return "", perdure.Plan(ctx, "a", "b")
	case "read":
		return readState(ctx)
	default: // fail: flow code of its own
		if l.retriesNow()+attemptOf(ctx).round+max(0, attemptOf(ctx).own-1) < o.N%3 {
			return "", fmt.Errorf("flow code at %s fails", path)
		}
		return "", nil
	}
}

func (w *world) retriesNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.retries
}

func signalOf(path string) string { return strings.ReplaceAll(path, "/", ".") }

// readState returns all that a flow can read, without the order in which
// branches wrote it.
func readState(ctx context.Context) (string, error) {
	n, err := perdure.NewCounter("total").Get(ctx)
	if err != nil {
		return "", err
	}
	list, err := perdure.NewList[string]("log").Get(ctx)
	if err != nil {
		return "", err
	}
	slices.Sort(list)
	results, err := perdure.NewList[string]("results").Get(ctx)
	if err != nil {
		return "", err
	}
	slices.Sort(results)
	sum := sha256.Sum256([]byte(strings.Join(results, "\n"))) // each result tells those before it
	var texts []string
	keys, err := perdure.StateKeys(ctx, "file")
	if err != nil {
		return "", err
	}
	for _, key := range keys {
		text, err := perdure.NewText(key).Get(ctx)
		if err != nil {
			return "", err
		}
		texts = append(texts, key+": "+text)
	}
	mode, ok, err := perdure.NewState[string]("mode").Lookup(ctx)
	return fmt.Sprintf("%d %v %s %v %d %.4x %q", n, list, mode, ok, len(results), sum, texts), err
}

func leafOptions(o op) []perdure.StepOption {
	var opts []perdure.StepOption
	if o.Tries > 0 {
		opts = append(opts, perdure.Retry(perdure.RetryPolicy{Attempts: o.Tries, Wait: o.Wait}))
	}
	if slices.Contains(o.Acts, "input") {
		opts = append(opts, perdure.Input(o.N))
	}
	if o.Mode == "timeout" {
		opts = append(opts, perdure.Timeout(9*time.Second))
	}
	return opts
}

// leaf is the function of a leaf step. What it does before it fails is lost,
// except what it spends; deps are touched only by attempts that succeed.
func (l *life) leaf(ctx context.Context, path string, o op, dead bool) (string, error) {
	defer l.within("leaf")()
	a := l.started(ctx, path, dead)
	if a.own > 1 {
		l.cover.meet("retried leaf")
	}
	for _, act := range o.Acts {
		l.cover.meet(act)
		var err error
		switch act {
		case "counter":
			err = perdure.NewCounter("total").Add(ctx, int64(o.N))
		case "list":
			err = perdure.NewList[string]("log").Append(ctx, path, path)
		case "result":
			err = perdure.NewList[string]("results").AppendResult(ctx)
		case "edit", "edit-own": // what branches do to one text depends on their order
			file := perdure.NewText("file")
			if act == "edit-own" {
				file = perdure.NewText("file of " + path)
			}
			for i := range 2 {
				var text string
				if text, err = file.Get(ctx); err != nil {
					break
				}
				if text == "" {
					text = strings.Repeat("some lines of a file\n", 12)
				}
				at := o.N * 7 * (i + 1) % len(text)
				if err = file.Set(ctx, text[:at]+path+text[at:]); err != nil {
					break
				}
			}
		case "replace":
			_, err = perdure.NewText("file").Replace(ctx, "e", "ee")
		case "drop-text":
			err = perdure.NewText("file").Delete(ctx)
		case "fact":
			err = perdure.NewFact[string](path).Set(ctx, "known")
		case "set":
			err = perdure.NewState[string]("mode").Set(ctx, path)
		case "delete":
			err = perdure.NewState[string]("mode").Delete(ctx)
		case "spend":
			err = perdure.Spend(ctx, "cents", int64(o.N))
			if errors.Is(err, perdure.ErrBudget) {
				l.cover.meet("over budget")
			}
		case "delta":
			perdure.Delta(ctx, path)
		case "now":
			l.stable(ctx, path+" leaf", perdure.Now(ctx).String())
		}
		if err != nil {
			return "", err
		}
	}
	if a.own <= o.FailOwn && a.round+l.retriesNow() < o.Rounds {
		l.cover.meet("mode " + o.Mode)
		err := fmt.Errorf("attempt %d of round %d fails", a.own, a.round+l.retriesNow())
		switch o.Mode {
		case "panic":
			panic(err.Error())
		case "permanent":
			return "", perdure.Permanent(err)
		case "timeout":
			if o.Kind != "leaf" { // a cleanup has no timeout
				return "", err
			}
			<-ctx.Done()
			return "", errors.New("it takes too long")
		}
		return "", err
	}
	out, err := readState(ctx)
	for _, act := range o.Acts {
		var d *tally
		switch act {
		case "dep":
			if !slices.Contains(o.Acts, "long") {
				d, err = ownTally.Get(ctx)
			}
		case "exact":
			d, err = exactTally.Get(ctx)
		case "node":
			if !slices.Contains(o.Acts, "long") {
				d, err = nodeTally.Get(ctx)
			}
		case "shared":
			var d *names
			if d, err = allNames.Get(ctx); err == nil {
				d.add(path)
			}
		}
		if err != nil {
			return "", err
		}
		if d != nil {
			out += fmt.Sprintf(" %s %d", act, d.add(o.N))
		}
	}
	for _, act := range o.Acts {
		switch act {
		case "nap":
			time.Sleep(time.Duration(o.N) * 100 * time.Millisecond)
		case "long":
			time.Sleep(7 * time.Second)
		case "text":
			out += strings.Repeat(" text", 20)
		case "big":
			out += strings.Repeat("x", 70<<10)
		}
	}
	return out, err
}

// once is an at-most-once step whose effect is in the world.
func (l *life) once(ctx context.Context, path string, o op, dead bool) (string, error) {
	l.cover.meet("once " + o.Mode)
	opts := []perdure.StepOption{perdure.AtMostOnce(), perdure.Timeout(6 * time.Second)}
	if o.Tries > 0 {
		opts = append(opts, perdure.Retry(perdure.RetryPolicy{Attempts: o.Tries, Wait: o.Wait}))
	}
	if o.Mode == "reconcile" || o.Mode == "unsure" {
		opts = append(opts, perdure.Reconcile(func(ctx context.Context) (string, perdure.Outcome, error) {
			if o.Mode == "reconcile" { // its function never leaves the outcome open
				l.cover.meet("reconciled after a crash")
			}
			if l.done(path) {
				return "done " + path, perdure.OutcomeDone, nil
			}
			return "", perdure.OutcomeNotDone, nil
		}))
	}
	return perdure.Step(ctx, o.Name, func(ctx context.Context) (string, error) {
		defer l.within("leaf")()
		a := attemptOf(ctx)
		if dead {
			l.wrong("started although the run was sealed: %s", path)
		}
		if a.own <= o.FailOwn && a.round+l.retriesNow() < o.Rounds {
			return "", perdure.NotDone(fmt.Errorf("attempt %d is refused", a.own))
		}
		// It does not heed its context: it may still happen after a crash, and
		// after another worker has taken the run over.
		time.Sleep(time.Duration(o.N) * 600 * time.Millisecond)
		l.mu.Lock()
		l.effects[path]++
		l.mu.Unlock()
		if strings.HasPrefix(o.Mode, "unsure") || o.Mode == "fail" {
			return "", errors.New("the connection broke")
		}
		return "done " + path, nil
	}, opts...)
}

func (w *world) done(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[path] > 0
}

func (l *life) group(ctx context.Context, path string, o op) (string, error) {
	g := perdure.NewGroup(ctx)
	outs := make([]string, len(o.Branches))
	for i, ops := range o.Branches {
		name := fmt.Sprintf("%s-%d", o.Name, i)
		g.Go(name, func(ctx context.Context) (err error) {
			defer l.within("branch")()
			outs[i], err = l.frame(ctx, strings.TrimSuffix(path, o.Name)+name, ops)
			return err
		})
	}
	err := g.Wait()
	return strings.Join(outs, "|"), err
}
