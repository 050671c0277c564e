package threads

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Cells derived from journals are rebuilt by the first reader that finds them
// damaged: the summary of a thread, and the cell that maps its id to its name.

// statusDamaged is the status of a thread in which damage was found.
const statusDamaged journal.Status = "damaged"

// damaged returns an error that says how far a thread can be read and what to do.
func (c *Threads) damaged(ctx context.Context, o *Opened, err error) error {
	id := o.Thread.ID
	if s, readErr := c.ReadSummary(ctx, o.Name); readErr == nil && s.ID != "" {
		id = s.ID // known even if the first entry is lost or the damage is in the part that a fork shares
	}
	if o.Thread.Seq == 0 {
		return fmt.Errorf("%w: thread %s: none of it is intact; restore it from a backup or an export: %w", fault.ErrCorrupt, cmp.Or(id, o.Name), err)
	}
	return fmt.Errorf("%w: thread %s is intact up to entry %d, where it can be forked: %w", fault.ErrCorrupt, id, o.Thread.Seq, err)
}

// MarkDamaged makes lists show that a thread is damaged. It is a hint: whoever
// writes the next summary has read the thread, and overwrites it.
func (c *Threads) MarkDamaged(ctx context.Context, o *Opened) {
	_, _ = store.Update(ctx, store.Derived(c.Store), JournalKey(o.Name), func(old store.Cell) ([]byte, error) {
		var s Summary
		if old.Version == "" {
			return nil, ErrNothing
		}
		if json.Unmarshal(old.Value, &s) != nil {
			s = summaryOf(o.Thread)
		}
		if s.ID == "" || s.Status == statusDamaged {
			return nil, ErrNothing
		}
		s.Status = statusDamaged
		return json.Marshal(s)
	})
}

// IsDamage reports whether an error says that stored bytes are damaged.
func IsDamage(err error) bool {
	return errors.Is(err, fault.ErrCorrupt) || errors.Is(err, store.ErrCorrupt)
}

// Unreadable begins the diff of a run that a damaged value blocks.
const Unreadable = "a recorded value cannot be read: "

// mendSummaries rebuilds the damaged summaries of a tenant, given the damage that
// listing them has found. It returns the rebuilt summaries and the damage that
// remains.
func (r *Tenant) mendSummaries(ctx context.Context, prefix, after string, damage error) (mended []listed, err error) {
	r.All.mu.Lock()
	text, hopeless := damage.Error(), r.All.unmended[prefix] == damage.Error()
	r.All.mu.Unlock()
	damage = fmt.Errorf("%w: %w", fault.ErrCorrupt, damage)
	if hopeless {
		return nil, damage
	}
	for key, err := range r.All.Store.Journals(ctx, max(prefix, after)) {
		if errors.Is(err, store.ErrCorrupt) || err == nil && !strings.HasPrefix(key, prefix) {
			break
		}
		if err != nil {
			return nil, err
		}
		if _, err := r.All.Store.Get(ctx, key); !errors.Is(err, store.ErrCorrupt) {
			continue
		}
		name := strings.TrimPrefix(key, JournalKey(""))
		if s := r.All.refined(ctx, name, Summary{}); s.ID != "" {
			mended = append(mended, listed{s, name, strings.TrimPrefix(key, prefix)})
		}
	}
	if len(mended) > 0 {
		r.All.Log.Warn("damaged thread summaries were rebuilt", "threads", len(mended), "error", damage)
		damage = nil
		for _, err := range r.All.Store.List(ctx, prefix, after) {
			damage = err
		}
		if errors.Is(damage, store.ErrCorrupt) {
			damage = fmt.Errorf("%w: %w", fault.ErrCorrupt, damage)
		}
		return mended, damage
	}
	r.All.mu.Lock()
	r.All.unmended[prefix] = text // so that the next list does not try again
	r.All.mu.Unlock()
	return nil, damage
}

// MendID rewrites the damaged cell that maps an id to its thread, and returns the
// thread's name. It fails unless exactly one listed thread has the id.
func (r *Tenant) MendID(ctx context.Context, id string, damage error) (string, error) {
	found := ""
	for s, err := range (&Tenant{All: r.All, Name: r.Name, Part: r.Part}).Summaries(ctx, "") {
		if err != nil && !IsDamage(err) {
			return "", err
		}
		if err != nil || s.ID != id {
			continue
		}
		switch o, err := r.All.Read(ctx, s.name); {
		case IsGone(err):
			continue
		case err != nil && !errors.Is(err, fault.ErrCorrupt):
			return "", err
		case o.Thread.Seq > 0 && o.Thread.ID != id:
			continue
		}
		if found != "" {
			return "", fmt.Errorf("%w: two threads have the id %q, and the cell that says which one counts is damaged: %w", fault.ErrCorrupt, id, damage)
		}
		found = s.name
	}
	if found == "" {
		return "", fmt.Errorf("%w: the cell that maps the id %q to its thread is damaged, and no listed thread has that id: %w", fault.ErrCorrupt, id, damage)
	}
	_, err := store.Update(ctx, store.Derived(r.All.Store), r.IDKey(id), func(old store.Cell) ([]byte, error) {
		if len(old.Value) > 0 {
			found = string(old.Value) // another process has rewritten it
			return nil, ErrNothing
		}
		return []byte(found), nil
	})
	if err != nil && !errors.Is(err, ErrNothing) {
		return "", fmt.Errorf("%w: the cell that maps the id %q to its thread: %w", fault.ErrCorrupt, id, err)
	}
	r.All.Log.Warn("the damaged cell that maps an id to its thread was rewritten", "thread", found, "error", damage)
	return found, nil
}
