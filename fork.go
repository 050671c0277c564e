package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// ForkRequest asks for a fork of a thread.
type ForkRequest struct {
	Thread string         // that is forked
	At     uint64         // the sequence of the last entry that both share; 0: as it is now
	As     string         // id of the fork; "": a generated one
	Title  string         // of the fork; "": the same
	Input  any            // replaces the input of the newest run that had not ended there, if not nil
	State  map[string]any // keys to be set, or removed if nil, as if the newest outcome there had changed them
	By     string         // who asks for it
	Reason string
}

// Fork is a thread that was forked.
type Fork struct {
	Thread string `json:"thread"` // its id
	From   string `json:"from"`   // id of the thread that it was forked from
	At     uint64 `json:"at"`     // the last sequence that both share

	// Outside lists what was done in the other thread behind that point. It is
	// not in the fork, and what it did outside is not undone.
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"` // there is more than is listed
}

// Effect is something that a thread did which reaches outside of it.
type Effect struct {
	Seq  uint64 `json:"seq"`
	Kind string `json:"kind"` // "step"; "intent": an at-most-once step of which nobody knows; "spawned": a child
	Path string `json:"path"`
}

// Fork makes a new thread that shares the past of another up to a sequence, any
// one, and goes on by itself. The other is not changed by it. It costs the same
// however long that is, unless Input or State is given.
//
// Runs that had not ended there are paused in the fork: Resume lets them go on,
// Cancel ends them. Their open asks have ids of their own in the fork, children
// that had not been joined are spawned anew, and every Key is another, so that
// the fork never repeats an effect under a key of the thread that it comes from.
//
// The same request with the same As can be repeated. A fork keeps the other
// thread from being erased, see Erase. An edited input does not undo what the
// run has recorded: to begin with it, fork at the sequence of the run's entry.
func (r *Runtime) Fork(ctx context.Context, q ForkRequest) (*Fork, error) {
	if err := errors.Join(checkText("the title", q.Title, 1000), checkText("who asks", q.By, 500), checkText("the reason", q.Reason, 16<<10)); err != nil {
		return nil, err
	}
	from, err := r.find(ctx, q.Thread)
	if err != nil {
		return nil, err
	}
	if q.At, err = r.checkPoint(ctx, q.Thread, from, q.At); err != nil {
		return nil, err
	}
	edits, err := r.edits(ctx, from, q)
	if err != nil {
		return nil, err
	}
	if q.As == "" {
		q.As = newRunID()
	}
	if err := checkThreadID(q.As); err != nil {
		return nil, err
	}
	name, s, err := r.createFork(ctx, from, q)
	if err != nil {
		return nil, err
	}
	if err := r.beginFork(ctx, from, name, q, edits); err != nil {
		return nil, err
	}
	_, _ = store.Update(ctx, r.store, journalOf(name), func(old store.Cell) ([]byte, error) {
		if old.Version == "" {
			return nil, errNothing
		}
		s.Seq = q.At + 1
		return json.Marshal(s)
	})
	f := &Fork{Thread: q.As, From: q.Thread, At: q.At}
	f.Outside, f.More, err = r.outside(ctx, from, q.At)
	return f, err
}

// checkPoint returns the sequence at which a thread is forked.
func (r *Runtime) checkPoint(ctx context.Context, thread, name string, at uint64) (uint64, error) {
	last, _, err := r.entryAt(ctx, name, at)
	switch {
	case err != nil:
		return 0, err
	case last == 0:
		return 0, fmt.Errorf("%w: %q", ErrNoThread, thread)
	case last < at:
		return 0, fmt.Errorf("%w: thread %s ends at %d, it cannot be forked at %d", ErrInvalid, thread, last, at)
	}
	return last, nil
}

