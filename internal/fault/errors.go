// Package fault holds the errors of the kernel: its sentinels, what the journal
// keeps of an error, and the marks that steer retries. It imports
// internal/journal and internal/scrub.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/store"
)

// The sentinels of package perdure, which documents them.
var (
	ErrNoRun          = Coded("outside-run", errors.New("perdure: not inside a run"))
	ErrConcurrent     = Coded("concurrent-verb", errors.New("perdure: the frame has a verb in progress; use a Group to do things at the same time"))
	ErrName           = Coded("bad-name", errors.New("perdure: bad name"))
	ErrComposite      = Coded("composite", errors.New("perdure: a step either calls verbs or changes state; put the change into a step of its own"))
	ErrNoLeaf         = Coded("no-leaf", errors.New("perdure: only a step changes state or spends; wrap the change in Step"))
	ErrSuspended      = errors.New("perdure: the run is suspended")
	ErrCancelled      = Coded("cancelled", errors.New("perdure: the run was cancelled"))
	ErrFailedFast     = Coded("failed-fast", errors.New("perdure: a sibling branch failed"))
	ErrFenced         = errors.New("perdure: this worker no longer holds the run")
	ErrBlocked        = errors.New("perdure: the flow diverged from the run's record")
	ErrTimeout        = Coded("timeout", errors.New("perdure: timed out"))
	ErrExpired        = Coded("expired", errors.New("perdure: the ask expired without an answer"))
	ErrBudget         = Coded("budget", errors.New("perdure: over budget"))
	ErrPanic          = Coded("panic", errors.New("perdure: panic"))
	ErrNotJSON        = Coded("not-json", errors.New("perdure: JSON cannot represent the value exactly"))
	ErrOption         = Coded("option", errors.New("perdure: bad option"))
	ErrDep            = Coded("dep", errors.New("perdure: dep"))
	ErrUnknownOutcome = Coded("unknown-outcome", errors.New("perdure: unknown outcome"))
	ErrChild          = Coded("child", errors.New("perdure: the child failed"))
	ErrChildCancelled = Coded("child-cancelled", errors.New("perdure: the child was cancelled"))
	ErrTooLarge       = Coded("too-large", errors.New("perdure: too large"))

	ErrNoFlow      = errors.New("perdure: unknown flow")
	ErrNoThread    = errors.New("perdure: unknown thread")
	ErrArchived    = Coded("archived", errors.New("perdure: the thread is archived"))
	ErrErased      = Coded("erased", errors.New("perdure: the thread was erased"))
	ErrRestored    = Coded("restored", errors.New("perdure: the store was restored from a backup"))
	ErrMoved       = errors.New("perdure: moved to another store")
	ErrPinned      = errors.New("perdure: other threads depend on the thread")
	ErrExists      = errors.New("perdure: the id is taken")
	ErrRunNotFound = errors.New("perdure: unknown run")
	ErrNoAsk       = errors.New("perdure: unknown ask")
	ErrNoUpload    = errors.New("perdure: unknown upload")
	ErrNoBulk      = errors.New("perdure: unknown bulk job")
	ErrNoSchedule  = errors.New("perdure: unknown schedule")
	ErrQuota       = errors.New("perdure: over a quota")
	ErrAskOver     = errors.New("perdure: the ask is closed")
	ErrAnswered    = errors.New("perdure: the ask has another answer")
	ErrAnswer      = errors.New("perdure: the answer does not fit the ask")
	ErrForbidden   = errors.New("perdure: not allowed to answer")
	ErrBusy        = errors.New("perdure: the thread is busy")
	ErrQueueFull   = errors.New("perdure: the thread's queue is full")
	ErrKeyReused   = errors.New("perdure: the idempotency key was used for something else")
	ErrNothingToDo = errors.New("perdure: nothing to do")
	ErrNewer       = errors.New("perdure: written by a newer version")
	ErrCorrupt     = errors.New("perdure: the journal is damaged")
	ErrStale       = errors.New("perdure: the thread has moved on")
	ErrInvalid     = errors.New("perdure: invalid request")
	ErrAhead       = fmt.Errorf("%w: the thread is not there yet", ErrInvalid)
)

// Coded gives an error a code: see perdure.Coded.
func Coded(code string, err error) error { return &coded{Clip(code, maxCode), orNil(err)} }

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

// Recorded is an error as the journal keeps it.
type Recorded struct{ Fail journal.Failure }

func (r *Recorded) Error() string { return r.Fail.Msg }

func (r *Recorded) Is(target error) bool {
	t, ok := target.(*coded)
	return ok && slices.Contains(r.Fail.Codes, t.code)
}

// Stack returns the stack of the panic that failed a step or a run, or "" if
// there was none.
func Stack(err error) string {
	if err == nil {
		return ""
	}
	return Failure(err).Stack
}

const (
	MaxMessage = 16 << 10
	maxCode    = 200
	maxStack   = 8 << 10
)

// Failure returns what the journal keeps of an error.
func Failure(err error) *journal.Failure { return FailureWithout(nil, err) }

