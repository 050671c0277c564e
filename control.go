package perdure

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/tree"
)

// AskAnswer is an answer to an ask.
type AskAnswer struct {
	Ask string `json:"ask"` // id of the ask, from AskInfo or Event
	Answer
	Groups []string `json:"-"` // that By is in, according to the caller; they are not recorded
	IfSeq  uint64   `json:"-"` // answer only if this is still the thread's last sequence, else StaleError; 0 answers in any case
	Attach []string `json:"-"` // ids of uploads that the value refers to, see Upload
}

// Answer answers asks of one thread, all or nothing. Each answer is checked before
// it is stored: who gives it, its decision, and the JSON kind and schema of its
// value. A refused answer leaves the run unchanged. A value that passes but does
// not fit the code's type, as 300 does not fit an int8, is stored and blocks the
// run; a schema keeps such values out. The first answer wins: repeating it changes
// nothing, and a different one is ErrAnswered. An unknown ask is ErrNoAsk; an ask that
// has expired or whose run has ended is ErrAskOver, even if no worker has recorded the
// expiry yet. If any IfSeq that is given does not hold, no answer is stored.
func (r *Runtime) Answer(ctx context.Context, answers ...AskAnswer) error {
	given := make([]lifecycle.AskAnswer, len(answers))
	for i, a := range answers {
		given[i] = lifecycle.AskAnswer{Ask: a.Ask, By: a.By, Groups: a.Groups, IfSeq: a.IfSeq, Attach: a.Attach}
	}
	return r.life.Answer(ctx, given, func(ctx context.Context, name string, i int, q *journal.Question) (journal.Answer, error) {
		return r.core.engine.KeepAnswer(ctx, name, q, engine.Answer(answers[i].Answer))
	})
}

// Progress reports progress on an open ask to its watchers, as an event of kind
// "progress". The run does not see it.
func (r *Runtime) Progress(ctx context.Context, ask string, v any, n Note) error {
	raw, err := exact.Encode(v, reflect.TypeOf(v))
	if err != nil {
		return fmt.Errorf("progress of ask %s: %w", ask, err)
	}
	return r.life.Progress(ctx, ask, raw, lifecycle.Note(n))
}

// SignalOptions configures a signal.
type SignalOptions struct {
	Key    string // idempotency key: the thread gets one signal per key; reusing a key with another name, value or files is ErrKeyReused
	By     string
	IfSeq  uint64   // send only if this is still the thread's last sequence, else StaleError; 0 sends in any case
	Attach []string // ids of uploads that the value refers to, see Upload
}

// Signal sends a named event to a thread. The oldest Receive that waits for it
// gets it; if there is none, the signal is kept for the next one.
func (r *Runtime) Signal(ctx context.Context, thread, name string, v any, o SignalOptions) error {
	if err := tree.CheckName(name); err != nil {
		return fmt.Errorf("%w: signal: %w", fault.ErrName, err)
	}
	if err := errors.Join(fault.CheckText("the key", o.Key, 500), fault.CheckText("who sends", o.By, 500)); err != nil {
		return err
	}
	if journal.IsChildSignal(o.Key) {
		return fmt.Errorf("%w: the key %q is reserved for the ends of children", fault.ErrInvalid, o.Key)
	}
	raw, err := exact.Encode(v, reflect.TypeOf(v))
	if err != nil {
		return fmt.Errorf("signal %q: %w", name, err)
	}
	return r.life.Signal(ctx, thread, name, o.Key, raw, o.Attach, lifecycle.Note{By: o.By, IfSeq: o.IfSeq})
}

// Note says who does something, and why.
type Note struct {
	By, Reason string
	IfSeq      uint64 // act only if this is still the thread's last sequence, else StaleError; 0 acts in any case
}

// Cancel cancels a run: no new step starts, only cleanups do. A run that has
// not begun, or is blocked or quarantined, ends without running code.
func (r *Runtime) Cancel(ctx context.Context, thread, run string, n Note) error {
	return r.life.Cancel(ctx, thread, run, lifecycle.Note(n))
}

// Pause stops a run before its next step, until Resume.
func (r *Runtime) Pause(ctx context.Context, thread, run string, n Note) error {
	return r.life.Pause(ctx, thread, run, lifecycle.Note(n))
}

// Resume lifts a pause. If the run is not paused, it returns ErrNothingToDo.
func (r *Runtime) Resume(ctx context.Context, thread, run string, n Note) error {
	return r.life.Resume(ctx, thread, run, lifecycle.Note(n))
}

// Retry continues a failed run: the last failure is forgotten and the work done
// again, with the same keys. It also continues blocked and quarantined runs. It is
// refused once a cleanup has run or a later run has begun: start a new run then.
func (r *Runtime) Retry(ctx context.Context, thread, run string, n Note) error {
	return r.life.Retry(ctx, thread, run, lifecycle.Note(n))
}

// SetMetadata changes a thread's title, unless title is nil, and its metadata; an
// empty value removes a key. Keys that begin with perdure. belong to the runtime: a
// request may contain them only with the values that they already have.
func (r *Runtime) SetMetadata(ctx context.Context, thread string, title *string, metadata map[string]string, n Note) error {
	return r.life.SetMetadata(ctx, thread, title, metadata, lifecycle.Note(n))
}

// EraseOptions configures an erase.
type EraseOptions struct {
	Note
	Dependents bool // forks and children are erased too
}

// Erase removes a thread and everything stored with it, whatever its state. Only a
// tombstone under a random name is left, without anything that anyone gave to the
// thread. Its id can be reused for a new thread. While other threads depend on it,
// Erase is refused with a [PinnedError] that names them.
//
// After an error call it again: it continues where it was cut off. ErrNoThread
// means that there is nothing left to erase.
//
// With an IfSeq, the thread itself is erased at that sequence or not at all. But its
// dependents are erased first, so some of them may be gone by the time Erase finds that
// the thread has a newer entry. After an interrupted erase the thread cannot be forked
// until Erase is called again or the thread gets a new entry.
func (r *Runtime) Erase(ctx context.Context, thread string, o EraseOptions) error {
	return r.life.Erase(ctx, thread, lifecycle.Note(o.Note), o.Dependents)
}
