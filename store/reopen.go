package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
)

// Reopen returns a store that opens its engine with open, and opens it again
// after a call has returned ErrPoisoned, so that a program continues once a full
// disk has space again. Ctx is for the first opening, whose error is returned.
//
// The store is a [Notifier]: it reports when writes begin to fail, or the engine
// cannot be reached, and when writes succeed again.
//
// The call that met the failure returns ErrUnavailable and may have happened.
// The next call opens the engine again, and others wait for that, each until
// its own context ends. If the engine cannot be opened, and for a moment after
// each try (100 ms, growing to 1 s until a write succeeds), writes return
// ErrUnavailable at once and have not happened; reads use the old handle as long as it
// works. An ErrUnavailable also matches its cause, such as ErrFull, but none of the
// errors that say something about the call.
//
// The old handle is closed after the new one was opened, when the last call that
// uses it has returned: the engine has to allow two handles in a process. Loops
// over Watch and Listen continue on the new handle, and each Watch then yields
// once. The store that Unwrap returns is valid until the next opening.
//
// Reopen is for engines that keep their data: a memory store that is opened again is
// empty.
func Reopen(ctx context.Context, open func(context.Context) (Store, error)) (Store, error) {
	s, err := open(ctx)
	if err != nil {
		return nil, err
	}
	r := &reopener{open: open, now: newHandle(s), old: map[*handle]bool{}, pause: reopenLeast}
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	if _, ok := As[Caster](s); ok {
		return castReopener{r}, nil
	}
	return r, nil
}

// The time from one opening to the next.
const (
	reopenLeast = 100 * time.Millisecond
	reopenMost  = time.Second
)

// reopener is what Reopen returns.
type reopener struct {
	open func(context.Context) (Store, error)
	ctx  context.Context // for opening again: ends with Close
	stop context.CancelFunc

	mu      sync.Mutex
	closed  bool
	now     *handle          // the newest
	old     map[*handle]bool // the replaced ones that are not closed yet
	opening chan struct{}    // closed when the opening in progress ends; nil if there is none
	failed  error            // of the last opening
	next    time.Time        // the earliest time of the next opening
	pause   time.Duration    // from the next opening to the one after it

	down   error     // why writes fail; nil if they do not
	downAt time.Time // when one last failed
	tells  []func(error)
	tell   sync.Mutex // held while they are called
	told   bool       // whether they were last told of a failure
}

var (
	_ Store   = (*reopener)(nil)
	_ Wrapper = (*reopener)(nil)
	_ Watcher = (*reopener)(nil)
	_ Durable = (*reopener)(nil)
	_ Caster  = castReopener{}
	_ Batcher = (*reopener)(nil)

	_ Unsynced = (*reopener)(nil)

	_ Transactor = (*reopener)(nil)

	_ Notifier = (*reopener)(nil)

	_ Warner = (*reopener)(nil)
)

// handle is one opening of the engine.
type handle struct {
	Store
	close  func() error // of the store, once; all callers wait for it
	users  int          // calls and loops in progress
	poison error        // why it has to be replaced
	over   context.Context
	end    context.CancelFunc // ends over, when it is replaced or closed
}

func newHandle(s Store) *handle {
	h := &handle{Store: s, close: sync.OnceValue(s.Close)}
	h.over, h.end = context.WithCancel(context.Background())
	return h
}

