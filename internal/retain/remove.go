package retain

import (
	"context"
	"errors"
	"math"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
)

// reason is what the entries say that end threads which go to the archive.
const reason = "retention"

// remove removes the threads of an item that have not changed since it was made. It
// returns how many it has removed, and why it stopped, if it did: an error that is
// about the thread is told by the reason of the item.
func (k *Keeper) remove(ctx context.Context, t *threads.Tenant, item *Item, pace func(context.Context) error) (removed int, err error) {
	life, v := k.Reach(t)
	for _, m := range item.members {
		if err := pace(ctx); err != nil {
			return removed, err
		}
		note := lifecycle.Note{Reason: reason, IfSeq: m.seq}
		if item.Action == ToArchive {
			_, err = v.Archive(ctx, m.id, note)
		} else {
			err = life.Erase(ctx, m.id, note, false)
		}
		switch {
		case err == nil:
			removed++
		case errors.Is(err, fault.ErrPinned):
			item.skip(Pinned, pinners(err)...)
			return removed, nil
		case errors.Is(err, fault.ErrStale), errors.Is(err, fault.ErrBusy), errors.Is(err, fault.ErrArchived), threads.IsGone(err):
			item.skip(Changed)
			return removed, nil
		default:
			item.skip(Failed)
			return removed, err
		}
	}
	return removed, nil
}

func pinners(err error) []string {
	var pinned *fault.PinnedError
	if errors.As(err, &pinned) {
		return pinned.By
	}
	return nil
}

// complete completes the removal of a thread that another worker may have begun.
func (k *Keeper) complete(ctx context.Context, g going) error {
	t := k.Threads.Tenant(g.Tenant)
	life, v := k.Reach(t)
	// It is for no thread that is there: one that was restored or begun meanwhile.
	none := lifecycle.Note{IfSeq: math.MaxUint64}
	_, err := t.Open(ctx, g.ID)
	switch {
	case errors.Is(err, fault.ErrArchived):
		_, err = v.Archive(ctx, g.ID, none)
	case threads.IsGone(err):
		err = life.Erase(ctx, g.ID, none, false)
	case errors.Is(err, fault.ErrCorrupt): // what is left of a fork cannot be read once the thread that it was forked from is gone
		var name string
		if name, err = t.Find(ctx, g.ID); err == nil {
			var a *threads.Archived
			if a, _, err = k.Threads.ReadArchived(ctx, name); err == nil && a != nil && a.From == name && a.Live() == "" {
				err = life.FinishFound(ctx, name, t.IDKey(g.ID))
			}
		}
	default:
		return nil
	}
	if threads.IsGone(err) || errors.Is(err, fault.ErrPinned) || errors.Is(err, fault.ErrStale) || errors.Is(err, fault.ErrArchived) {
		return nil
	}
	return err
}
