package faulty

import (
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/store"
)

// ErrInjected is the error of every failed call; an *[Error] says which call
// failed. It matches none of the definite errors of the contract: for all the caller
// knows, the write may have happened.
var ErrInjected = errors.New("faulty: injected failure")

// Call is one call of the store.
type Call struct {
	Op   store.Op
	Name string // the journal, cell or prefix; for Journals the name it starts after
	N    int    // its number among all calls, from 1
	W    int    // its number among the writes, from 1; 0 if it is a read
}

func (c Call) String() string {
	if c.W == 0 {
		return fmt.Sprintf("%s %q (call %d)", c.Op, c.Name, c.N)
	}
	return fmt.Sprintf("%s %q (call %d, write %d)", c.Op, c.Name, c.N, c.W)
}

// Fault is what happens to a call. The zero value is no fault.
type Fault struct {
	kind  kind
	crash bool
	delay time.Duration
	items int
}

type kind int

const (
	none kind = iota
	failBefore
	failAfter
	failAmid
	conflict
	delay
	freeze
)

// The faults without a parameter.
var (
	// None lets the call through.
	None = Fault{}

	// FailBefore fails the call without calling the store inside.
	FailBefore = Fault{kind: failBefore}

	// FailAfter calls the store inside and loses its result. A read yields
	// everything and then fails; a loop that is left early does not see the
	// failure.
	FailAfter = Fault{kind: failAfter}

	// CrashBefore is FailBefore, and every later call fails too: the process
	// died before the call. Other calls in progress may still happen, but
	// their results are lost.
	CrashBefore = Fault{kind: failBefore, crash: true}

	// CrashAfter is FailAfter, and every later call fails too: the process
	// died right after the call.
	CrashAfter = Fault{kind: failAfter, crash: true}

	// Conflict makes an Append, Put or Delete return a spurious ErrConflict,
	// as an engine may. Other calls are let through.
	Conflict = Fault{kind: conflict}

	// Freeze blocks the call until Thaw, and then lets it through. If its
	// context ends first, the call returns that error and the store inside is
	// not called.
	Freeze = Fault{kind: freeze}
)

// FailAmid makes a read fail after k items, or at its end if it has fewer. Other
// calls fail without calling the store inside.
func FailAmid(k int) Fault { return Fault{kind: failAmid, items: k} }

// Delay makes the call wait for d first. If its context ends meanwhile, the call
// returns that error and the store inside is not called.
func Delay(d time.Duration) Fault { return Fault{kind: delay, delay: d} }

func (f Fault) String() string {
	switch f.kind {
	case failBefore, failAfter:
		what := "fail"
		if f.crash {
			what = "crash"
		}
		if f.kind == failBefore {
			return what + " before"
		}
		return what + " after"
	case failAmid:
		return fmt.Sprintf("fail after %d items", f.items)
	case conflict:
		return "spurious conflict"
	case delay:
		return "delay by " + f.delay.String()
	case freeze:
		return "freeze"
	}
	return "none"
}

// Error is an injected failure. It matches [ErrInjected] and, once the store has
// crashed, store.ErrPoisoned as well: the handle is useless, so a caller that
// would repeat the call until it succeeds may stop.
type Error struct {
	Call  Call  // the call at which the fault was planned
	Fault Fault // the fault
}

// Error names the call and the fault.
func (e *Error) Error() string {
	msg := fmt.Sprintf("%v: %s %s", ErrInjected, e.Fault, e.Call)
	if e.Fault.crash {
		msg += "; wrap the store anew to go on"
	}
	return msg
}

// Is makes errors.Is match ErrInjected and, after a crash, ErrPoisoned.
func (e *Error) Is(target error) bool {
	return target == ErrInjected || e.Fault.crash && target == store.ErrPoisoned
}
