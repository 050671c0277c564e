package retain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/vault"
)

// Keeper knows what is to be removed, and how.
type Keeper struct {
	Threads *threads.Threads
	Rules   Rules
	Rate    int // threads a second
	// Reach returns what removes threads of a tenant.
	Reach func(*threads.Tenant) (*lifecycle.Control, *vault.Vault)
}

// statuses are those of threads that go, "" for threads without a run.
var statuses = []journal.Status{journal.StatusSucceeded, journal.StatusCancelled, journal.StatusFailed, ""}

// archived is the place of the archive after the statuses, in cursors.
var archived = len(statuses)

// Due yields the threads of a tenant whose time has come, from a cursor on: first
// those in the store, by status, then those in the archive. Threads of a family
// that are no root are not yielded.
func (k *Keeper) Due(ctx context.Context, t *threads.Tenant, now int64, cursor string) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		at, after, err := parseCursor(cursor)
		if err != nil {
			yield(nil, err)
			return
		}
		for ; at < len(statuses); at, after = at+1, "" {
			for c, err := range k.candidates(ctx, t, statuses[at], now, after) {
				item := c.item
				if err == nil && item.Skipped == "" {
					item, err = k.examine(ctx, t, c.item.ID, now)
				}
				if err != nil {
					yield(nil, err)
					return
				}
				if item == nil {
					continue
				}
				item.Cursor = strconv.Itoa(at) + c.item.Cursor
				if !yield(item, nil) {
					return
				}
			}
		}
		for item, err := range k.expired(ctx, t, now, after) {
			if err == nil {
				item.Cursor = strconv.Itoa(archived) + item.Cursor
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

func parseCursor(cursor string) (at int, after string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	at = int(cursor[0] - '0')
	if at < 0 || at > archived {
		return 0, "", fmt.Errorf("%w: %.80q is no cursor of a list of threads that are due", fault.ErrInvalid, cursor)
	}
	return at, cursor[1:], nil
}

type candidate struct {
	item *Item // as far as the list tells; Skipped if that is enough to know
}

// candidates yields the threads with a status that are due according to the index.
func (k *Keeper) candidates(ctx context.Context, t *threads.Tenant, status journal.Status, now int64, after string) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		least, any := k.Rules.least(t.Name, false)
		if !any {
			return
		}
		q := threads.Query{Status: &status, Before: max(1, now-least.Microseconds()+1)}
		for s, err := range t.Select(ctx, q, after) {
			if errors.Is(err, fault.ErrCorrupt) {
				continue // after all others: List and Rebuild tell
			}
			if err != nil {
				yield(candidate{}, err)
				return
			}
			rule := k.Rules.For(t.Name, s.Flow)
			if rule == nil || rule.Forever || s.Moved != "" || !elapsed(s.Changed(), rule.keeps(s.Status), now) {
				continue
			}
			if s.Parent != "" {
				if _, err := t.Find(ctx, s.Parent); err == nil {
					continue // it goes with its parent
				} else if !threads.IsGone(err) && !errors.Is(err, fault.ErrArchived) {
					yield(candidate{}, err)
					return
				}
			}
			item := &Item{ID: s.ID, User: s.User, Flow: s.Flow, Status: s.Status, Updated: s.Changed(), Action: ToErase, Cursor: s.Cursor}
			if rule.Archive {
				item.Action = ToArchive
			}
			if rule.hiddenRoughly(s.Summary) {
				item.skip(Unseen)
			}
			if !yield(candidate{item}, nil) {
				return
			}
		}
	}
}

// expired yields the threads that were in the archive for long enough. An erase that
// was interrupted is among them.
func (k *Keeper) expired(ctx context.Context, t *threads.Tenant, now int64, after string) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		if _, any := k.Rules.least(t.Name, true); !any {
			return
		}
		_, v := k.Reach(t)
		for a, err := range v.List(ctx, after) {
			if err != nil {
				yield(nil, err)
				return
			}
			flow, err := k.archivedFlow(ctx, a.Archived)
			if err != nil {
				yield(nil, err)
				return
			}
			rule := k.Rules.For(t.Name, flow)
			if rule == nil || rule.KeepArchived <= 0 || a.State != threads.InArchive || !elapsed(a.At, rule.KeepArchived, now) {
				continue
			}
			item := &Item{ID: a.ID, User: a.User, Flow: a.Flow, Status: a.Status, Updated: a.At, Action: ToExpire, Cursor: a.Cursor, members: []member{{a.ID, a.Seq}}}
			if err := k.checkArchived(ctx, a.From, item); err != nil {
				yield(nil, err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}

// archivedFlow returns the flow whose rule counts for an archived thread: for a child
// that of the thread that spawned it, if that is in the archive too.
func (k *Keeper) archivedFlow(ctx context.Context, a *threads.Archived) (string, error) {
	for range mostDepth {
		if len(a.Of) == 0 || threads.IsFork(threads.Self(a.From)) {
			break
		}
		parent, _, err := k.Threads.ReadArchived(ctx, a.Of[0])
		if err != nil {
			return "", err
		}
		if parent == nil || parent.State != threads.InArchive {
			break
		}
		a = parent
	}
	return a.Flow, nil
}

// checkArchived says what depends on an archived thread.
func (k *Keeper) checkArchived(ctx context.Context, name string, item *Item) error {
	pins, err := k.Threads.Pins(ctx, name)
	if err != nil {
		return err
	}
	for _, by := range pins {
		id, err := k.alive(ctx, by)
		if err != nil {
			return err
		}
		if id != "" {
			item.skip(Pinned, id)
		}
	}
	slices.Sort(item.By)
	return nil
}

// alive returns the id of a thread with a first name, "" if there is none any more.
func (k *Keeper) alive(ctx context.Context, self string) (string, error) {
	a, _, err := k.Threads.ReadArchived(ctx, self)
	switch {
	case err != nil:
		return "", err
	case a != nil && a.State == threads.Erasing:
		return "", nil
	case a != nil:
		return a.ID, nil
	}
	o, err := k.Threads.Read(ctx, self)
	switch {
	case threads.IsGone(err):
		return "", nil
	case err != nil && !errors.Is(err, fault.ErrCorrupt):
		return "", err
	case err == nil && o.Thread.Seq == 0 && o.Thread.Foreign == "":
		return "", nil
	case o.Thread.ID == "":
		return self, nil
	}
	return o.Thread.ID, nil
}
