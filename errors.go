package perdure

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/scrub"
)

// Errors of the verbs. Those that can be the outcome of a step are matched by
// code when they are read back from the journal, see [Coded].
var (
	// ErrNoRun: a verb was called outside a run, or with the context of a
	// frame that has returned. Verbs take the context that the flow, step,
	// scope or branch was given.
	ErrNoRun = errors.New("perdure: not inside a run")
	// ErrConcurrent: the frame has a verb in progress. Use a Group for what
	// runs at the same time, and inside a step the context that it was given.
	ErrConcurrent = errors.New("perdure: the frame has a verb in progress; use a Group to do things at the same time")
	// ErrName: a name is empty, over 200 bytes, not printable, has / or | in it
	// or # or a space at its ends, or is taken in its frame.
	ErrName = errors.New("perdure: bad name")
	// ErrComposite: a step both called verbs and changed state, spent, or
	// changed deps. Put the change into a step of its own.
	ErrComposite = Coded("composite", errors.New("perdure: a step either calls verbs or changes state; put the change into a step of its own"))
	// ErrNoLeaf: state was written, or a budget spent, outside a step.
	ErrNoLeaf = errors.New("perdure: only a step changes state or spends; wrap the change in Step")
	// ErrSuspended: the run waits for something outside. Return it; the flow
	// is called again when the run goes on.
	ErrSuspended = errors.New("perdure: the run is suspended")
	// ErrCancelled: the run was cancelled.
	ErrCancelled = Coded("cancelled", errors.New("perdure: the run was cancelled"))
	// ErrFailedFast: another branch of the group failed, see FailFast.
	ErrFailedFast = Coded("failed-fast", errors.New("perdure: a branch beside this one failed"))
	// ErrFenced: another worker took the run over, or this one lost the store or
	// was stopped. Return it; the flow is called again elsewhere.
	ErrFenced = errors.New("perdure: the run is no longer this worker's")
	// ErrBlocked: the code no longer fits what the run has recorded: its steps
	// are others, or a Go type cannot read a recorded value. Mark the change with
	// Added, Dropped or Renamed, let the type read the value, or run the older
	// code.
	ErrBlocked = errors.New("perdure: the flow diverged from what the run has recorded")
	// ErrTimeout: a step or a Receive took longer than it may.
	ErrTimeout = Coded("timeout", errors.New("perdure: timed out"))
	// ErrExpired: an ask was not answered in time and has no default.
	ErrExpired = Coded("expired", errors.New("perdure: the ask expired without an answer"))
	// ErrBudget: the run has spent more than its budget.
	ErrBudget = Coded("budget", errors.New("perdure: over budget"))
	// ErrPanic: user code panicked.
	ErrPanic = Coded("panic", errors.New("perdure: panic"))
	// ErrNotJSON: JSON cannot carry a value: it cannot be encoded, or would be
	// read back as something else. What encoding/json leaves out, such as
	// unexported fields, is left out without an error.
	ErrNotJSON = Coded("not-json", errors.New("perdure: JSON cannot carry the value exactly"))
	// ErrOption: the options of a verb contradict each other.
	ErrOption = Coded("option", errors.New("perdure: bad option"))
	// ErrDep: a dep could not be made, loaded or shared, or was changed outside
	// a leaf step; the error says which.
	ErrDep = Coded("dep", errors.New("perdure: dep"))
	// ErrUnknownOutcome: nobody knows whether an at-most-once step happened. A
	// step that a cancel cut off matches it if its start is on record; without
	// it an at-most-once step that was cancelled has not begun.
	ErrUnknownOutcome = Coded("unknown-outcome", errors.New("perdure: unknown outcome"))
	// ErrChild: a child did not succeed. The error matches the child's own codes
	// too.
	ErrChild = Coded("child", errors.New("perdure: the child failed"))
	// ErrChildCancelled: a child was cancelled.
	ErrChildCancelled = Coded("child-cancelled", errors.New("perdure: the child was cancelled"))
	// ErrTooLarge: a value is over the limit.
	ErrTooLarge = Coded("too-large", errors.New("perdure: too large"))
)