// entryAt returns the sequence and hash of the entry at a sequence, of the last
// one if that is 0 or beyond it. It reads no more than it must.
func (c *core) entryAt(ctx context.Context, name string, at uint64) (uint64, journal.Hash, error) {
	after := at
	if at > 0 {
		after = at - 1
	} else if cell, err := c.store.Get(ctx, journalOf(name)); err == nil {
		var s summary
		if json.Unmarshal(cell.Value, &s) == nil && s.Seq > 0 {
			after = s.Seq - 1
		}
	}
	var last journal.Entry
	for line, err := range c.entries(ctx, name, after) {
		if err != nil {
			if errors.Is(err, store.ErrDropped) {
				err = fmt.Errorf("%w: %w", ErrErased, err)
			}
			return 0, last.Hash, err
		}
		if last, err = journal.Peek(line.Seq, line.Data); err != nil {
			return 0, last.Hash, fmt.Errorf("%w: entry %d: %w", ErrCorrupt, line.Seq, err)
		}
		if last.Kind == journal.Erased {
			return 0, last.Hash, ErrErased
		}
		if at > 0 {
			break
		}
	}
	if last.Seq == 0 && after > 0 { // beyond the end: where is that?
		return c.entryAt(ctx, name, 0)
	}
	return last.Seq, last.Hash, nil
}

// createFork makes the cells of a fork, or finds those of an earlier try.
func (r *Runtime) createFork(ctx context.Context, from string, q ForkRequest) (string, summary, error) {
	now := clock()
	s := summary{Status: Paused}
	if cell, err := r.store.Get(ctx, journalOf(from)); err == nil {
		_ = json.Unmarshal(cell.Value, &s) // a hint: Get is exact
	}
	s.ID, s.Title, s.Created, s.Updated, s.Seq = q.As, or(q.Title, s.Title), now.UnixMicro(), now.UnixMicro(), 0
	if !s.Status.Final() {
		s.Status = Paused
	}
	name, err := r.name(ctx, q.As, r.newName(now, forkMark, s.User), true)
	if err != nil {
		return "", s, err
	}
	value, err := json.Marshal(s)
	if err != nil {
		return "", s, err
	}
	if _, err := r.ensure(ctx, journalOf(name), value); err != nil {
		return "", s, err
	}
	return name, s, r.pin(ctx, from, name)
}

