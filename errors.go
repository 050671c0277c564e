package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Errors of the verbs. Those that can be the outcome of a step are matched by
// code when they are read back from the journal, see [Coded].
var (
	// ErrNoRun: a verb was called outside a run, or with the context of a
	// frame that has returned. Verbs take the context that the flow, step,
	// scope or branch was given.
	ErrNoRun = fault.ErrNoRun
	// ErrConcurrent: the frame has a verb in progress. Use a Group for what
	// runs at the same time, and inside a step the context that it was given.
	ErrConcurrent = fault.ErrConcurrent
	// ErrName: a name is empty, over 200 bytes, not printable, has / or | in it
	// or # or a space at its ends, or is taken in its frame.
	ErrName = fault.ErrName
	// ErrComposite: a step both called verbs and changed state, spent, or
	// changed deps. Put the change into a step of its own.
	ErrComposite = fault.ErrComposite
	// ErrNoLeaf: state was written, or a budget spent, outside a step.
	ErrNoLeaf = fault.ErrNoLeaf
	// ErrSuspended: the run waits for something outside. Return it; the flow
	// is called again when the run goes on.
	ErrSuspended = fault.ErrSuspended
	// ErrCancelled: the run was cancelled.
	ErrCancelled = fault.ErrCancelled
	// ErrFailedFast: another branch of the group failed, see FailFast.
	ErrFailedFast = fault.ErrFailedFast
	// ErrFenced: another worker took the run over, or this one lost the store or
	// was stopped. Return it; the flow is called again elsewhere.
	ErrFenced = fault.ErrFenced
	// ErrBlocked: the code no longer fits what the run has recorded: its steps
	// are others, or a Go type cannot read a recorded value. Mark the change with
	// Added, Dropped or Renamed, let the type read the value, or run the older
	// code.
	ErrBlocked = fault.ErrBlocked
	// ErrTimeout: a step or a Receive took longer than it may.
	ErrTimeout = fault.ErrTimeout
	// ErrExpired: an ask was not answered in time and has no default.
	ErrExpired = fault.ErrExpired
	// ErrBudget: the run has spent more than its budget.
	ErrBudget = fault.ErrBudget
	// ErrPanic: user code panicked.
	ErrPanic = fault.ErrPanic
	// ErrNotJSON: JSON cannot carry a value: it cannot be encoded, or would be
	// read back as something else. What encoding/json leaves out, such as
	// unexported fields, is left out without an error.
	ErrNotJSON = fault.ErrNotJSON
	// ErrOption: the options of a verb contradict each other.
	ErrOption = fault.ErrOption
	// ErrDep: a dep could not be made, loaded or shared, or was changed outside
	// a leaf step; the error says which.
	ErrDep = fault.ErrDep
	// ErrUnknownOutcome: nobody knows whether an at-most-once step happened. A
	// step that a cancel cut off matches it if its start is on record; without
	// it an at-most-once step that was cancelled has not begun.
	ErrUnknownOutcome = fault.ErrUnknownOutcome
	// ErrChild: a child did not succeed. The error matches the child's own codes
	// too.
	ErrChild = fault.ErrChild
	// ErrChildCancelled: a child was cancelled.
	ErrChildCancelled = fault.ErrChildCancelled
	// ErrTooLarge: a value is over the limit.
	ErrTooLarge = fault.ErrTooLarge
)

// Errors of the runtime.
var (
	// ErrNoFlow: the runtime was opened without a flow of that name.
	ErrNoFlow = fault.ErrNoFlow
	// ErrNoThread: there is no such thread.
	ErrNoThread = fault.ErrNoThread
	// ErrErased: the thread was erased, or is about to be.
	ErrErased = fault.ErrErased
	// ErrPinned: forks or children depend on the thread; see PinnedError.
	ErrPinned = fault.ErrPinned
	// ErrExists: there is a thread with that id.
	ErrExists = fault.ErrExists
	// ErrRunNotFound: the thread has no such run.
	ErrRunNotFound = fault.ErrRunNotFound
	// ErrNoAsk: there is no such ask.
	ErrNoAsk = fault.ErrNoAsk
	// ErrAskOver: the ask expired, or its run or step ended without it.
	ErrAskOver = fault.ErrAskOver
	// ErrAnswered: the ask has another answer.
	ErrAnswered = fault.ErrAnswered
	// ErrAnswer: the answer is not one that the ask allows.
	ErrAnswer = fault.ErrAnswer
	// ErrForbidden: someone else has to answer.
	ErrForbidden = fault.ErrForbidden
	// ErrBusy: the thread has a run that has not ended.
	ErrBusy = fault.ErrBusy
	// ErrQueueFull: too many inputs wait on the thread.
	ErrQueueFull = fault.ErrQueueFull
	// ErrKeyReused: the idempotency key was used with another flow or input.
	ErrKeyReused = fault.ErrKeyReused
	// ErrNothingToDo: the run is not in a state in which that means something.
	ErrNothingToDo = fault.ErrNothingToDo
	// ErrNewer: the thread was written by a newer version, and is left alone.
	ErrNewer = fault.ErrNewer
	// ErrCorrupt: an entry of the thread is damaged; what stands before it is
	// good. The error says which.
	ErrCorrupt = fault.ErrCorrupt
	// ErrStale: the thread is not at the sequence that was named; see StaleError.
	ErrStale = fault.ErrStale
	// ErrInvalid: a request makes no sense as it is.
	ErrInvalid = fault.ErrInvalid
	// ErrAhead: events are asked for behind a sequence that the thread has not
	// reached. It matches ErrInvalid too.
	ErrAhead = fault.ErrAhead
)

// Coded gives an error a code. An error that is the outcome of a step is kept
// in the journal as its codes and its message: what a step returns, now or
// when it is read back later, matches by code, with errors.Is, every error
// that carries the same one, and nothing else.
//
//	var ErrSoldOut = perdure.Coded("sold-out", errors.New("sold out"))
func Coded(code string, err error) error { return fault.Coded(code, err) }

// StepError is the failure of a step, an ask or a receive, as it is recorded: the
// Path of the step, the number of the last Attempt, and Err, which matches by
// code.
type StepError = fault.StepError

// BusyError names the run that keeps a Thread busy. It matches [ErrBusy].
type BusyError = fault.BusyError

// PinnedError lists what depends on a thread that was to be erased. It matches
// [ErrPinned].
type PinnedError = fault.PinnedError

// StaleError says that a Thread, which was to be at another sequence, is at Seq,
// or at 0 if there is no such thread: see Note.IfSeq and the other fields of that
// name. It matches [ErrStale].
type StaleError = fault.StaleError

// Stack returns the stack of the panic that failed a step or a run, given the
// error that Step returned or the run's Err. It is "" if there was none.
func Stack(err error) string { return fault.Stack(err) }

// Permanent marks an error after which a step is not tried again, whatever its
// [Retry] says.
func Permanent(err error) error { return fault.Permanent(err) }

// NotDone marks an error of an at-most-once step as certain: the effect did
// not happen and will not, so the step may be tried again.
func NotDone(err error) error { return fault.NotDone(err) }

// After marks an error after which a step with [Retry] waits at least d before
// its next attempt, for example because a service said so, at most a day. Over 2
// seconds it is a durable timer, as with Retry.
func After(d time.Duration, err error) error { return fault.After(d, err) }
