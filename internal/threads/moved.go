package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// A migration moves all threads of one store, the source, to another, the target:
// see package migrate. Each store has a cell for it. CopyCell is the first cell
// of the target, and no runtime opens that store until the cell says that the
// migration is complete. MovedCell tells the users of the source to begin nothing
// there any more. A process may rely on its last look at that cell for
// [MovedFresh], so a migration waits for [MovedGrace] after writing it. What was
// written until [MovedKept] after such a look was written before the end of that
// wait, so it is copied.
const (
	CopyCell  = "perdure/copy"  // in the target: a Copy
	MovedCell = "perdure/moved" // in the source: a Copy
)

// Copy is the content of a migration's cells.
type Copy struct {
	ID     string `json:"id"`              // of the migration
	Source string `json:"source"`          // which store is copied
	To     string `json:"to"`              // the name of the target
	Stage  string `json:"stage,omitempty"` // of the target
	Run    string `json:"run,omitempty"`   // the command that fills the target
}

// CopyDone is the stage of a complete target.
const CopyDone = "done"

// MovedFresh is how long a process may rely on having seen that its store has not
// moved. MovedGrace is how long a migration waits for every process to look again.
// MovedKept is shorter, as clocks differ a little.
const MovedFresh, MovedKept, MovedGrace = 2 * time.Second, 3500 * time.Millisecond, 4 * time.Second

// ReadCopy returns the content of a migration's cell, nil if there is none.
func ReadCopy(ctx context.Context, s store.Store, key string) (*Copy, error) {
	cell, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m Copy
	if err := json.Unmarshal(cell.Value, &m); err != nil {
		return nil, fmt.Errorf("%w: cell %q: %w", fault.ErrCorrupt, key, err)
	}
	return &m, nil
}

// checkComplete returns an error if a migration into the store is not complete.
func checkComplete(ctx context.Context, s store.Store) error {
	m, err := ReadCopy(ctx, s, CopyCell)
	if err == nil && m != nil && m.Stage != CopyDone {
		err = fmt.Errorf("%w: a migration into this store is not complete; run perdure migrate again", store.ErrUnavailable)
	}
	return err
}

// explainDamage returns the error of opening a store, which looks damaged if it is
// sealed and its keys are missing.
func explainDamage(ctx context.Context, s store.Store, err error) error {
	if errors.Is(err, fault.ErrCorrupt) {
		for _, unread := range s.List(ctx, "~seal/", "") {
			if unread != nil {
				break
			}
			return fmt.Errorf("%w: the store is sealed; its keys are needed to open it, see package seal", store.ErrKey)
		}
	}
	return err
}

// checkWritable returns an error if nothing may be appended to the thread: a newer
// version has written to it, or it has moved to another store.
func checkWritable(t *journal.Thread) error {
	if t.Foreign != "" {
		return fmt.Errorf("%w: thread %s is left alone: %s", fault.ErrNewer, t.ID, t.Foreign)
	}
	if t.Moved != "" {
		return &fault.MovedError{Thread: t.ID, To: t.Moved}
	}
	return nil
}

// CheckMoved returns a MovedError if the threads of the store continue in another
// one. It is called before each request is carried out. If that creates a thread or
// writes a cell that belongs to none, CheckKept is called afterwards.
func (c *Threads) CheckMoved(ctx context.Context) error {
	if c.unmovedFor(MovedFresh) {
		return nil
	}
	moved, err := c.readMark(ctx)
	if moved != nil {
		err = &fault.MovedError{To: moved.To}
	}
	return err
}

// CheckKept returns an error that matches store.ErrUnknown if a migration may have
// missed what was just written, because that took long. It may also have copied it,
// so the error is no MovedError, which says that nothing has happened. If it was
// missed, what is in the source is never executed, as workers ask too, and refuses
// all requests.
func (c *Threads) CheckKept(ctx context.Context) error {
	if c.unmovedFor(MovedKept) {
		return nil
	}
	moved, err := c.readMark(ctx)
	if moved != nil {
		err = &fault.MovingError{To: moved.To}
	}
	return err
}

// unmovedFor reports whether the store was seen not to have moved within a time.
func (c *Threads) unmovedFor(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.unmoved.IsZero() && time.Since(c.unmoved) < d
}

// readMark returns the source's mark, nil if the store has not moved. If it has, the log
// says so once: a worker would find nothing to do for ever.
func (c *Threads) readMark(ctx context.Context) (*Copy, error) {
	began := time.Now()
	m, err := ReadCopy(ctx, c.Store, MovedCell)
	if err != nil {
		return nil, fmt.Errorf("perdure: checking whether the store has moved: %w", err)
	}
	if m == nil {
		c.mu.Lock()
		c.unmoved = began
		c.mu.Unlock()
	} else {
		c.toldMoved.Do(func() {
			c.Log.Warn("the store has moved: nothing is executed here, so start servers and workers on the other one", "store", m.To)
		})
	}
	return m, nil
}
