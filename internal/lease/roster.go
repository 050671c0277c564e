package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/store"
)

// Worker is one that is not known to be dead.
type Worker struct {
	ID, Host string

	// Left is how long it takes at least until it can be judged dead, if
	// its lease does not move.
	Left time.Duration

	Info json.RawMessage // see HoldWith; nil if it said nothing
}

// buryFor is how long Living tries to bury one of the dead.
const buryFor = 100 * time.Millisecond

// Living returns the workers that have a lease and are not judged dead, by id. It
// judges as Roster does, for those who only look: that the dead cannot be buried
// is no error, and is tried again by the next call.
func (w *Watcher) Living(ctx context.Context, self ...string) ([]Worker, error) {
	alive, _, err := w.look(ctx, func(id string) error {
		ctx, cancel := context.WithTimeout(ctx, buryFor)
		defer cancel()
		if err := w.Bury(ctx, id); errors.Is(err, ErrAlive) {
			return err
		}
		return nil
	}, self)
	return alive, err
}

// Roster judges all workers that have a lease, as Dead does, and buries the
// dead, also those who held nothing. It returns who is alive, by id, and the ids
// that were buried now, or were alive in the last Roster of this watcher and
// have no lease any more: because another buried them, or because they released
// it. A worker that came and went between two calls is not seen.
//
// The workers named as self are never judged dead here: one that wakes from a
// long sleep must get to renew its lease before it looks at it.
//
// After an error nothing is lost: those who died are returned by the next call
// that succeeds.
func (w *Watcher) Roster(ctx context.Context, self ...string) (alive []Worker, died []string, err error) {
	return w.look(ctx, func(id string) error { return w.Bury(ctx, id) }, self)
}

// look is Roster with another way to bury.
func (w *Watcher) look(ctx context.Context, bury func(id string) error, self []string) (alive []Worker, died []string, err error) {
	select {
	case w.listing <- struct{}{}:
		defer func() { <-w.listing }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("lease: roster: %w", ctx.Err())
	}
	began := time.Now()
	var cells []store.Cell
	for cell, err := range w.s.List(ctx, Prefix, "") {
		if err != nil {
			return nil, nil, fmt.Errorf("lease: roster: %w", err)
		}
		cells = append(cells, cell)
	}
	if err := w.missed(ctx, &cells); err != nil {
		return nil, nil, err
	}
	ended := time.Now()

	now := map[string]bool{}
	for _, cell := range cells {
		id := strings.TrimPrefix(cell.Key, Prefix)
		w.roster[id] = true // until it is reported, also if this call fails
		w.mu.Lock()
		dead, left := w.judge(id, cell, began, ended)
		w.mu.Unlock()
		if dead && !slices.Contains(self, id) {
			err := bury(id)
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrAlive) {
				return nil, nil, err
			}
		}
		now[id] = true
		v := parse(cell)
		alive = append(alive, Worker{ID: id, Host: v.Host, Left: left, Info: v.Info})
	}
	w.mu.Lock()
	w.sweep(time.Now())
	w.mu.Unlock()
	for id := range w.roster {
		if !now[id] {
			died = append(died, id)
		}
	}
	w.roster = maps.Clone(now)
	slices.Sort(died)
	slices.SortFunc(alive, func(a, b Worker) int { return strings.Compare(a.ID, b.ID) })
	return alive, died, nil
}

// missed adds the leases of workers that are on the roster but were not listed
// and are there all the same: a list may leave out what is written meanwhile.
func (w *Watcher) missed(ctx context.Context, cells *[]store.Cell) error {
	listed := map[string]bool{}
	for _, cell := range *cells {
		listed[strings.TrimPrefix(cell.Key, Prefix)] = true
	}
	for _, id := range slices.Sorted(maps.Keys(w.roster)) {
		if listed[id] {
			continue
		}
		cell, err := w.s.Get(ctx, Prefix+id)
		switch {
		case err == nil:
			*cells = append(*cells, cell)
		case !errors.Is(err, store.ErrNotFound):
			return fmt.Errorf("lease: worker %q: %w", id, err)
		}
	}
	return nil
}
