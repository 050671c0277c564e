package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// Effect is something that a thread did outside itself.
type Effect struct {
	Seq  uint64 `json:"seq"`
	Kind string `json:"kind"` // "step", "intent" for an at-most-once step of unknown outcome, or "spawned"
	Path string `json:"path"`
}

// ForkRequest asks for a fork: see perdure.ForkRequest.
type ForkRequest struct {
	Thread string
	At     uint64
	As     string
	Title  string
	Input  any
	State  map[string]any
	Keep   bool
	By     string
	Groups []string
	Reason string
	IfSeq  uint64
}

// Fork is a thread that was forked: see perdure.Fork.
type Fork struct {
	Thread  string   `json:"thread"`
	From    string   `json:"from"`
	At      uint64   `json:"at"`
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"`
}

// Fork creates a thread that shares another's past up to a sequence and is
// independent from there on: see perdure.Runtime.Fork.
func (r *Control) Fork(ctx context.Context, q ForkRequest) (*Fork, error) {
	if err := errors.Join(fault.CheckText("the title", q.Title, 1000), fault.CheckText("who asks", q.By, 500), fault.CheckText("the reason", q.Reason, 16<<10)); err != nil {
		return nil, err
	}
	if err := r.threads.CheckMoved(ctx); err != nil {
		return nil, err
	}
	from, err := r.tenant.Find(ctx, q.Thread)
	if err != nil {
		return nil, err
	}
	made := uint64(0)
	if q.As != "" {
		if made, err = r.forkedAt(ctx, from, q.As); err != nil {
			return nil, err
		}
	}
	if q.At == 0 {
		q.At = made
	}
	if q.IfSeq != 0 && made == 0 {
		last, _, err := r.threads.EntryAt(ctx, from, 0)
		if err == nil && last != q.IfSeq {
			err = &fault.StaleError{Thread: q.Thread, Seq: last}
		}
		if err != nil {
			return nil, err
		}
	}
	if q.At, err = r.checkPoint(ctx, q.Thread, from, q.At); err != nil {
		return nil, err
	}
	edits, err := r.edits(ctx, from, q)
	if err != nil {
		return nil, err
	}
	if q.As == "" {
		q.As = threads.NewRunID()
	}
	if err := threads.CheckID(q.As); err != nil {
		return nil, err
	}
	edits.Void = true
	if edits.From, err = r.originOf(ctx, from, q); err != nil {
		return nil, err
	}
	if edits.Keep, err = r.keptAnswers(ctx, from, q); err != nil {
		return nil, err
	}
	var name string
	if made == 0 {
		if err := threads.Admit(ctx, threads.Growth{Thread: true}); err != nil {
			return nil, err
		}
	}
	for try := range 10 {
		if name, err = r.createFork(ctx, from, q); err == nil {
			err = r.beginFork(ctx, from, name, q, edits)
		}
		if !errors.Is(err, fault.ErrErased) || name == "" {
			break
		}
		// A Start has abandoned the half-made fork, or the other thread is
		// being erased and nothing of the fork may remain.
		if err := r.abandon(ctx, q.As, name); err != nil && !errors.Is(err, errBegun) {
			return nil, err
		}
		if gone, goneErr := r.threads.IsErased(ctx, from); gone || goneErr != nil {
			err = errors.Join(err, goneErr)
			break
		}
		if try == 9 {
			err = fmt.Errorf("%w: or rather, that was begun and has not ended; erase the thread, or change its title to keep it, and then fork it", &fault.ErasedError{Thread: q.Thread})
		}
	}
	if err != nil {
		return nil, err
	}
	_ = r.threads.SummariseFork(ctx, name, from, q.At, q.Input != nil || len(q.State) > 0) // if it fails, a list that comes to the rough one reads the thread
	f := &Fork{Thread: q.As, From: q.Thread, At: q.At}
	f.Outside, f.More, err = r.outside(ctx, from, q.At)
	return f, err
}

