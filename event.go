package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// Event is the public form of a journal entry. Its id is Seq. The kinds:
//
//   - of a thread: created, metadata, signal, forked (a fork begins), rewound, erased,
//     nudge (means nothing)
//   - of a run: queued, claimed (a worker began a pass), suspended, released (the
//     worker released it), blocked, quarantined, ended
//   - of a step: step (its outcome), attempt (it failed and will be retried), intent
//     (an at-most-once step is about to start)
//   - of other verbs: asked, timer, waiting, received, took, emitted, planned,
//     spawned (a child is about to be started; its end arrives as a signal)
//   - of what a run waits for: answered, expired, progress, fired (a timer is due)
//   - by a person: cancel, paused, resumed, retried
//   - dumped (deps were saved inside a step), problem (something went wrong, but the
//     run continues)
//
// Later versions may add some.
type Event struct {
	Thread    string          `json:"thread"`
	Seq       uint64          `json:"seq"`            // dense from 1 in its thread
	Life      string          `json:"life,omitempty"` // of a thread that reuses the id of an erased one, see [Runtime.Tag]
	Kind      string          `json:"kind"`
	Time      time.Time       `json:"time"`
	Run       string          `json:"run,omitempty"`      // id
	Path      string          `json:"path,omitempty"`     // of the verb
	Name      string          `json:"name,omitempty"`     // of a signal, dep or flow
	Attempt   int             `json:"attempt,omitempty"`  // of a failed attempt
	Attempts  int             `json:"attempts,omitempty"` // how many there may be
	TookUS    int64           `json:"took_us,omitempty"`  // how long the function of a leaf step ran in this attempt, in microseconds
	Value     json.RawMessage `json:"value,omitempty"`    // result, input, payload, answer or output
	ValueOf   uint64          `json:"value_of,omitempty"` // the event that holds the value, if it is another one
	Error     string          `json:"error,omitempty"`
	Ask       string          `json:"ask,omitempty"`       // id
	AskKind   string          `json:"ask_kind,omitempty"`  // of an ask that begins
	Decisions []string        `json:"decisions,omitempty"` // the decisions that it allows
	Child     string          `json:"child,omitempty"`     // id of its thread
	Decision  string          `json:"decision,omitempty"`
	By        string          `json:"by,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Status    Status          `json:"status,omitempty"`
	Due       time.Time       `json:"due,omitzero"`
	Plan      []string        `json:"plan,omitempty"`
	Diff      string          `json:"diff,omitempty"`
	Worker    string          `json:"worker,omitempty"`
	From      string          `json:"from,omitempty"`   // id of the thread that a fork comes from
	At        uint64          `json:"at,omitempty"`     // the last sequence that both share
	Import    bool            `json:"import,omitempty"` // all earlier events were imported, so what they say about people is unverified
	Signer    string          `json:"signer,omitempty"` // the trusted key that signed the file
	Keep      []string        `json:"keep,omitempty"`   // ids of the asks whose answers count in the fork although they have had no effect
	To        uint64          `json:"to,omitempty"`     // the sequence that a rewind went back to
}

// EventOptions selects events.
type EventOptions struct {
	After  uint64 // only events after this sequence; ErrAhead if the thread has not reached it
	Run    string // only events of this run
	Replay bool   // end after the existing events instead of waiting for new ones
	Life   string // require this [Runtime.Life] or [Runtime.Tag]; ErrErased if another thread has the id
}

// event returns the event of an entry, without values in blobs unless they are
// requested.
func (c *core) event(ctx context.Context, name, run string, e journal.Entry, blobs bool) (Event, error) {
	ev := Event{Seq: e.Seq, Kind: string(e.Kind), Time: clock.Stamp(e.Time), Run: run, Path: tree.Names(e.Path)}
	if !e.Kind.Known() {
		return ev, nil
	}
	b, err := e.Read()
	if err != nil {
		return ev, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, e.Seq, err)
	}
	ev.Name, ev.Attempt, ev.Attempts, ev.TookUS, ev.By, ev.Reason, ev.Status = b.Name, b.Attempt, b.Most, b.Took, b.By, b.Reason, Status(b.Status)
	if e.Kind == journal.Step || e.Kind == journal.Ended {
		ev.ValueOf = b.Ref
	}
	if ev.Child = b.Child; journal.IsChildSignal(b.Name) {
		ev.Name, ev.Child = "", journal.ChildOf(b.Name)
	}
	ev.Due, ev.Plan, ev.Diff, ev.Worker = clock.Stamp(b.Due), b.Plan, b.Diff, b.Worker
	if b.Flow != "" {
		ev.Name = b.Flow
	}
	if b.Fail != nil {
		ev.Error = b.Fail.Msg
	}
	value := b.Value
	switch {
	case e.Kind == journal.Asked && b.Ask != nil:
		ev.Ask, value = threads.AskID(name, e.ID), b.Ask.Data
		ev.Name, ev.AskKind, ev.Decisions = b.Ask.Prompt, b.Ask.Kind, b.Ask.Decisions
	case b.Of != "":
		ev.Ask = threads.AskID(name, b.Of)
	case e.Kind == journal.Forked && b.From != nil:
		ev.From, ev.At, ev.Import, ev.Signer = b.From.Thread, b.At, b.From.Imported(), b.From.Key
		for _, id := range b.Keep {
			ev.Keep = append(ev.Keep, threads.AskID(name, id))
		}
	case e.Kind == journal.Rewound:
		ev.To = b.At
	}
	if b.Answer != nil {
		ev.Decision, ev.By, ev.Reason, value = b.Answer.Decision, b.Answer.By, b.Answer.Message, b.Answer.Value
	}
	if value.Blob == nil || blobs {
		ev.Value, err = c.threads.Load(ctx, name, value)
	}
	return ev, err
}

// Events yields the events of a thread in order, each once: the existing ones, and
// then new ones as any process appends them, until the context ends. After an
// error it yields nothing more; the error is ErrErased if the thread is erased in the
// meantime, and ErrArchived if it is archived. If the thread has moved to another store,
// the last event, whatever Run is, has the kind moved; a [MovedError] follows it unless
// Replay is set.
func (r *Runtime) Events(ctx context.Context, thread string, o EventOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		name, err := r.tenant.Find(ctx, thread)
		tag := ""
		if err == nil {
			tag, err = r.tenant.Tag(ctx, name, thread)
		}
		if o.Life != "" && (errors.Is(err, fault.ErrNoThread) || err == nil && threads.Self(name) != threads.Self(o.Life) && tag != o.Life) {
			err = &fault.ErasedError{Thread: thread}
			if name != "" && r.core.threads.WasRestored() {
				err = fmt.Errorf("%w: thread %s in the life %s", ErrRestored, thread, o.Life)
			}
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		each := yield
		yield = func(e Event, err error) bool { // its journal may be gone when this is the next to look
			return each(e, r.core.threads.IfArchived(ctx, threads.Empty(name), err))
		}
		if err := r.core.threads.CheckErased(ctx, name); err != nil {
			yield(Event{}, err)
			return
		}
		f := r.follow(ctx, name, thread, o.After)
		f.tag = tag
		if o.Replay {
			f.more(ctx, o, yield)
			return
		}
		for range store.Watch(ctx, r.core.threads.Store, threads.JournalKey(name)) {
			if !f.more(ctx, o, yield) {
				return
			}
			if f.moved != "" {
				yield(Event{}, &fault.MovedError{Thread: thread, To: f.moved})
				return
			}
		}
		if ctx.Err() == nil {
			yield(Event{}, store.ErrClosed)
		}
	}
}

// follower reads a journal entry by entry.
type follower struct {
	core   *core
	name   string
	thread string // its id, also for what a fork shares
	tag    string // see Tag
	seq    uint64
	head   journal.Hash
	moved  string            // where the thread continues, "" if it has not moved
	runs   map[uint64]string // ids by number
}

// follow returns a follower that begins at the thread's snapshot, if nothing
// before it is wanted and the next entry shows that it fits.
func (r *Runtime) follow(ctx context.Context, name, thread string, after uint64) *follower {
	f := &follower{core: r.core, name: name, thread: thread, runs: map[uint64]string{}}
	if after < threads.MinSnapshot {
		return f
	}
	o := r.core.threads.Restored(ctx, name, after)
	if o == nil {
		return f
	}
	for line, err := range r.core.threads.Entries(ctx, name, o.Thread.Seq, o.Thread.Seq+1) {
		if err == nil {
			_, err = journal.Decode(o.Thread.Head, line.Seq, line.Data)
		}
		if err == nil {
			f.seq, f.head = o.Thread.Seq, o.Thread.Head
			for _, run := range slices.Concat(o.Thread.Runs, o.Thread.Inbox) {
				f.runs[run.N] = run.ID
			}
		}
		break
	}
	return f
}

// more yields what was appended since, and reports whether to go on.
func (f *follower) more(ctx context.Context, o EventOptions, yield func(Event, error) bool) bool {
	for line, err := range f.core.threads.Entries(ctx, f.name, f.seq, 0) {
		if ctx.Err() != nil {
			return false
		}
		var ev Event
		if err == nil {
			ev, err = f.next(ctx, line, line.Seq > o.After)
		}
		if bad := (*store.CorruptError)(nil); errors.As(err, &bad) && !errors.Is(err, fault.ErrCorrupt) {
			err = fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
		}
		if errors.Is(err, fault.ErrCorrupt) {
			f.core.threads.MarkDamaged(ctx, threads.Empty(f.name))
		}
		if err != nil {
			yield(Event{}, fmt.Errorf("perdure: events of thread %s after %d: %w", f.thread, f.seq, err))
			return false
		}
		if line.Seq <= o.After || o.Run != "" && ev.Run != o.Run && (o.Replay || f.moved == "") {
			continue
		}
		if !yield(ev, nil) {
			return false
		}
	}
	if f.seq < o.After {
		yield(Event{}, fmt.Errorf("%w: it ends at %d, so there is nothing after %d", fault.ErrAhead, f.seq, o.After))
		return false
	}
	return true
}

func (f *follower) next(ctx context.Context, line store.Entry, wanted bool) (Event, error) {
	e, err := journal.Decode(f.head, line.Seq, line.Data)
	if err != nil {
		if errors.Is(err, journal.ErrNewer) {
			return Event{}, fmt.Errorf("%w: entry %d: %w", fault.ErrNewer, line.Seq, err)
		}
		return Event{}, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
	}
	f.seq, f.head = e.Seq, e.Hash
	if e.Kind == journal.Erased {
		if b, err := e.Read(); err == nil && b.Name == journal.ToArchive {
			return Event{}, &fault.ArchivedError{Thread: f.thread, At: clock.Stamp(e.Time)}
		}
		return Event{}, &fault.ErasedError{Thread: f.thread}
	}
	if e.Kind == journal.Queued || e.Kind == journal.Moved {
		b, err := e.Read()
		if err != nil {
			return Event{}, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		if e.Kind == journal.Moved {
			f.moved = b.Name
		} else {
			f.runs[e.Seq] = b.ID
		}
	}
	if !wanted {
		return Event{}, nil
	}
	run := f.runs[e.Run]
	if e.Kind == journal.Queued {
		run = f.runs[e.Seq]
	}
	ev, err := f.core.event(ctx, f.name, run, e, true)
	ev.Thread, ev.Life = f.thread, f.tag
	return ev, err
}

// DeltaEvent is live data of a step: see Delta. It is void when the step's event
// arrives, or a delta of a later attempt or pass. A worker that takes over from a
// dead one repeats the same attempt in a later pass.
type DeltaEvent struct {
	Run     string          `json:"run"`
	Path    string          `json:"path"`
	Pass    uint64          `json:"pass"` // grows each time a worker takes up the thread
	Attempt int             `json:"attempt"`
	Offset  int64           `json:"offset"` // of the delta within the attempt of the pass
	Data    json.RawMessage `json:"data"`
}

// Deltas yields the deltas of a thread until the context ends. It begins with what the
// steps running in this process have sent so far, except those that have sent more than
// 64 KiB. It may miss some.
func (r *Runtime) Deltas(ctx context.Context, thread string) iter.Seq2[DeltaEvent, error] {
	return func(yield func(DeltaEvent, error) bool) {
		name, err := r.tenant.Find(ctx, thread)
		if err != nil {
			yield(DeltaEvent{}, err)
			return
		}
		for d := range engine.Deltas(ctx, r.core.threads, name) {
			if !yield(DeltaEvent(d), nil) {
				return
			}
		}
	}
}

// After a thread was erased another can have its id. That an id was used is all
// that stays of the first, as a keyed hash; it lets events of the second have
// ids of their own, so that a reader of the first does not go on with it.

// Life returns a value that distinguishes a thread from others that had the same id: it
// changes when the thread is erased and its id reused. It is for callers that read a
// thread in pieces.
func (r *Runtime) Life(ctx context.Context, thread string) (string, error) {
	return r.tenant.Find(ctx, thread)
}

// Tag returns the suffix of a thread's event ids in the API: "" for the first
// thread with its id, and a keyed hash of its life for one that reuses the id of
// an erased thread. [Event] and [Thread] have it as their Life.
func (r *Runtime) Tag(ctx context.Context, thread string) (string, error) {
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return "", err
	}
	return r.tenant.Tag(ctx, name, thread)
}
