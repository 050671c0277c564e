package perduretest

import (
	"context"
	"slices"
	"sync"

	"github.com/perdure/perdure"
)

// Effects counts what a flow does to the outside world. The functions of steps
// call Count or CountOnce instead of the effect, or along with a fake of it. The
// zero value is ready to use; all methods are safe for concurrent use.
type Effects struct {
	mu       sync.Mutex
	life     int
	attempts []*attempt
	all      []effect
}

// attempt is one call of a step's function.
type attempt struct {
	perdure.StepInfo
	life int
	lost bool // the process died before its outcome was recorded
}

// effect is one effect that happened.
type effect struct {
	name string
	once bool
	of   *attempt // nil outside a step
}

type attemptKey struct{}

// Count counts an effect that may be repeated, as that of any step may, if the
// process dies before the step's outcome is recorded.
func (e *Effects) Count(ctx context.Context, name string) { e.add(ctx, name, false) }

// CountOnce counts an effect that must not be repeated. It is for the functions of
// [perdure.AtMostOnce] steps.
func (e *Effects) CountOnce(ctx context.Context, name string) { e.add(ctx, name, true) }

func (e *Effects) add(ctx context.Context, name string, once bool) {
	of, _ := ctx.Value(attemptKey{}).(*attempt)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, effect{name: name, once: once, of: of})
}

// Of returns how often the effect of the given name has happened. A Reconcile
// function can use it to find out what became of an earlier start.
func (e *Effects) Of(name string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, f := range e.all {
		if f.name == name {
			n++
		}
	}
	return n
}

// reset forgets everything.
func (e *Effects) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life, e.attempts, e.all = 0, nil, nil
}

// Attempt returns the number of the step's current attempt, from 1, or 0 outside a
// step or outside this package's runtimes. A function that uses it to decide when to
// fail, rather than a counter in memory, fails the same way after a crash.
func Attempt(ctx context.Context) int {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a.Attempt
	}
	return 0
}

// watcher is the observer that assigns effects to steps.
type watcher struct{ effects *Effects }

var _ perdure.Observer = watcher{}

// StepStarted implements perdure.Observer.
func (w watcher) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	w.effects.mu.Lock()
	a := &attempt{StepInfo: s, life: w.effects.life}
	w.effects.attempts = append(w.effects.attempts, a)
	w.effects.mu.Unlock()
	return context.WithValue(ctx, attemptKey{}, a), func(error) {}
}

// Committed implements perdure.Observer.
func (w watcher) Committed(perdure.Event) {}

// place identifies a step of a run.
type place struct{ thread, run, path string }

func (a *attempt) place() place { return place{a.Thread, a.Run, a.Path} }

// died notes, after a crash, which attempts left no outcome. Recorded is how many
// outcomes the journals hold, by place.
func (e *Effects) died(recorded map[place]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	open := map[place]int{}
	for _, a := range e.attempts {
		if !a.lost {
			open[a.place()]++
		}
	}
	for _, a := range slices.Backward(e.attempts) {
		if at := a.place(); !a.lost && a.life == e.life && open[at] > recorded[at] {
			a.lost = true
			open[at]--
		}
	}
	e.life++
}