// originOf returns what a fork records about the thread it was forked from.
func (r *Control) originOf(ctx context.Context, from string, q ForkRequest) (*journal.Origin, error) {
	inside, err := r.threads.InsideImport(ctx, from, q.At)
	if inside && q.Keep && err == nil {
		err = fmt.Errorf("%w: entry %d of thread %s was imported; there are no answers from here to keep", fault.ErrInvalid, q.At, q.Thread)
	}
	return &journal.Origin{Name: from, Thread: q.Thread, Inside: inside}, err
}

// keptAnswers returns the ids of the asks whose answers count in a fork although
// they have had no effect. The requester has to be allowed to answer them all.
func (r *Control) keptAnswers(ctx context.Context, from string, q ForkRequest) ([]string, error) {
	if !q.Keep {
		return nil, nil
	}
	o, err := r.threads.ReadAt(ctx, from, q.At)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, t := range o.Trees {
		for _, id := range t.Unused() {
			a := o.Thread.Ask(id)
			if a != nil && !journal.May(a.Question.Who, q.By, q.Groups) {
				return nil, fmt.Errorf("%w: the answer to ask %s cannot be kept: %q may not give it", fault.ErrForbidden, threads.AskID(from, id), q.By)
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// forkedAt returns the point at which an existing fork of the thread begins, or 0
// if there is none: a request repeated without a point means the same point.
func (r *Control) forkedAt(ctx context.Context, from, as string) (uint64, error) {
	name, err := r.tenant.Find(ctx, as)
	if errors.Is(err, fault.ErrNoThread) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	at, err := r.threads.RootOf(ctx, name)
	if threads.IsGone(err) {
		return 0, nil // its remains are cleared later
	}
	if err != nil || at.Parent != from {
		return 0, err
	}
	return at.Base, nil
}

// checkPoint returns the sequence at which a thread is forked.
func (r *Control) checkPoint(ctx context.Context, thread, name string, at uint64) (uint64, error) {
	last, _, err := r.threads.EntryAt(ctx, name, at)
	switch {
	case err != nil:
		return 0, err
	case last == 0:
		return 0, fmt.Errorf("%w: %q", fault.ErrNoThread, thread)
	case last < at:
		return 0, fmt.Errorf("%w: thread %s ends at %d and cannot be forked at %d", fault.ErrInvalid, thread, last, at)
	}
	return last, nil
}

// createFork creates the cells of a fork, or finds those of an earlier attempt.
func (r *Control) createFork(ctx context.Context, from string, q ForkRequest) (string, error) {
	now := clock.Now()
	parent, _ := r.threads.ReadSummary(ctx, from) // a hint: Get is exact
	// A list completes the summary. Until the pin is written, nothing is copied
	// from the other thread: it may be erased and leave the copy behind.
	s := threads.Summary{ID: q.As, Title: q.Title, Status: journal.StatusPaused, Created: now.UnixMicro(), Updated: now.UnixMicro(), From: from, Rough: true}
	name, err := r.nameFor(ctx, q.As, r.tenant.NewName(now, threads.ForkMark, parent.User), true, r.threads.Ensure)
	if err != nil {
		return "", err
	}
	// A fork of another thread must not become a pin of this one.
	if at, err := r.threads.RootOf(ctx, name); err != nil || at.Parent != "" && at.Parent != from {
		if err == nil {
			err = fmt.Errorf("%w: %q is a fork of another thread", fault.ErrExists, q.As)
		}
		return name, err
	}
	if err := r.threads.EnsureSummary(ctx, name, s); err != nil {
		return name, err
	}
	return name, r.pinOrAbandon(ctx, from, q.As, name)
}

// beginFork appends the first entry of a fork, unless it exists already.
func (r *Control) beginFork(ctx context.Context, from, name string, q ForkRequest, edits journal.Body) error {
	// Read again after pinning: from now on the thread cannot be erased.
	at, head, err := r.threads.EntryAt(ctx, from, q.At)
	if err == nil && at != q.At {
		err = fmt.Errorf("%w: thread %s ends at %d", fault.ErrInvalid, q.Thread, at)
	}
	if errors.Is(err, fault.ErrErased) {
		return errors.Join(err, r.threads.Unpin(ctx, from, name))
	}
	if err != nil {
		return err
	}
	if err := r.threads.Fit(ctx, r.threads.Store, name, &edits); err != nil {
		return err
	}
	b := edits
	b.Thread, b.Tenant, b.At, b.By, b.Reason = q.As, r.tenant.Name, q.At, q.By, q.Reason
	origin := *edits.From
	origin.Head = head.String()
	b.From = &origin
	if q.Title != "" {
		b.Title = &q.Title
	}
	t := &journal.Thread{Seq: q.At, Head: head, Base: q.At}
	entries, data, err := threads.EncodeLines(t, []threads.Line{{Kind: journal.Forked, Body: b}})
	if err != nil {
		return err
	}
	switch err := r.threads.Append(ctx, threads.Seen(name, t), data, nil); {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrTooLarge):
		return fmt.Errorf("%w: %w", fault.ErrTooLarge, err)
	case !errors.Is(err, store.ErrConflict):
		return err
	}
	for line, err := range r.threads.Store.Read(ctx, threads.JournalKey(name), 0) {
		if err != nil {
			return err
		}
		e, err := journal.Peek(line.Seq, line.Data)
		if err != nil {
			return fmt.Errorf("%w: thread %s, entry %d: %w", fault.ErrCorrupt, q.As, line.Seq, err)
		}
		if e.Kind == journal.Erased {
			return &fault.ErasedError{Thread: q.As} // abandoned before it began
		}
		if older := b; !bytes.Equal(e.Body, entries[0].Body) {
			// Forks of an older version keep all answers, and record the same request differently.
			if older.Void = false; !q.Keep {
				if was, err := older.Encode(); err == nil && bytes.Equal(e.Body, was) {
					return nil
				}
			}
			err = fmt.Errorf("%w: %q is another fork", fault.ErrExists, q.As)
			if made, readErr := e.Read(); readErr == nil && made.From != nil && made.From.Name != from {
				err = errors.Join(err, r.threads.Unpin(ctx, from, name))
			}
		}
		return err
	}
	return fmt.Errorf("%w: %q", fault.ErrBusy, q.As) // refused although it is empty
}

// edits returns the changes that a fork makes, checked against the thread at
// that point.
func (r *Control) edits(ctx context.Context, from string, q ForkRequest) (b journal.Body, err error) {
	if q.Input == nil && len(q.State) == 0 {
		return b, nil
	}
	o, err := r.threads.ReadAt(ctx, from, q.At)
	if err != nil {
		return b, err
	}
	if q.Input != nil {
		var active *journal.Run
		for _, run := range o.Thread.Runs {
			if !run.Status.Final() {
				active = run
			}
		}
		if active == nil {
			return b, fmt.Errorf("%w: at %d of thread %s no run was active, so there is no input to replace", fault.ErrInvalid, q.At, q.Thread)
		}
		raw, err := r.checkInput(active.Flow, q.Input)
		if err != nil {
			return b, err
		}
		b.Ref, b.Value = active.N, journal.Value{JSON: raw}
	}
	for _, key := range slices.Sorted(maps.Keys(q.State)) {
		if err := threads.CheckKey(key); err != nil {
			return b, err
		}
		if q.State[key] == nil {
			b.State = append(b.State, journal.Change{Key: key, Delete: true})
			continue
		}
		raw, err := exact.Encode(q.State[key], reflect.TypeOf(q.State[key]))
		if err != nil {
			return b, fmt.Errorf("state %q: %w", key, err)
		}
		if item := o.Thread.State[key]; item.Tail != nil && !item.Text && exact.KindOfJSON(raw) != "array" {
			return b, fmt.Errorf("%w: state %q is a list and cannot be set to %.40s", fault.ErrInvalid, key, raw)
		}
		b.State = append(b.State, journal.Change{Key: key, Set: &journal.Value{JSON: raw}})
	}
	return b, nil
}

// maxOutside is how many effects a fork or rewind lists, and maxEntriesRead how
// many entries it reads for them.
const maxOutside, maxEntriesRead = 1000, 10_000

// outside lists what a thread did outside itself after a sequence.
func (c *Control) outside(ctx context.Context, name string, after uint64) (list []Effect, more bool, err error) {
	intents := map[string]int{}
	for e, err := range c.threads.Peek(ctx, name, after, 0) {
		if err != nil || e.Seq > after+maxEntriesRead || len(list) >= maxOutside {
			return list, true, nil // Verify locates the damage
		}
		if e.Kind != journal.Step && e.Kind != journal.Intent && e.Kind != journal.Spawned {
			continue
		}
		b, err := e.Read()
		if err != nil || e.Kind == journal.Step && b.Fail != nil {
			continue
		}
		key := fmt.Sprint(e.Run, e.Path)
		if at, ok := intents[key]; ok && e.Kind == journal.Step {
			list[at].Kind, list[at].Seq = string(e.Kind), e.Seq
			continue
		}
		if e.Kind == journal.Intent {
			intents[key] = len(list)
		}
		list = append(list, Effect{Seq: e.Seq, Kind: string(e.Kind), Path: tree.Names(e.Path)})
	}
	return list, false, nil
}

// Rewound says what a rewind did: see perdure.Rewound.
type Rewound struct {
	Thread  string   `json:"thread"`
	To      uint64   `json:"to"`
	Seq     uint64   `json:"seq"`
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"`
}

// Rewind takes a thread back to an earlier sequence: see perdure.Runtime.Rewind.
func (r *Control) Rewind(ctx context.Context, thread string, to uint64, n Note) (*Rewound, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return nil, err
	}
	past, err := r.threads.ReadAt(ctx, name, to)
	if err != nil {
		return nil, err
	}
	switch run := past.Thread.Busy(); {
	case to == 0 || past.Thread.Seq != to:
		return nil, fmt.Errorf("%w: thread %s ends at %d and cannot go back to %d", fault.ErrInvalid, thread, past.Thread.Seq, to)
	case run != nil:
		return nil, fmt.Errorf("%w: at %d of thread %s run %s was %s; go back to a point where no run was active (the last one before that is %d), or fork the thread there", fault.ErrInvalid, to, thread, run.ID, run.Status, r.threads.Boundary(ctx, name, to))
	}
	o, entries, err := r.tenant.ChangeID(ctx, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if run := t.Busy(); run != nil {
			return nil, nil, fmt.Errorf("%w; wait for it, cancel it, or fork the thread", &fault.BusyError{Thread: thread, Run: run.ID})
		}
		if t.Seq == to {
			return nil, nil, fmt.Errorf("%w: thread %s is already at %d", fault.ErrNothingToDo, thread, to)
		}
		if err := fault.CheckSeq(t, thread, n.IfSeq); err != nil {
			return nil, nil, err
		}
		// First tell a parent that waits for the end of a run that will be
		// taken back.
		if err := r.TellParent(ctx, &threads.Opened{Name: name, Thread: t}); err != nil && !errors.Is(err, fault.ErrCorrupt) {
			return nil, nil, err
		}
		return []threads.Line{{Kind: journal.Rewound, Body: journal.Body{At: to, Void: true, By: n.By, Reason: n.Reason}}}, nil, nil
	})
	if err != nil {
		return nil, err
	}
	r.threads.Snapshot(ctx, o)
	w := &Rewound{Thread: thread, To: to, Seq: entries[0].Seq}
	w.Outside, w.More, err = r.outside(ctx, name, to)
	return w, err
}
