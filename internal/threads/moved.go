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

// A migration moves all threads of a store, the source, to another one, the
// target: see package migrate. Two cells say so. That of the target is there
// before anything else is, and until the migration is complete no runtime opens
// the store. That of the source says that nothing begins here any more. A process
// looks at it at most every [MovedFresh], so a migration that has written it waits
// for [MovedGrace] before it relies on it.
const (
	CopyCell  = "perdure/copy"  // in the target: a Copy
	MovedCell = "perdure/moved" // in the source: a Copy
)

// Copy is what the cells of a migration hold.
type Copy struct {
	ID     string `json:"id"`              // of the migration
	Source string `json:"source"`          // which store is copied
	To     string `json:"to"`              // the name of the target
	Stage  string `json:"stage,omitempty"` // of the target
	Run    string `json:"run,omitempty"`   // the command that fills the target
}

// CopyDone is the stage of a target that is complete.
const CopyDone = "done"

// MovedFresh is how long a process relies on having seen that its store has not
// moved, and MovedGrace how long a migration waits until all have looked again.
const MovedFresh, MovedGrace = 2 * time.Second, 4 * time.Second

// ReadCopy returns what a cell of a migration holds, nil if there is none.
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

// checkComplete refuses a store into which a migration is under way.
func checkComplete(ctx context.Context, s store.Store) error {
	m, err := ReadCopy(ctx, s, CopyCell)
	if err == nil && m != nil && m.Stage != CopyDone {
		err = fmt.Errorf("%w: a migration into this store is not complete; run perdure migrate again", fault.ErrInvalid)
	}
	return err
}

// checkWritable refuses a thread that this binary, or this store, must leave alone.
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
// one. Whoever is about to make a thread, or to write what belongs to none, asks it.
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
		return fmt.Errorf("perdure: looking whether the store has moved: %w", err)
	}
	if m != nil {
		return &fault.MovedError{To: m.To}
	}
	c.mu.Lock()
	c.unmoved = began
	c.mu.Unlock()
	return nil
}