// Errors of the runtime.
var (
	// ErrNoFlow: the runtime was opened without a flow of that name.
	ErrNoFlow = errors.New("perdure: unknown flow")
	// ErrNoThread: there is no such thread.
	ErrNoThread = errors.New("perdure: unknown thread")
	// ErrErased: the thread was erased, or is about to be.
	ErrErased = Coded("erased", errors.New("perdure: the thread was erased"))
	// ErrPinned: forks or children depend on the thread; see PinnedError.
	ErrPinned = errors.New("perdure: other threads depend on the thread")
	// ErrExists: there is a thread with that id.
	ErrExists = errors.New("perdure: the thread exists")
	// ErrRunNotFound: the thread has no such run.
	ErrRunNotFound = errors.New("perdure: unknown run")
	// ErrNoAsk: there is no such ask.
	ErrNoAsk = errors.New("perdure: unknown ask")
	// ErrAskOver: the ask expired, or its run or step ended without it.
	ErrAskOver = errors.New("perdure: the ask is over")
	// ErrAnswered: the ask has another answer.
	ErrAnswered = errors.New("perdure: the ask has another answer")
	// ErrAnswer: the answer is not one that the ask allows.
	ErrAnswer = errors.New("perdure: the answer does not fit the ask")
	// ErrForbidden: someone else has to answer.
	ErrForbidden = errors.New("perdure: not allowed to answer")
	// ErrBusy: the thread has a run that has not ended.
	ErrBusy = errors.New("perdure: the thread is busy")
	// ErrQueueFull: too many inputs wait on the thread.
	ErrQueueFull = errors.New("perdure: the thread's queue is full")
	// ErrKeyReused: the idempotency key was used with another flow or input.
	ErrKeyReused = errors.New("perdure: the idempotency key was used for something else")
	// ErrNothingToDo: the run is not in a state in which that means something.
	ErrNothingToDo = errors.New("perdure: nothing to do")
	// ErrNewer: the thread was written by a newer version, and is left alone.
	ErrNewer = errors.New("perdure: written by a newer version")
	// ErrCorrupt: an entry of the thread is damaged; what stands before it is
	// good. The error says which.
	ErrCorrupt = errors.New("perdure: the journal is damaged")
	// ErrStale: the thread is not at the sequence that was named; see StaleError.
	ErrStale = errors.New("perdure: the thread has moved on")
	// ErrInvalid: a request makes no sense as it is.
	ErrInvalid = errors.New("perdure: invalid request")
	// ErrAhead: events are asked for behind a sequence that the thread has not
	// reached. It matches ErrInvalid too.
	ErrAhead = fmt.Errorf("%w: the thread is not there yet", ErrInvalid)
)

// Coded gives an error a code. An error that is the outcome of a step is kept
// in the journal as its codes and its message: what a step returns, now or
// when it is read back later, matches by code, with errors.Is, every error
// that carries the same one, and nothing else.
//
//	var ErrSoldOut = perdure.Coded("sold-out", errors.New("sold out"))
func Coded(code string, err error) error { return &coded{clip(code, maxCode), orNil(err)} }