// FailureWithout returns what the journal keeps of an error that may quote secrets.
func FailureWithout(secrets *scrub.Set, err error) *journal.Failure {
	f := &journal.Failure{Msg: Clip(secrets.Limited(err.Error(), 2*MaxMessage), MaxMessage)}
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case nil:
			return
		case *coded:
			AddCodes(f, e.code)
		case *Recorded:
			AddCodes(f, e.Fail.Codes...)
			f.Stack = cmp.Or(f.Stack, e.Fail.Stack)
		case *marked:
			if e.permanent {
				AddCodes(f, codePermanent)
			}
		case *Panicked:
			AddCodes(f, "panic")
			f.Stack = Clip(secrets.Limited(e.Stack, 2*maxStack), maxStack)
		}
		if err == context.DeadlineExceeded {
			AddCodes(f, "timeout")
		}
		for _, err := range wrapped(err) {
			walk(err)
		}
	}
	walk(err)
	return f
}

// wrapped returns the errors that err wraps.
func wrapped(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// AddCodes adds the codes that a failure does not have.
func AddCodes(f *journal.Failure, codes ...string) {
	for _, c := range codes {
		if !slices.Contains(f.Codes, c) {
			f.Codes = append(f.Codes, c)
		}
	}
}

// Clip returns the beginning of a text that is longer than limit, as valid UTF-8.
func Clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + " …"
}

// Sound returns an error of user code if its methods can be called. One that
// panics, such as a nil pointer in an error, is a panic of that code.
func Sound(err error) (safe error) {
	if err == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			safe = &Panicked{Value: fmt.Sprintf("an error of type %T cannot be read: %v", err, r), Stack: string(debug.Stack())}
		}
	}()
	_ = Failure(err)
	_ = errors.Is(err, ErrCancelled)
	return err
}

// Panicked is a panic of user code.
type Panicked struct {
	Value any
	Stack string
}

func (p *Panicked) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

