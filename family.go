package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// family looks at the children that a run waits for: a run cannot go on by
// itself while one of them cannot. Their journals tell it, not the run's own.
type family struct {
	*Runtime
	known map[string]*threads.Opened // by the id of the child
	pause time.Duration              // until the next look
}

// stand reports whether a child that the run waits for cannot go on by itself,
// and otherwise when to look again, 0 if it waits for none.
func (f *family) stand(ctx context.Context, run *journal.Run) (bool, time.Duration) {
	if run.Status != journal.StatusSuspended || run.Wake {
		return false, 0
	}
	again := time.Duration(0)
	for _, w := range run.Waits {
		child := run.Child(w.Signal)
		if child == nil {
			continue
		}
		// One that is not there, or cannot be read, may be the next time.
		if own := f.look(ctx, child.ID); own != nil && !own.Status.Final() {
			if f.stands(own) {
				return true, 0
			}
			if stand, _ := f.stand(ctx, own); stand {
				return true, 0
			}
		}
		again = f.pause
	}
	if again > 0 {
		f.pause = min(2*f.pause, time.Second)
	}
	return false, again
}

// look returns the run of a child as it is now, nil if that is not known.
func (f *family) look(ctx context.Context, id string) *journal.Run {
	o := f.known[id]
	if o == nil {
		name, err := f.tenant.Find(ctx, id)
		if err != nil {
			return nil
		}
		if o, err = f.threads.Read(ctx, name); err != nil {
			return nil
		}
		f.known[id] = o
	} else if err := f.threads.ReadMore(ctx, o, 0); err != nil || o.Lacks {
		delete(f.known, id)
		return nil
	}
	return o.Thread.RunByID(f.threads.ChildRunID(id))
}
