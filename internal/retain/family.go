package retain

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// The reasons for which a thread stays although it is old enough.
const (
	Pinned  = "pinned"  // forks depend on it, or archived children
	Unseen  = "unseen"  // it has failed, and nobody has seen it
	Child   = "child"   // a child is not at rest, or not for long enough
	Damaged = "damaged" // it cannot be read
	Changed = "changed" // something happened on it meanwhile
	Failed  = "failed"  // it could not be removed: the report has the first errors
)

// What happens to a thread.
const (
	ToArchive = "archive"
	ToErase   = "erase"
	ToExpire  = "expire" // it is erased from the archive
)

// Item is a thread whose time has come.
type Item struct {
	ID      string
	User    string
	Flow    string
	Status  journal.Status
	Updated int64  // the last change; of an archived thread, when it was archived
	Action  string // what is to happen
	Skipped string // why it does not happen now, "" if it does
	By      []string
	Cursor  string

	members []member // those that go, the thread itself last
}

// Children returns the threads that go with it.
func (i *Item) Children() []string {
	var ids []string
	for _, m := range i.members[:max(0, len(i.members)-1)] {
		ids = append(ids, m.id)
	}
	return ids
}

// skip says why the thread stays.
func (i *Item) skip(reason string, by ...string) {
	if i.Skipped == "" || i.Skipped == reason {
		i.Skipped = reason
		i.By = append(i.By, by...)
	}
}

// member is a thread of a family at a sequence.
type member struct {
	id  string
	seq uint64
}

// examine reads a thread and decides what becomes of it and its children; nil if its
// time has not come. A child goes with the thread that spawned it.
func (k *Keeper) examine(ctx context.Context, t *threads.Tenant, id string, now int64) (*Item, error) {
	o, err := t.Open(ctx, id)
	switch {
	case threads.IsGone(err), errors.Is(err, fault.ErrArchived):
		return nil, nil
	case errors.Is(err, fault.ErrCorrupt):
		return &Item{ID: id, Skipped: Damaged}, nil
	case err != nil:
		return nil, err
	}
	th := o.Thread
	s := threads.Summarised(th)
	rule := k.Rules.For(t.Name, s.Flow)
	if rule == nil || rule.Forever || !rests(th) || !elapsed(th.Time, rule.keeps(s.Status), now) {
		return nil, nil
	}
	if young, err := k.isBack(ctx, o, rule, now); err != nil || young {
		return nil, err
	}
	if here, err := k.hasParent(ctx, th); err != nil || here {
		return nil, err
	}
	item := &Item{ID: th.ID, User: th.User, Flow: s.Flow, Status: s.Status, Updated: th.Time, Action: ToErase}
	if rule.Archive {
		item.Action = ToArchive
	}
	if rule.hidden(th) {
		item.skip(Unseen)
		return item, nil
	}
	if err := k.gather(ctx, o, rule, now, item, 0); err != nil {
		return nil, err
	}
	slices.Sort(item.By)
	return item, nil
}

// isBack reports whether a thread was restored from the archive not long ago: whoever
// did so wants it here.
func (k *Keeper) isBack(ctx context.Context, o *threads.Opened, rule *Rule, now int64) (bool, error) {
	if threads.Self(o.Name) == o.Name {
		return false, nil
	}
	a, _, err := k.Threads.ReadArchived(ctx, o.Name)
	return err == nil && a != nil && !elapsed(a.Back, rule.keepsPrepared(), now), err
}

// hasParent reports whether the thread that spawned a child is in the store.
func (k *Keeper) hasParent(ctx context.Context, t *journal.Thread) (bool, error) {
	if t.Parent == nil || t.Parent.Name == "" {
		return false, nil
	}
	here, err := k.Threads.Here(ctx, t.Parent.Name)
	if errors.Is(err, fault.ErrArchived) || threads.IsGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	gone, err := k.Threads.IsDropped(ctx, here)
	return err == nil && !gone, err
}

// mostDepth bounds how deep children of children may be.
const mostDepth = 1000

// gather adds a thread and its children to an item, children first, and says what
// keeps them.
func (k *Keeper) gather(ctx context.Context, o *threads.Opened, rule *Rule, now int64, item *Item, depth int) error {
	pins, err := k.Threads.Pins(ctx, o.Name)
	if err != nil {
		return err
	}
	if depth > mostDepth {
		item.skip(Child, o.Thread.ID)
		return nil
	}
	for _, by := range pins {
		if err := k.dependent(ctx, by, rule, now, item, depth); err != nil {
			return err
		}
	}
	item.members = append(item.members, member{o.Thread.ID, o.Thread.Seq})
	return nil
}

// dependent adds what depends on a thread of an item. What never began, or is half
// erased, keeps nothing.
func (k *Keeper) dependent(ctx context.Context, by string, rule *Rule, now int64, item *Item, depth int) error {
	a, _, err := k.Threads.ReadArchived(ctx, by)
	if err != nil {
		return err
	}
	name := by
	if a != nil {
		name = a.Live()
	}
	if name == "" { // in the archive
		if !rule.Archive && a.State != threads.Erasing {
			item.skip(Pinned, cmp.Or(a.ID, by))
		}
		return nil
	}
	o, err := k.Threads.Read(ctx, name)
	switch {
	case errors.Is(err, fault.ErrErased) && o.Thread.Archived: // it is on its way there
		if !rule.Archive {
			item.skip(Pinned, cmp.Or(o.Thread.ID, by))
		}
		return nil
	case threads.IsGone(err), err == nil && o.Thread.Seq == 0 && o.Thread.Foreign == "":
		return nil
	case errors.Is(err, fault.ErrCorrupt):
		item.skip(Damaged, cmp.Or(o.Thread.ID, by))
		return nil
	case err != nil:
		return err
	}
	switch t := o.Thread; {
	case t.Parent == nil: // a fork
		if !rule.Archive || threads.IsFork(name) {
			item.skip(Pinned, t.ID)
		}
		return nil
	case !rests(t) || !elapsed(t.Time, rule.keeps(threads.StatusOf(t)), now) || a != nil && !elapsed(a.Back, rule.keepsPrepared(), now):
		item.skip(Child, t.ID)
		return nil
	}
	return k.gather(ctx, o, rule, now, item, depth+1)
}
