package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// nameFor returns the name of the thread with an id, or fresh if the id leads
// nowhere. If it leads to a name of the other kind, fork or not, under which
// nothing was ever written, that name is abandoned, and its late writer finds
// it dropped. A fork cannot take the id of an existing thread: ErrExists. Lead
// returns the name that the id leads to, or fresh if there is none.
func (r *Control) nameFor(ctx context.Context, id, fresh string, fork bool, lead func(ctx context.Context, key string, fresh []byte) ([]byte, error)) (string, error) {
	if err := r.tenant.CheckNewID(ctx, id); err != nil {
		return "", err
	}
	for range 10 {
		held, err := lead(ctx, r.tenant.IDKey(id), []byte(fresh))
		if errors.Is(err, store.ErrCorrupt) {
			var name string
			name, err = r.tenant.MendID(ctx, id, err)
			held = []byte(name)
		}
		if self, away := threads.Away(string(held)); err == nil && away {
			name, err := r.tenant.Returned(ctx, id, self)
			if err != nil {
				return "", err
			}
			if name == "" { // it was erased from the archive
				if err := r.threads.Remove(ctx, r.tenant.IDKey(id), string(held)); err != nil {
					return "", err
				}
				continue
			}
			held = []byte(name)
		}
		if err == nil && string(held) != fresh {
			var reached bool
			if reached, err = r.tenant.Reaches(ctx, string(held)); err == nil && !reached {
				err = fmt.Errorf("%w: %q", fault.ErrExists, id)
			}
			if err != nil {
				return "", err
			}
		}
		if err != nil || string(held) == fresh || threads.IsFork(string(held)) == fork {
			return string(held), err
		}
		switch err := r.abandon(ctx, id, string(held)); {
		case errors.Is(err, errBegun) && fork:
			return "", fmt.Errorf("%w: %q", fault.ErrExists, id)
		case errors.Is(err, errBegun):
			return string(held), nil
		case err != nil:
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %q keeps being created and abandoned", fault.ErrBusy, id)
}

// pinOrAbandon pins a thread for one that is being made. If the thread turns
// out to be erased, it abandons the new one: its cells name the erased thread
// and its user, and nobody would come back for them.
func (r *Control) pinOrAbandon(ctx context.Context, of, id, name string) error {
	err := r.threads.Pin(ctx, of, name)
	if errors.Is(err, fault.ErrErased) {
		return r.giveUp(ctx, id, name, err)
	}
	return err
}

// giveUp abandons a thread that cannot be made, and returns the reason: nobody
// would come back for what was written for it.
func (r *Control) giveUp(ctx context.Context, id, name string, why error) error {
	if err := r.abandon(ctx, id, name); err != nil && !errors.Is(err, errBegun) {
		return errors.Join(why, err)
	}
	return why
}

// errBegun says that a thread that was to be abandoned has begun.
var errBegun = errors.New("perdure: the thread has begun")

// abandon gives up a name under which nothing was written, or what is left of
// an erased thread, and returns errBegun if there is a thread. It can be
// repeated.
func (r *Control) abandon(ctx context.Context, id, name string) error {
	if err := r.forestall(ctx, name); err != nil {
		return err
	}
	if s, _ := r.threads.ReadSummary(ctx, name); s.From != "" {
		if err := r.threads.Unpin(ctx, s.From, name); err != nil {
			return err
		}
	}
	return r.finishErase(ctx, name, id)
}

// AbandonUnborn gives up a name under which no entry was written and that no summary
// tells of. It reports whether it did: the thread may have begun.
func (r *Control) AbandonUnborn(ctx context.Context, name string) (bool, error) {
	err := r.forestall(ctx, name)
	if errors.Is(err, errBegun) {
		return false, nil
	}
	if err == nil {
		err = (&eraser{life: r}).drop(ctx, name)
	}
	return err == nil, err
}

// forestall makes `erased` the first entry of a thread, so that whoever is
// about to begin it cannot. It returns errBegun if the thread has already
// begun.
func (r *Control) forestall(ctx context.Context, name string) error {
	_, data, err := threads.EncodeLines(journal.NewThread(), []threads.Line{{Kind: journal.Erased}})
	if err != nil {
		return err
	}
	for range mostTries {
		for line, err := range r.threads.Store.Read(ctx, threads.JournalKey(name), 0) {
			if errors.Is(err, store.ErrDropped) {
				return nil
			}
			if err != nil {
				return err
			}
			if e, err := journal.Peek(line.Seq, line.Data); err == nil && e.Kind == journal.Erased {
				return nil
			}
			if err := r.threads.CheckErased(ctx, name); errors.Is(err, fault.ErrErased) {
				return nil // it is being erased
			}
			return errBegun
		}
		_, err := store.AppendOnce(ctx, r.threads.Store, threads.JournalKey(name), 0, data...)
		if err == nil || errors.Is(err, store.ErrDropped) {
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", fault.ErrBusy, name) // refused although it is empty
}

// A thread that is being made has cells before its first entry. Whoever finds
// one half made completes it or abandons it.

// createAs makes the cells of a thread with the given summary. It calls first
// as soon as the name is known.
func (r *Control) createAs(ctx context.Context, s threads.Summary, first func(name string) error) (string, error) {
	fresh, err := r.newName(&s)
	if err != nil {
		return "", err
	}
	name, err := r.nameFor(ctx, s.ID, fresh, false, r.threads.Ensure)
	if err == nil {
		err = first(name)
	}
	if err != nil {
		return "", err
	}
	// The summary comes before the first entry, so that lists are complete.
	return name, r.threads.EnsureSummary(ctx, name, s)
}

// newName returns a name for a new thread and sets the creation time in its
// summary.
func (r *Control) newName(s *threads.Summary) (string, error) {
	if s.Parent == "" { // a child belongs to its parent's user
		if err := threads.CheckNewUser(s.User); err != nil {
			return "", err
		}
	}
	now := clock.Now()
	s.Created = now.UnixMicro()
	return r.tenant.NewName(now, "", s.User), nil
}

// prepare returns the name of a thread and, if there is no such thread, the
// cells to write with its first entry and summary. If the thread was left half
// made, it writes the missing cells. If known is false, nobody can know the id
// yet, and it does not look for a thread.
func (r *Control) prepare(ctx context.Context, s threads.Summary, known bool) (name string, cells []store.Write, err error) {
	fresh, err := r.newName(&s)
	if err != nil {
		return "", nil, err
	}
	name, err = r.nameFor(ctx, s.ID, fresh, false, func(ctx context.Context, key string, fresh []byte) ([]byte, error) {
		if !known {
			return fresh, nil
		}
		cell, err := r.threads.Store.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return fresh, nil
		}
		return cell.Value, err
	})
	if err != nil {
		return "", nil, err
	}
	if name != fresh {
		return name, nil, r.threads.EnsureSummary(ctx, name, s)
	}
	return name, []store.Write{{Key: r.tenant.IDKey(s.ID), Value: []byte(name)}}, nil
}

// Create makes a thread without a run: see perdure.Runtime.Create.
func (r *Control) Create(ctx context.Context, q CreateRequest) (*threads.Opened, error) {
	owner, err := r.tenant.NewOwner(q.User)
	if err != nil {
		return nil, err
	}
	q.User = owner
	b, err := q.body()
	if err != nil {
		return nil, err
	}
	id, key := q.Thread, q.Key
	if id == "" {
		id = threads.NewRunID()
		if key != "" {
			id = r.tenant.IDForKey("thread created with key", key)
		}
	}
	b.Thread, b.Tenant = id, r.tenant.Name
	if key != "" {
		b.ID = threads.Base32.EncodeToString(r.threads.Hash("created", r.tenant.Name, id, key)[:15])
	}
	if err = r.threads.CheckMoved(ctx); err == nil {
		err = r.admitThread(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	for range mostTries {
		// Only those who read the thread know that it has no runs, so its
		// first summary is rough.
		name, nameErr := r.createAs(ctx, threads.Summary{ID: id, User: b.User, Title: *b.Title, Rough: true}, func(string) error { return nil })
		if nameErr != nil {
			return nil, nameErr
		}
		var o *threads.Opened
		if o, err = r.begin(ctx, name, b, key); err == nil {
			return o, nil
		}
		if errors.Is(err, fault.ErrTooLarge) {
			err = r.giveUp(ctx, id, name, err)
		}
		if !errors.Is(err, fault.ErrErased) {
			return nil, err
		}
		// An erase is in progress or was interrupted: finish it before making
		// the new thread.
		if err := r.finishErase(ctx, name, id); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// admitThread asks whether a thread may be added, unless the id leads to one.
func (r *Control) admitThread(ctx context.Context, id string) error {
	_, err := r.tenant.Find(ctx, id)
	if errors.Is(err, fault.ErrNoThread) {
		return threads.Admit(ctx, threads.Growth{Thread: true})
	}
	return err
}

// begin appends the first entry of a thread, unless the same key has already
// done so.
func (r *Control) begin(ctx context.Context, name string, b journal.Body, key string) (*threads.Opened, error) {
	o, _, err := r.threads.Change(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if t.Seq != 0 {
			return nil, nil, r.begunWith(ctx, name, b, key)
		}
		err := r.threads.Fit(ctx, r.threads.Store, name, &b)
		return []threads.Line{{Kind: journal.Created, Body: b}}, nil, err
	})
	return o, err
}

// begunWith returns ErrNothing if a thread was made with this key and the same
// request, otherwise an error that says what exists.
func (r *Control) begunWith(ctx context.Context, name string, b journal.Body, key string) error {
	exists := fmt.Errorf("%w: %q", fault.ErrExists, b.Thread)
	if key == "" {
		return exists
	}
	for line, err := range r.threads.Store.Read(ctx, threads.JournalKey(name), 0) {
		if err != nil {
			return fault.IfDropped(name, err)
		}
		e, err := journal.Peek(line.Seq, line.Data)
		if err != nil {
			return fmt.Errorf("%w: thread %s, entry %d: %w", fault.ErrCorrupt, b.Thread, line.Seq, err)
		}
		made, err := e.Read()
		switch {
		case err != nil || e.Kind != journal.Created || made.ID != b.ID:
			return exists
		case made.Key != b.Key:
			return fmt.Errorf("%w: key %q created thread %s with another request", fault.ErrKeyReused, key, b.Thread)
		}
		return threads.ErrNothing
	}
	return exists
}
