package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Errors of the verbs. Those that can be the outcome of a step match by code
// when they are read back from the journal: see [Coded].
var (
	// ErrNoRun: a verb was called outside a run, or with the context of a
	// frame that has returned. Verbs take the context that the flow, step,
	// scope or branch was given.
	ErrNoRun = fault.ErrNoRun
	// ErrConcurrent: the frame already has a verb in progress. To run verbs
	// at the same time use a Group; inside a step use the context that the
	// step was given.
	ErrConcurrent = fault.ErrConcurrent
	// ErrName: a name is empty, longer than 200 bytes or not printable,
	// contains / or |, begins or ends with # or a space, or is already taken
	// in its frame.
	ErrName = fault.ErrName
	// ErrComposite: a step both called verbs and changed state, spent, or
	// changed deps. Put the change into a step of its own.
	ErrComposite = fault.ErrComposite
	// ErrNoLeaf: state was written, or a budget spent, outside a step.
	ErrNoLeaf = fault.ErrNoLeaf
	// ErrSuspended: the run is waiting for something outside it. Return the
	// error; the flow is called again when the run continues.
	ErrSuspended = fault.ErrSuspended
	// ErrCancelled: the run was cancelled.
	ErrCancelled = fault.ErrCancelled
	// ErrFailedFast: another branch of the group failed, see FailFast.
	ErrFailedFast = fault.ErrFailedFast
	// ErrFenced: another worker took over the run, or this worker lost the
	// store or was stopped. Return the error; the flow is called again
	// elsewhere.
	ErrFenced = fault.ErrFenced
	// ErrBlocked: the code no longer matches what the run has recorded: its
	// steps differ, or a Go type cannot decode a recorded value. Mark the change
	// with Added, Dropped or Renamed, make the type accept the value, or run the
	// older code.
	ErrBlocked = fault.ErrBlocked
	// ErrTimeout: a step or a Receive exceeded its timeout.
	ErrTimeout = fault.ErrTimeout
	// ErrExpired: an ask was not answered in time and has no default.
	ErrExpired = fault.ErrExpired
	// ErrBudget: the run has spent more than its budget.
	ErrBudget = fault.ErrBudget
	// ErrPanic: user code panicked.
	ErrPanic = fault.ErrPanic
	// ErrNotJSON: JSON cannot represent a value: it cannot be encoded, or would
	// decode to a different value. Whatever encoding/json omits, such as
	// unexported fields, is omitted without an error.
	ErrNotJSON = fault.ErrNotJSON
	// ErrOption: the options of a verb contradict each other.
	ErrOption = fault.ErrOption
	// ErrDep: a dep could not be created, loaded or shared, or was changed
	// outside a leaf step; the error says which.
	ErrDep = fault.ErrDep
	// ErrUnknownOutcome: nobody knows whether an at-most-once step happened. When
	// a cancellation cuts such a step off, its error matches ErrUnknownOutcome if
	// its start was recorded; otherwise the step has not begun.
	ErrUnknownOutcome = fault.ErrUnknownOutcome
	// ErrChild: a child did not succeed. The error matches the child's own codes
	// too.
	ErrChild = fault.ErrChild
	// ErrChildCancelled: a child was cancelled.
	ErrChildCancelled = fault.ErrChildCancelled
	// ErrTooLarge: a value exceeds the size limit.
	ErrTooLarge = fault.ErrTooLarge
)

