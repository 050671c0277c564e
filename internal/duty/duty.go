// Package duty lets one worker at a time do what a cell of the store is about. It may
// import store and internal/bell.
//
// The worker rewrites the cell several times within the lease; every write is a
// compare-and-swap, so a worker that was replaced learns it with its next write. If
// the cell does not change for a whole lease, others take over, as with
// internal/lease: no clocks are compared.
package duty

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/store"
)

// ErrLost means that another worker has taken over, or that someone has changed the
// cell otherwise.
var ErrLost = errors.New("perdure: the duty is no longer held here")

// Passes reports whether an error is one of the store, which does not last.
func Passes(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrBusy)
}

// Hold is a cell that this worker holds, or takes with its first Save.
type Hold struct {
	Store   store.Store
	Key     string
	Version store.Version // of the cell as it was last seen
	Lease   time.Duration
	// Encode returns the content of the cell. No two calls return the same.
	Encode func() ([]byte, error)
	// Merge takes over what somebody else has written into the cell, and reports
	// whether it is still held here. Without it, every change loses the cell.
	Merge func(value []byte) bool

	mu    sync.Mutex
	saved time.Time
}

// Save writes the cell, unless somebody else has: then it is ErrLost.
func (h *Hold) Save(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	value, err := h.Encode()
	if err != nil {
		return err
	}
	for {
		begun := time.Now()
		version, err := h.Store.Put(ctx, h.Key, value, h.Version)
		if err == nil {
			h.Version, h.saved = version, begun
			return nil
		}
		// The write may have happened, or a refusal be spurious.
		cell, getErr := h.Store.Get(ctx, h.Key)
		if errors.Is(getErr, store.ErrNotFound) && h.Version == "" {
			cell, getErr = store.Cell{}, nil
		}
		if getErr == nil && cell.Version != h.Version && string(cell.Value) != string(value) && h.Merge != nil && h.Merge(cell.Value) {
			h.Version = cell.Version
			if value, err = h.Encode(); err != nil {
				return err
			}
			continue
		}
		switch {
		case errors.Is(getErr, store.ErrNotFound), getErr == nil && cell.Version != h.Version && string(cell.Value) != string(value):
			return ErrLost
		case getErr == nil && cell.Version != h.Version:
			h.Version, h.saved = cell.Version, begun
			return nil
		case !errors.Is(err, store.ErrConflict) && !Passes(err):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// During calls a function, and shows meanwhile that the cell is held. If it no longer
// is, the function's context ends.
func (h *Hold) During(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	beat := bell.New(h.untilBeat())
	defer beat.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-beat.C:
			if err := h.Save(ctx); err != nil {
				cancel()
				<-done
				return err
			}
			beat.Reset(h.untilBeat())
		}
	}
}

// Pause waits, and shows meanwhile that the cell is held.
func (h *Hold) Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 && h.untilBeat() > 0 {
		return ctx.Err()
	}
	return h.During(ctx, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(max(1, d)): // not 0: see bell.Bell
		}
		return ctx.Err()
	})
}

func (h *Hold) untilBeat() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Lease/4 - time.Since(h.saved)
}

// Sights are the cells that others hold, as this worker has seen them, by key.
type Sights map[string]sight

// sight is the version of a cell, and since when it has been seen.
type sight struct {
	version store.Version
	since   time.Time
}

// Wait returns how long to wait until the holder of a cell is presumed dead, 0 if it
// is.
func (s Sights) Wait(cell store.Cell, lease time.Duration) time.Duration {
	seen, ok := s[cell.Key]
	if !ok || seen.version != cell.Version {
		s[cell.Key] = sight{cell.Version, time.Now()}
		return lease
	}
	return max(0, lease-time.Since(seen.since))
}