type coded struct {
	code string
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// Is makes the sentinel match what was recorded under its code.
func (c *coded) Is(target error) bool {
	t, ok := target.(*coded)
	return ok && t.code == c.code
}

// StepError is the failure of a step, an ask or a receive, as it is recorded.
type StepError struct {
	Path    string // of the step
	Attempt int    // the attempt that was the last
	Err     error  // as recorded: it matches by code
}

// Error names the step and says why it failed.
func (e *StepError) Error() string {
	if e.Attempt > 1 {
		return fmt.Sprintf("%s (attempt %d): %v", e.Path, e.Attempt, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Path, e.Err)
}

// Unwrap returns the recorded error.
func (e *StepError) Unwrap() error { return e.Err }

// recorded is an error as the journal keeps it.
type recorded struct{ fail journal.Failure }

func (r *recorded) Error() string { return r.fail.Msg }

func (r *recorded) Is(target error) bool {
	t, ok := target.(*coded)
	return ok && slices.Contains(r.fail.Codes, t.code)
}

// Stack returns the stack of the panic that failed a step or a run, given the
// error that Step returned or the run's Err. It is "" if there was none.
func Stack(err error) string {
	if err == nil {
		return ""
	}
	return failure(err).Stack
}

const (
	maxMessage = 16 << 10
	maxCode    = 200
	maxStack   = 8 << 10
)

// failure returns what the journal keeps of an error.
func failure(err error) *journal.Failure { return failureWithout(nil, err) }

// failure returns what the journal keeps of an error of the pass's user code,
// without the secrets that the run was given.
func (p *pass) failure(err error) *journal.Failure { return failureWithout(p.secrets, err) }

func failureWithout(secrets *scrub.Set, err error) *journal.Failure {
	f := &journal.Failure{Msg: clip(secrets.Limited(err.Error(), 2*maxMessage), maxMessage)}
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case nil:
			return
		case *coded:
			addCodes(f, e.code)
		case *recorded:
			addCodes(f, e.fail.Codes...)
			if f.Stack == "" {
				f.Stack = e.fail.Stack
			}
		case *marked:
			if e.permanent {
				addCodes(f, codePermanent)
			}
		case *panicked:
			addCodes(f, "panic")
			f.Stack = clip(secrets.Limited(e.stack, 2*maxStack), maxStack)
		}
		if err == context.DeadlineExceeded {
			addCodes(f, "timeout")
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		}
	}
	walk(err)
	return f
}

func addCodes(f *journal.Failure, codes ...string) {
	for _, c := range codes {
		if !slices.Contains(f.Codes, c) {
			f.Codes = append(f.Codes, c)
		}
	}
}

func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + " …"
}

// sound returns an error of user code if its methods can be called. One that
// panics, such as a nil pointer in an error, is a panic of that code.
func sound(err error) (safe error) {
	if err == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			safe = &panicked{value: fmt.Sprintf("an error of type %T cannot be read: %v", err, r), stack: string(debug.Stack())}
		}
	}()
	_ = failure(err)
	_ = errors.Is(err, ErrCancelled)
	return err
}

// panicked is a panic of user code.
type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (p *panicked) Unwrap() error {
	if err, ok := p.value.(error); ok {
		return err
	}
	return ErrPanic
}

// codePermanent keeps the mark of Permanent in the journal, so that a composite
// step does not try again what its inner step called permanent.
const codePermanent = "permanent"

// Permanent marks an error after which a step is not tried again, whatever its
// [Retry] says.
func Permanent(err error) error { return &marked{err: orNil(err), permanent: true} }

// NotDone marks an error of an at-most-once step as certain: the effect did
// not happen and will not, so the step may be tried again.
func NotDone(err error) error { return &marked{err: orNil(err), notDone: true} }

// orNil lets a mark stand for itself where there is nothing to mark.
func orNil(err error) error {
	if err == nil {
		return errors.New("perdure: no error was given")
	}
	return err
}

// After marks an error after which a step with [Retry] waits at least d before
// its next attempt, for example because a service said so, at most a day. Over 2
// seconds it is a durable timer, as with Retry.
func After(d time.Duration, err error) error { return &marked{err: orNil(err), after: d} }

// retryAfter returns the longest time that an error was marked with.
func retryAfter(err error) time.Duration {
	const longest = 24 * time.Hour
	d := time.Duration(0)
	if m, ok := err.(*marked); ok {
		d = m.after
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			d = max(d, retryAfter(err))
		}
	case interface{ Unwrap() error }:
		d = max(d, retryAfter(e.Unwrap()))
	}
	return min(d, longest)
}

type marked struct {
	err                error
	permanent, notDone bool
	after              time.Duration
}

func (m *marked) Error() string { return m.err.Error() }
func (m *marked) Unwrap() error { return m.err }

func isPermanent(err error) bool {
	for _, own := range []error{ErrNotJSON, ErrComposite, ErrOption, ErrBudget} {
		if errors.Is(err, own) {
			return true
		}
	}
	return slices.Contains(failure(err).Codes, codePermanent)
}

// isNotDone reports whether an error says that nothing happened. Of several
// that are joined, all have to say so.
func isNotDone(err error) bool {
	switch e := err.(type) {
	case *marked:
		return e.notDone || isNotDone(e.err)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if err != nil && !isNotDone(err) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	case interface{ Unwrap() error }:
		return isNotDone(e.Unwrap())
	}
	return false
}