// beginFork appends the first entry of a fork, unless it is there.
func (r *Runtime) beginFork(ctx context.Context, from, name string, q ForkRequest, edits journal.Body) error {
	// Read again behind the pin: from now on it cannot be erased.
	at, head, err := r.entryAt(ctx, from, q.At)
	if err == nil && at != q.At {
		err = fmt.Errorf("%w: thread %s ends at %d", ErrInvalid, q.Thread, at)
	}
	if err != nil {
		return errors.Join(err, r.unpin(ctx, from, name))
	}
	if err := r.fit(ctx, name, &edits); err != nil {
		return err
	}
	b := edits
	b.Thread, b.Tenant, b.At, b.By, b.Reason = q.As, r.tenant, q.At, q.By, q.Reason
	b.From = &journal.Origin{Name: from, Thread: q.Thread, Head: head.String()}
	if q.Title != "" {
		b.Title = &q.Title
	}
	t := &journal.Thread{Seq: q.At, Head: head, Base: q.At}
	_, data, err := writeLines(t, []line{{kind: journal.Forked, body: b}})
	if err != nil {
		return err
	}
	if err := r.append(ctx, name, t, data); err == nil || !errors.Is(err, store.ErrConflict) {
		if errors.Is(err, store.ErrTooLarge) {
			err = fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
		return err
	}
	root, err := r.rootOf(ctx, name)
	if err == nil && (root.parent != from || root.base != q.At) {
		err = fmt.Errorf("%w: %q is another fork", ErrExists, q.As)
	}
	return err
}

// edits returns what a fork changes, checked against the thread as it was.
func (r *Runtime) edits(ctx context.Context, from string, q ForkRequest) (b journal.Body, err error) {
	if q.Input == nil && len(q.State) == 0 {
		return b, nil
	}
	o, err := r.readAt(ctx, from, q.At)
	if err != nil {
		return b, err
	}
	if q.Input != nil {
		var active *journal.Run
		for _, run := range o.thread.Runs {
			if !run.Status.Final() {
				active = run
			}
		}
		if active == nil {
			return b, fmt.Errorf("%w: no run had begun and not ended at %d of thread %s, whose input could be another", ErrInvalid, q.At, q.Thread)
		}
		raw, err := r.checkInput(active.Flow, q.Input)
		if err != nil {
			return b, err
		}
		b.Ref, b.Value = active.N, journal.Value{JSON: raw}
	}
	for _, key := range slices.Sorted(maps.Keys(q.State)) {
		if err := checkKey(key); err != nil {
			return b, err
		}
		if q.State[key] == nil {
			b.State = append(b.State, journal.Change{Key: key, Delete: true})
			continue
		}
		raw, err := encode(q.State[key], reflect.TypeOf(q.State[key]))
		if err != nil {
			return b, fmt.Errorf("state %q: %w", key, err)
		}
		b.State = append(b.State, edit(key, o.thread.State[key], raw)...)
	}
	return b, nil
}

// edit returns the changes that make a key hold a value. A list stays one, to
// which more can be appended.
func edit(key string, old journal.Item, raw json.RawMessage) []journal.Change {
	var list []json.RawMessage
	if old.Tail == nil || json.Unmarshal(raw, &list) != nil {
		return []journal.Change{{Key: key, Set: &journal.Value{JSON: raw}}}
	}
	changes := []journal.Change{{Key: key, Delete: true}}
	for _, v := range list {
		changes = append(changes, journal.Change{Key: key, Append: []journal.Value{{JSON: v}}})
	}
	return changes
}

// maxOutside is how many effects a fork or rewind lists, and how many entries it
// reads for them.
const maxOutside, maxOutsideRead = 1000, 10_000

// outside lists what a thread did behind a sequence that reaches outside of it.
func (c *core) outside(ctx context.Context, name string, after uint64) (list []Effect, more bool, err error) {
	intents := map[string]int{}
	for line, err := range c.entries(ctx, name, after) {
		if err != nil {
			return list, true, nil // what is not listed is damage, which Verify locates
		}
		e, err := journal.Peek(line.Seq, line.Data)
		if err != nil || line.Seq > after+maxOutsideRead || len(list) >= maxOutside {
			return list, true, nil
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

// name returns the name of a thread id, which is fresh if the id leads nowhere.
// A name of the other kind under which nothing was ever written is given up,
// and its late writer finds it dropped. A fork does not take the id of a thread
// that is there: ErrExists.
func (r *Runtime) name(ctx context.Context, id, fresh string, fork bool) (string, error) {
	for range 10 {
		held, err := r.ensure(ctx, r.idCell(id), []byte(fresh))
		if err != nil || string(held) == fresh || isFork(string(held)) == fork {
			return string(held), err
		}
		switch begun, err := r.begun(ctx, journalOf(string(held))); {
		case err != nil:
			return "", err
		case begun && fork:
			return "", fmt.Errorf("%w: %q", ErrExists, id)
		case begun:
			return string(held), nil
		}
		if err := r.abandon(ctx, id, string(held)); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %q is made and given up again and again", ErrBusy, id)
}

// abandon gives up a name under which nothing was written.
func (r *Runtime) abandon(ctx context.Context, id, name string) error {
	if err := r.store.Drop(ctx, journalOf(name)); err != nil {
		return err
	}
	if err := r.remove(ctx, journalOf(name), nil); err != nil {
		return err
	}
	return r.remove(ctx, r.idCell(id), []byte(name))
}

// remove deletes a cell, if it holds a value in case that is not nil.
func (c *core) remove(ctx context.Context, key string, value []byte) error {
	cell, err := c.store.Get(ctx, key)
	if err == nil && (value == nil || string(cell.Value) == string(value)) {
		err = c.store.Delete(ctx, key, cell.Version)
	}
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}
