package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// World is what one execution happens in: a store and the actors on it.
type World struct {
	search *search
	ctx    context.Context
	inner  *memstore.Store
	check  func(context.Context, store.Store) error
	actors []*Actor

	left     time.Duration // of MaxTime
	crashes  int           // left, like the next three
	unknowns int
	conflict int
	delays   int
	pending  []*call // seen by the scheduler, by actor and number

	// bell rings when a goroutine leaves something for the scheduler, which
	// may be waiting for time to pass.
	bell chan struct{}

	mu      sync.Mutex
	arrived []*call // not yet seen by the scheduler
	watches []*watch
	over    bool // every call answers ErrKilled
}

// Actor is a function that runs on the store, as one process or one client.
type Actor struct {
	w        *World
	index    int
	name     string
	fn       func(context.Context, store.Store) error
	after    []*Actor
	reliable bool

	cancel  context.CancelCauseFunc // nil until it starts
	numbers int                     // calls seen

	// Guarded by the world's lock:
	returned bool
	killed   bool
	err      error
	broken   error // it panicked
	refused  int   // calls since it was killed
}

func newWorld(ctx context.Context, s *search) *World {
	return &World{
		search: s, ctx: ctx, inner: memstore.New(), bell: make(chan struct{}, 1),
		left: s.cfg.MaxTime, crashes: s.cfg.Crashes, unknowns: s.cfg.Unknowns, conflict: s.cfg.Conflicts, delays: s.cfg.Delays,
	}
}

// Store is the store itself, for the setup to fill. Writes to it are no steps
// and wake nobody.
func (w *World) Store() store.Store { return filled{w.inner} }

// filled is the store as the setup and the check see it.
type filled struct{ *memstore.Store }

// Bare makes threads do the same as in the actors' stores.
func (filled) Bare() {}

// Actor declares an actor. Fn gets a handle whose calls are steps, and a
// context that ends when the actor is killed or the execution is over.
func (w *World) Actor(name string, fn func(ctx context.Context, s store.Store) error) *Actor {
	a := &Actor{w: w, index: len(w.actors), name: name, fn: fn}
	w.actors = append(w.actors, a)
	return a
}

// Check declares the function that judges each ending, on the store itself.
func (w *World) Check(fn func(ctx context.Context, s store.Store) error) { w.check = fn }

// Settled returns an error that names the actors that are waiting and those
// that returned an error, the killed aside.
func (w *World) Settled() error {
	var errs []error
	for _, a := range w.actors {
		switch {
		case a.Waiting():
			errs = append(errs, fmt.Errorf("actor %s waits for ever", a.name))
		case !a.Killed() && a.Err() != nil:
			errs = append(errs, fmt.Errorf("actor %s: %w", a.name, a.Err()))
		}
	}
	return errors.Join(errs...)
}

// After delays the actor's start until all others have returned or are dead.
func (a *Actor) After(others ...*Actor) *Actor {
	a.after = append(a.after, others...)
	return a
}

// Reliable spares the actor all faults.
func (a *Actor) Reliable() *Actor {
	a.reliable = true
	return a
}

// Err is what the actor returned.
func (a *Actor) Err() error {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return a.err
}

// Killed reports whether the actor was killed.
func (a *Actor) Killed() bool {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return a.killed
}

// Waiting reports whether the actor has neither returned nor been killed.
func (a *Actor) Waiting() bool {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return !a.returned && !a.killed
}

// ready reports whether the actor is to be started.
func (a *Actor) ready() bool {
	return a.cancel == nil && !slices.ContainsFunc(a.after, (*Actor).Waiting)
}

type actorKey struct{}

func (a *Actor) start() {
	ctx, cancel := context.WithCancelCause(context.WithValue(a.w.ctx, actorKey{}, a))
	a.cancel = cancel
	go func() {
		err := errors.New("explore: the actor ended its goroutine without returning")
		var broken error
		defer func() {
			if r := recover(); r != nil {
				broken = fmt.Errorf("actor %s panicked: %v\n%s", a.name, r, debug.Stack())
				err = broken
			}
			a.w.mu.Lock()
			a.returned, a.err, a.broken = true, err, broken
			a.w.mu.Unlock()
			a.w.ring()
		}()
		var s store.Store = &handle{actor: a}
		if a.w.search.cfg.NoBatch {
			s = unbatched{s}
		}
		err = a.fn(ctx, s)
	}()
}

// kill makes all calls of the actor answer ErrKilled, from now on.
func (a *Actor) kill() {
	a.w.mu.Lock()
	a.killed = true
	a.w.mu.Unlock()
	a.cancel(ErrKilled)
	a.w.refuse(func(c *call) bool { return c.actor == a })
}

// refuse answers ErrKilled to the pending calls that which selects.
func (w *World) refuse(which func(*call) bool) {
	w.pending = slices.DeleteFunc(w.pending, func(c *call) bool {
		if !which(c) {
			return false
		}
		if c.err == nil {
			c.err = ErrKilled
		}
		close(c.done)
		return true
	})
}

func (w *World) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}
