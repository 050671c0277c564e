package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// Damaged is the status of a thread in a list in which someone has found damage:
// see [Runtime.Verify].
const Damaged Status = "damaged"

// damaged says that a thread cannot be read behind what was folded of it, and
// what to do.
func (c *core) damaged(ctx context.Context, o *opened, err error) error {
	id := o.thread.ID
	var s summary
	if cell, getErr := c.store.Get(ctx, journalOf(o.name)); getErr == nil && json.Unmarshal(cell.Value, &s) == nil && s.ID != "" {
		id = s.ID // also of one whose first entry is lost, and of a fork in the part that it shares
	}
	if o.thread.Seq == 0 {
		return fmt.Errorf("%w: thread %s: nothing of it is good, restore it from a backup or an export: %w", fault.ErrCorrupt, or(id, o.name), err)
	}
	return fmt.Errorf("%w: thread %s, good up to entry %d, where it can be forked: %w", fault.ErrCorrupt, id, o.thread.Seq, err)
}

// tellDamage makes lists show that a thread is damaged. It is a hint: who writes
// the next summary has read the thread.
func (c *core) tellDamage(ctx context.Context, o *opened) {
	_, _ = store.Update(ctx, store.Derived(c.store), journalOf(o.name), func(old store.Cell) ([]byte, error) {
		var s summary
		if old.Version == "" {
			return nil, errNothing
		}
		if json.Unmarshal(old.Value, &s) != nil {
			s = summaryOf(o.thread)
		}
		if s.ID == "" || s.Status == Damaged {
			return nil, errNothing
		}
		s.Status = Damaged
		return json.Marshal(s)
	})
}

// isDamage reports whether an error says that stored bytes are damaged.
func isDamage(err error) bool {
	return errors.Is(err, fault.ErrCorrupt) || errors.Is(err, store.ErrCorrupt)
}

// unreadable begins the diff of a run that is blocked by damage of a value.
const unreadable = "a recorded value cannot be read: "

// Cells that follow from journals are mended from them by whoever meets that
// they are damaged: the summary of a thread, and the cell that leads to it.

// mendSummaries writes the summaries of a tenant anew that are damaged, given
// the damage that a list of them has met. It returns those, and the damage that
// it cannot mend.
func (r *Runtime) mendSummaries(ctx context.Context, prefix, after string, damage error) (mended []listed, err error) {
	r.mu.Lock()
	text, hopeless := damage.Error(), r.unmended[prefix] == damage.Error()
	r.mu.Unlock()
	damage = fmt.Errorf("%w: %w", fault.ErrCorrupt, damage)
	if hopeless {
		return nil, damage
	}
	for key, err := range r.store.Journals(ctx, max(prefix, after)) {
		if errors.Is(err, store.ErrCorrupt) || err == nil && !strings.HasPrefix(key, prefix) {
			break
		}
		if err != nil {
			return nil, err
		}
		if _, err := r.store.Get(ctx, key); !errors.Is(err, store.ErrCorrupt) {
			continue
		}
		name := strings.TrimPrefix(key, journalOf(""))
		if s := r.refined(ctx, name, summary{}); s.ID != "" {
			mended = append(mended, listed{s, name, strings.TrimPrefix(key, prefix)})
		}
	}
	if len(mended) > 0 {
		r.log.Warn("summaries of threads were damaged and are written anew", "threads", len(mended), "error", damage)
		damage = nil
		for _, err := range r.store.List(ctx, prefix, after) {
			damage = err
		}
		if errors.Is(damage, store.ErrCorrupt) {
			damage = fmt.Errorf("%w: %w", fault.ErrCorrupt, damage)
		}
		return mended, damage
	}
	r.mu.Lock()
	r.unmended[prefix] = text // not looked for again by every list
	r.mu.Unlock()
	return nil, damage
}

// mendID makes the cell of an id lead to its thread again, given that it is
// damaged, and returns the thread's name: that of the only one that has the id.
func (r *Runtime) mendID(ctx context.Context, id string, damage error) (string, error) {
	found := ""
	for s, err := range (&Runtime{core: r.core, tenant: r.tenant, part: r.part}).summaries(ctx, "") {
		if err != nil && !isDamage(err) {
			return "", err
		}
		if err != nil || s.ID != id {
			continue
		}
		switch o, err := r.read(ctx, s.name); {
		case gone(err):
			continue
		case err != nil && !errors.Is(err, fault.ErrCorrupt):
			return "", err
		case o.thread.Seq > 0 && o.thread.ID != id:
			continue
		}
		if found != "" {
			return "", fmt.Errorf("%w: two threads have the id %q, and the cell that says which one counts is damaged: %w", fault.ErrCorrupt, id, damage)
		}
		found = s.name
	}
	if found == "" {
		return "", fmt.Errorf("%w: the cell that leads from the id %q to its thread is damaged, and none is listed with that id: %w", fault.ErrCorrupt, id, damage)
	}
	_, err := store.Update(ctx, store.Derived(r.store), r.idCell(id), func(old store.Cell) ([]byte, error) {
		if len(old.Value) > 0 {
			found = string(old.Value) // mended by another
			return nil, errNothing
		}
		return []byte(found), nil
	})
	if err != nil && !errors.Is(err, errNothing) {
		return "", fmt.Errorf("%w: the cell that leads from the id %q to its thread: %w", fault.ErrCorrupt, id, err)
	}
	r.log.Warn("the cell that leads to a thread was damaged and is written anew", "thread", found, "error", damage)
	return found, nil
}
