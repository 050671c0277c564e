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
// [MovedFresh], so a migration waits for [MovedGrace] after writing it.
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
const MovedFresh, MovedGrace = 2 * time.Second, 4 * time.Second

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
// one. It is called before each request is carried out, and also after creating a
// thread or writing a cell that belongs to none: if that took so long that the
// migration may have missed it, it has not happened. What is left of it in the
// source is never executed, as workers ask too, and refuses all requests.
func (c *Threads) CheckMoved(ctx context.Context) error {
	c.mu.Lock()
	fresh := !c.unmoved.IsZero() && time.Since(c.unmoved) < MovedFresh
	c.mu.Unlock()
	if fresh {
		return nil
	}
	began := time.Now()
	m, err := ReadCopy(ctx, c.Store, MovedCell)
	if err != nil {
		return fmt.Errorf("perdure: checking whether the store has moved: %w", err)
	}
	if m != nil {
		return &fault.MovedError{To: m.To}
	}
	c.mu.Lock()
	c.unmoved = began
	c.mu.Unlock()
	return nil
}