// take returns the handle for a call, which leaves it at its end.
func (r *reopener) take(ctx context.Context, writes bool) (*handle, error) {
	for tried := false; ; tried = true {
		r.mu.Lock()
		opening, err := r.choose(writes, tried)
		if opening == nil {
			defer r.mu.Unlock()
			if err != nil {
				return nil, err
			}
			r.now.users++
			return r.now, nil
		}
		r.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// choose decides whether a call may use the newest handle or has to wait for an
// opening, which it starts if it is time. The caller holds the lock.
func (r *reopener) choose(writes, tried bool) (opening <-chan struct{}, err error) {
	switch wait := time.Until(r.next); {
	case r.closed:
		return nil, ErrClosed
	case r.now.poison == nil:
		return nil, nil
	case r.opening != nil:
		return r.opening, nil
	case wait <= 0 && !tried:
		r.opening = make(chan struct{})
		go r.reopen(r.opening)
		return r.opening, nil
	case !writes:
		return nil, nil // what a poisoned handle can still read is true
	case r.failed != nil:
		return nil, &unavailable{"nothing was written, because the store cannot be opened again; try again later", r.failed}
	default:
		return nil, &unavailable{fmt.Sprintf("nothing was written; the store is opened again in %v", max(wait, 0).Round(time.Millisecond)), r.now.poison}
	}
}

// reopen opens the engine once and replaces the newest handle.
func (r *reopener) reopen(over chan struct{}) {
	s, err := r.open(r.ctx)
	r.mu.Lock()
	replaced, idle, late := r.now, false, err == nil && r.closed
	if err == nil && !late {
		r.now = newHandle(s)
		r.old[replaced] = true
		idle = replaced.users == 0
		replaced.end()
	}
	r.failed, r.opening = err, nil
	r.next = time.Now().Add(r.pause)
	r.pause = min(2*r.pause, reopenMost)
	r.mu.Unlock()
	if late {
		_ = s.Close() // it was never used
	}
	close(over)
	if idle {
		r.discard(replaced)
	}
}

// discard closes a replaced handle. Its failure is known, so the error of Close
// says nothing new.
func (r *reopener) discard(h *handle) {
	_ = h.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.old, h)
}

// met notes how a call went, and returns the error for its caller. An engine on
// another machine may be unavailable by itself, and its handle is good again when
// the engine is.
func (r *reopener) met(h *handle, wrote bool, err error) error {
	bad, fails := errors.Is(err, ErrPoisoned), errors.Is(err, ErrFull) || errors.Is(err, ErrUnavailable)
	if !bad && !fails && (!wrote || err != nil) {
		return err
	}
	defer r.announce()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if h == r.now {
			r.pause = reopenLeast
			if time.Since(r.downAt) > calm {
				r.down = nil
			}
		}
		return nil
	}
	r.down, r.downAt = err, time.Now()
	if !bad {
		return err
	}
	if h.poison == nil {
		h.poison = err
	}
	return &unavailable{"the call may have happened; the store is being opened again, so try again", err}
}

// calm is how long writes have to succeed before the store is reported as
// recovered: a disk that is almost full accepts some writes and refuses others.
const calm = time.Second

// Notify implements Notifier.
func (r *reopener) Notify(tell func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tells = append(r.tells, tell)
}

// announce reports whether writes fail, if that has changed.
func (r *reopener) announce() {
	r.mu.Lock()
	quiet := len(r.tells) == 0
	r.mu.Unlock()
	if quiet {
		return
	}
	r.tell.Lock()
	defer r.tell.Unlock()
	r.mu.Lock()
	down, tells := r.down, r.tells
	r.mu.Unlock()
	if (down != nil) == r.told {
		return
	}
	r.told = down != nil
	for _, tell := range tells {
		tell(down)
	}
}

// leave ends the use of a handle.
func (r *reopener) leave(h *handle) {
	r.mu.Lock()
	h.users--
	idle := h.users == 0 && r.old[h]
	r.mu.Unlock()
	if idle {
		r.discard(h)
	}
}

// unavailable is an ErrUnavailable.
type unavailable struct {
	what  string
	cause error
}

func (e *unavailable) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrUnavailable, e.what, e.cause)
}

// aboutCalls are the errors by which a caller decides not to repeat a call, or
// learns what became of it. The failure of a handle says nothing of the kind.
var aboutCalls = []error{
	ErrConflict, ErrNotFound, ErrDropped, ErrTooLarge, ErrInvalid, ErrClosed,
	ErrUnknown, ErrRolledBack, ErrCorrupt, ErrPoisoned, ErrNewer, ErrKey,
}

// Is makes it match ErrUnavailable and whatever its cause matches, except for
// aboutCalls. There is no Unwrap, because it would expose those too.
func (e *unavailable) Is(target error) bool {
	return target == ErrUnavailable || !slices.Contains(aboutCalls, target) && errors.Is(e.cause, target)
}

// reopenCall makes a call on the handle.
func reopenCall[T any](ctx context.Context, r *reopener, writes bool, call func(Store) (T, error)) (T, error) {
	h, err := r.take(ctx, writes)
	if err != nil {
		var zero T
		return zero, err
	}
	defer r.leave(h)
	v, err := call(h.Store)
	return v, r.met(h, writes, err)
}

// reopenLoop yields items from the handle that is current when the loop begins.
func reopenLoop[T any](ctx context.Context, r *reopener, items func(Store) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		h, err := r.take(ctx, false)
		if err != nil {
			var zero T
			yield(zero, err)
			return
		}
		defer r.leave(h)
		for v, err := range items(h.Store) {
			if !yield(v, r.met(h, false, err)) || err != nil {
				return
			}
		}
	}
}

// follow calls listen with the newest handle, and again each time the handle is
// replaced, until listen returns false, ctx ends or the store is closed. The
// context given to listen ends with the handle.
func (r *reopener) follow(ctx context.Context, listen func(context.Context, Store) bool) {
	for more := true; more; {
		r.mu.Lock()
		h, closed := r.now, r.closed
		if !closed {
			h.users++
		}
		r.mu.Unlock()
		if closed {
			return
		}
		func() {
			defer r.leave(h)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(h.over, cancel)()
			more = listen(ctx, h.Store)
		}()
		more = more && ctx.Err() == nil && h.over.Err() != nil
	}
}