func (p *Panicked) Unwrap() error {
	if err, ok := p.Value.(error); ok {
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

// RetryAfter returns the longest time that an error was marked with.
func RetryAfter(err error) time.Duration {
	const longest = 24 * time.Hour
	d := time.Duration(0)
	if m, ok := err.(*marked); ok {
		d = m.after
	}
	for _, err := range wrapped(err) {
		d = max(d, RetryAfter(err))
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

// IsPermanent reports whether a step that returned err is not tried again.
func IsPermanent(err error) bool {
	return isAny(err, ErrNotJSON, ErrComposite, ErrOption, ErrBudget) || slices.Contains(Failure(err).Codes, codePermanent)
}

// IsNotDone reports whether an error says that nothing happened. Of several
// that are joined, all have to say so.
func IsNotDone(err error) bool {
	switch e := err.(type) {
	case *marked:
		return e.notDone || IsNotDone(e.err)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if err != nil && !IsNotDone(err) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	case interface{ Unwrap() error }:
		return IsNotDone(e.Unwrap())
	}
	return false
}

// IsCut reports whether an error says that something was given up, or not begun,
// because the run was cancelled or a branch beside it failed.
func IsCut(err error) bool { return isAny(err, ErrCancelled, ErrFailedFast) }

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// Interrupted reports whether an error is what the runtime told the code.
func Interrupted(err error) bool {
	return isAny(err, ErrSuspended, ErrFenced, ErrBlocked)
}

// CheckText refuses text that is too long or not UTF-8, which JSON would change.
func CheckText(what, text string, limit int) error {
	if len(text) > limit || !utf8.ValidString(text) {
		return fmt.Errorf("%w: %s must be text of at most %d bytes, not %.40q of %d", ErrInvalid, what, limit, text, len(text))
	}
	return nil
}

// SeenKey is the key of the metadata that says that someone has seen a failure. Only
// the runtime writes it.
const SeenKey = "perdure.seen"

// ownMetadata begins the keys of metadata that only the runtime writes.
const ownMetadata = "perdure."

// IsOwnMetadata reports whether a key of metadata is the runtime's own.
func IsOwnMetadata(key string) bool { return strings.HasPrefix(key, ownMetadata) }

// CheckMetadata refuses metadata that is too long or not UTF-8, or the runtime's own.
func CheckMetadata(metadata map[string]string) error {
	for k := range metadata {
		switch {
		case k == SeenKey:
			return fmt.Errorf("%w: the metadata %s is the runtime's own; say that a failure was seen with MarkSeen, or perdure seen", ErrInvalid, SeenKey)
		case IsOwnMetadata(k):
			return fmt.Errorf("%w: the metadata %.100q is the runtime's own; use a key that does not begin with %s", ErrInvalid, k, ownMetadata)
		}
	}
	return CheckMetadataSize(metadata)
}

// CheckMetadataSize refuses metadata that is too long or not UTF-8.
func CheckMetadataSize(metadata map[string]string) error {
	size := 0
	for k, v := range metadata {
		if err := errors.Join(CheckText("a metadata key", k, 200), CheckText("metadata", v, 16<<10)); err != nil {
			return err
		}
		size += len(k) + len(v)
	}
	if size > 16<<10 {
		return fmt.Errorf("%w: metadata of %d bytes; the limit is %d", ErrInvalid, size, 16<<10)
	}
	return nil
}

// StaleError reports that a thread is not at the required sequence: see Note.IfSeq
// and the other fields of that name. It matches ErrStale.
type StaleError struct {
	Thread string
	Seq    uint64 // of its last entry; 0: there is no such thread
}

// Error names the sequence.
func (e *StaleError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("%v: there is no thread %s", ErrStale, e.Thread)
	}
	return fmt.Sprintf("%v: thread %s is at %d", ErrStale, e.Thread, e.Seq)
}

// Unwrap makes errors.Is(err, ErrStale) true.
func (e *StaleError) Unwrap() error { return ErrStale }

// CheckSeq returns an error if a thread is not at a sequence, 0 for any. A change is
// decided with it: what it then appends goes behind that very sequence or is
// decided again. It comes last, behind what would fail or do nothing anyway, but
// before anything is done outside the thread.
func CheckSeq(t *journal.Thread, id string, want uint64) error {
	if want == 0 || t.Seq == want {
		return nil
	}
	return &StaleError{Thread: id, Seq: t.Seq}
}

// PinnedError names the forks and children that keep a thread from being
// erased. It matches ErrPinned.
type PinnedError struct {
	Thread string
	By     []string // ids of threads
}

// Error names them.
func (e *PinnedError) Error() string {
	return fmt.Sprintf("%v: thread %s by %s", ErrPinned, e.Thread, strings.Join(e.By, ", "))
}

// Unwrap makes errors.Is(err, ErrPinned) true.
func (e *PinnedError) Unwrap() error { return ErrPinned }

// ErasedError says that a thread was erased. It matches ErrErased, and
// ErrNoThread for those who do not care why there is none.
type ErasedError struct {
	Thread string // id or name
	Err    error  // of the store, if it was that which told
}

func (e *ErasedError) Error() string { return fmt.Sprintf("%v: %s", ErrErased, e.Thread) }

func (e *ErasedError) Unwrap() []error { return []error{ErrErased, ErrNoThread, e.Err} }

// ArchivedError says that a thread is in the archive: see perdure.ArchivedError. It
// matches ErrArchived.
type ArchivedError struct {
	Thread string
	At     time.Time // when it was archived
	Where  string    // the URL of the place, and the name of the object in it
}

// Error says how to get it back.
func (e *ArchivedError) Error() string {
	return fmt.Sprintf("%v: %q, since %s; restore it first: perdure unarchive %s", ErrArchived, e.Thread, e.At.UTC().Format(time.RFC3339), e.Thread)
}

// Unwrap makes errors.Is(err, ErrArchived) true.
func (e *ArchivedError) Unwrap() error { return ErrArchived }

// MovedError says that a thread, or all of them, continue in another store: see
// perdure.MovedError. It matches ErrMoved.
type MovedError struct {
	Thread string // its id, "" for the whole store
	To     string // the name of that store
}

// Error says where to.
func (e *MovedError) Error() string {
	what := "the store is read-only"
	if e.Thread != "" {
		what = "thread " + e.Thread + " is read-only here"
	}
	return fmt.Sprintf("%v: %s and continues in %s; connect to that store", ErrMoved, what, e.To)
}

// Unwrap makes errors.Is(err, ErrMoved) true.
func (e *MovedError) Unwrap() error { return ErrMoved }

// MovingError says that a request took so long while the store moved to another one
// that nobody knows whether what it has written was copied. It matches
// store.ErrUnknown, and store.ErrUnavailable for those who do not care why.
type MovingError struct {
	To string // the name of that store
}

func (e *MovingError) Error() string {
	return fmt.Sprintf("%v: the store has moved to %s meanwhile, and the change may not have moved with it; look there before you repeat it, or repeat it there with the same idempotency key", store.ErrUnknown, e.To)
}

func (e *MovingError) Unwrap() []error { return []error{store.ErrUnknown, store.ErrUnavailable} }

// IfDropped makes ErrErased of the answer of a journal that was dropped.
func IfDropped(name string, err error) error {
	if errors.Is(err, store.ErrDropped) && !errors.Is(err, ErrErased) {
		return &ErasedError{Thread: name, Err: err}
	}
	return err
}

// QuotaError says which quota a tenant has used up. It matches ErrQuota.
type QuotaError struct {
	Quota string        // threads, bytes, runs, starts, streams, running bulk jobs, or schedules
	Limit int64         // the maximum
	Retry time.Duration // after which there may be room again; 0 if time does not help
	Help  string        // what to do
}

// Error says what to do.
func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: the tenant may have %d %s; %s", ErrQuota, e.Limit, e.Quota, e.Help)
}

// Unwrap makes errors.Is(err, ErrQuota) true.
func (e *QuotaError) Unwrap() error { return ErrQuota }

// BusyError says which run keeps a thread busy. It matches ErrBusy.
type BusyError struct{ Thread, Run string }

// Error names the run.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: thread %s has run %s", ErrBusy, e.Thread, e.Run)
}

// Unwrap makes errors.Is(err, ErrBusy) true.
func (e *BusyError) Unwrap() error { return ErrBusy }