// Errors of the runtime.
var (
	// ErrNoFlow: the runtime was opened without a flow of that name.
	ErrNoFlow = fault.ErrNoFlow
	// ErrNoThread: there is no such thread.
	ErrNoThread = fault.ErrNoThread
	// ErrArchived: the thread is in the archive; see ArchivedError and
	// Runtime.Restore.
	ErrArchived = fault.ErrArchived
	// ErrErased: the thread was erased, or is about to be.
	ErrErased = fault.ErrErased
	// ErrRestored: the position in a thread dates from before its store was restored
	// from a backup. The thread still exists, but from some point on its events may
	// differ: read it again from the beginning.
	ErrRestored = fault.ErrRestored
	// ErrMoved: the thread, or the whole store, was migrated to another store, and
	// can only be read here; see MovedError.
	ErrMoved = fault.ErrMoved
	// ErrPinned: forks or children depend on the thread; see PinnedError.
	ErrPinned = fault.ErrPinned
	// ErrExists: a thread with that id already exists.
	ErrExists = fault.ErrExists
	// ErrRunNotFound: the thread has no such run.
	ErrRunNotFound = fault.ErrRunNotFound
	// ErrNoUpload: there is no such upload, or it has expired.
	ErrNoUpload = fault.ErrNoUpload
	// ErrQuota: the request would exceed a quota; a [QuotaError] says which. Servers
	// have quotas for tenants. A runtime by itself limits only running bulk jobs and
	// schedules, see [Runtime.StartBulk] and [Runtime.PutSchedule].
	ErrQuota = fault.ErrQuota
	// ErrNoAsk: there is no such ask.
	ErrNoAsk = fault.ErrNoAsk
	// ErrNoBulk: there is no such bulk job, see [Runtime.StartBulk].
	ErrNoBulk = fault.ErrNoBulk
	// ErrNoSchedule: there is no such schedule, see [Runtime.PutSchedule].
	ErrNoSchedule = fault.ErrNoSchedule
	// ErrAskOver: the ask expired, or its run or step ended without an answer.
	ErrAskOver = fault.ErrAskOver
	// ErrAnswered: the ask already has a different answer.
	ErrAnswered = fault.ErrAnswered
	// ErrAnswer: the ask does not allow that answer.
	ErrAnswer = fault.ErrAnswer
	// ErrForbidden: this person may not answer; others may.
	ErrForbidden = fault.ErrForbidden
	// ErrBusy: the thread has a run that has not ended.
	ErrBusy = fault.ErrBusy
	// ErrQueueFull: too many inputs are waiting on the thread.
	ErrQueueFull = fault.ErrQueueFull
	// ErrKeyReused: the idempotency key was used with another flow or input, or with
	// another signal.
	ErrKeyReused = fault.ErrKeyReused
	// ErrNothingToDo: the operation does not apply to the run in its current
	// state.
	ErrNothingToDo = fault.ErrNothingToDo
	// ErrNewer: the thread was written by a newer version and is left alone.
	ErrNewer = fault.ErrNewer
	// ErrCorrupt: an entry of the thread is damaged; the entries before it are
	// intact. The error says which one.
	ErrCorrupt = fault.ErrCorrupt
	// ErrStale: the thread is not at the given sequence; see StaleError.
	ErrStale = fault.ErrStale
	// ErrInvalid: the request is invalid.
	ErrInvalid = fault.ErrInvalid
	// ErrAhead: the request is for events after a sequence that the thread has
	// not reached. It matches ErrInvalid too.
	ErrAhead = fault.ErrAhead
)

// Coded gives an error a code. The journal keeps the error of a step as its codes
// and its message. So the error that a step returns, now or when it is read back
// later, matches (as errors.Is has it) every error that carries one of its codes, and
// nothing else.
//
//	var ErrSoldOut = perdure.Coded("sold-out", errors.New("sold out"))
func Coded(code string, err error) error { return fault.Coded(code, err) }

// StepError is the recorded failure of a step, an ask or a receive: the Path of
// the step, the number of the last Attempt, and Err, which matches by code.
type StepError = fault.StepError

// QuotaError says which quota a tenant has used up, and what to do. It matches
// [ErrQuota].
type QuotaError = fault.QuotaError

// BusyError names the run that keeps a Thread busy. It matches [ErrBusy].
type BusyError = fault.BusyError

// PinnedError lists what depends on a thread that could therefore not be erased.
// It matches [ErrPinned].
type PinnedError = fault.PinnedError

// ArchivedError reports that Thread was archived, when (At) and to where: Where is the
// URL of the place and the name of the object in it. It matches [ErrArchived].
type ArchivedError = fault.ArchivedError

// MovedError reports that Thread, or the whole store if Thread is "", was migrated to
// the store called To, and can only be read here. It matches [ErrMoved].
type MovedError = fault.MovedError

// StaleError reports that Thread is at Seq (0 if there is no such thread) and not at
// the sequence that the caller required: see Note.IfSeq and the other fields of that
// name. It matches [ErrStale].
type StaleError = fault.StaleError

// Stack returns the stack of the panic that failed a step or a run, or "" if
// there was none. The error is the one that Step returned, or the run's Err.
func Stack(err error) string { return fault.Stack(err) }

// Permanent marks an error after which a step is not retried, regardless of its
// [Retry] policy.
func Permanent(err error) error { return fault.Permanent(err) }

// NotDone marks an error of an at-most-once step as certain: the effect did
// not happen and will not, so the step may be retried.
func NotDone(err error) error { return fault.NotDone(err) }

// After marks an error after which a step with [Retry] waits at least d before
// its next attempt, for example because a service asks for that. The wait is at most a
// day; a wait of more than 2 seconds is a durable timer, as with Retry.
func After(d time.Duration, err error) error { return fault.After(d, err) }
