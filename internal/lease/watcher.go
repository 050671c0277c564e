package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

// forgetAfter is how long a watcher remembers a worker that nobody asks about.
// It is longer than any wait that Dead suggests.
const forgetAfter = 2 * MaxTTL

// Watcher judges which workers are dead. It is safe for concurrent use.
type Watcher struct {
	s store.Store

	mu     sync.Mutex
	seen   map[string]sight
	swept  time.Time
	failed time.Time // when the store was last unavailable

	listing chan struct{}   // holds one element while Roster runs
	roster  map[string]bool // ids that Roster has not yet reported as dead; guarded by listing
}

// sight is what a watcher knows about one lease.
type sight struct {
	version store.Version
	since   time.Time // the cell has not changed since then, or for longer
	asked   time.Time
	dead    bool // judged dead at this version
}

// NewWatcher returns a watcher that has seen nothing yet.
func NewWatcher(s store.Store) *Watcher {
	return &Watcher{s: s, seen: map[string]sight{}, listing: make(chan struct{}, 1), roster: map[string]bool{}}
}

// Dead reports whether the worker called id is dead. A worker without a lease
// is, since a worker takes no work before it has one. A worker with a lease is
// dead once its cell has not changed for the ttl written in it, or for MaxTTL
// if that is not a ttl that Hold could have written.
//
// The time counts from when this watcher was first asked about the worker or
// last saw its cell change. A worker that nobody has asked about for twice
// MaxTTL is forgotten, and its time starts over. If the worker is not dead,
// retryIn is the least time until it can be. A caller that asks only that often
// may see the last change late and take up to two ttls to judge; one that asks
// every quarter of a ttl takes a ttl and a quarter.
//
// While the store is unavailable no worker can renew its lease. So if this watcher
// could not look for half of a ttl or more because of that, its time starts over.
func (w *Watcher) Dead(ctx context.Context, id string) (dead bool, retryIn time.Duration, err error) {
	// The cell was in this state at some moment between these two times, so it
	// did not change between the end of the first look and the beginning of the
	// last.
	began := time.Now()
	cell, err := w.s.Get(ctx, Prefix+id)
	ended := time.Now()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(ended)
	switch {
	case errors.Is(err, store.ErrNotFound):
		delete(w.seen, id)
		return true, 0, nil
	case err != nil:
		w.notice(err)
		return false, 0, fmt.Errorf("lease: worker %q: %w", id, err)
	}
	dead, retryIn = w.judgeCell(id, cell, began, ended)
	return dead, retryIn, nil
}

// judgeCell notes that the worker's cell was in this state at some moment
// between began and ended, and judges it as Dead does. The caller holds the
// lock.
func (w *Watcher) judgeCell(id string, cell store.Cell, began, ended time.Time) (dead bool, retryIn time.Duration) {
	at, ok := w.seen[id]
	if !ok || at.version != cell.Version {
		at = sight{version: cell.Version, since: ended}
	}
	patience := parse(cell).patience()
	if w.failed.After(at.asked) && ended.Sub(at.asked) >= patience/2 {
		at.since = ended
	}
	at.asked = ended
	at.dead = at.dead || began.Sub(at.since) >= patience
	w.seen[id] = at
	if at.dead {
		return true, 0
	}
	return false, max(0, patience-ended.Sub(at.since))
}

// notice notes that the store was unavailable, if err says so. The caller holds the
// lock.
func (w *Watcher) notice(err error) {
	if errors.Is(err, store.ErrUnavailable) {
		w.failed = time.Now()
	}
}

// sweep forgets workers that nobody asks about any more. Workers without a cell
// are never remembered, so no more are kept than have had a lease lately.
func (w *Watcher) sweep(now time.Time) {
	if now.Sub(w.swept) < MaxTTL {
		return
	}
	w.swept = now
	for id, at := range w.seen {
		if now.Sub(at.asked) >= forgetAfter {
			delete(w.seen, id)
		}
	}
}

// Bury removes the lease of a worker that this watcher has judged dead. It
// returns ErrAlive if the lease has changed since. Once it returns nil, the
// worker has no lease and cannot renew the one it had; if it comes back, it
// finds the lease lost. Bury retries uncertain writes until ctx ends.
func (w *Watcher) Bury(ctx context.Context, id string) error {
	w.mu.Lock()
	at := w.seen[id]
	w.mu.Unlock()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := store.ErrConflict
		if at.dead {
			err = w.s.Delete(ctx, Prefix+id, at.version)
		}
		if err == nil {
			return nil
		}
		if !hopeless(err) {
			cell, getErr := w.s.Get(ctx, Prefix+id)
			switch {
			case errors.Is(getErr, store.ErrNotFound):
				return nil
			case getErr != nil:
				err = getErr
			case !at.dead || cell.Version != at.version:
				return fmt.Errorf("lease: bury %q: %w", id, ErrAlive)
			}
		}
		if hopeless(err) {
			return fmt.Errorf("lease: bury %q: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lease: bury %q: %w", id, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// Worker is a worker that is not known to be dead.
type Worker struct {
	ID, Host string

	// Left is the least time until it can be judged dead if its lease does not
	// change.
	Left time.Duration

	// Late means that it has missed a renewal, as far as this watcher has looked.
	Late bool

	Info json.RawMessage // see Hold; may be nil
}

// buryFor is how long Living tries to bury a dead worker.
const buryFor = 100 * time.Millisecond

// Living returns the workers that have a lease and are not judged dead, ordered
// by id. It is Roster for callers that only look: if a dead worker cannot be
// buried, that is not an error, and the next call tries again.
func (w *Watcher) Living(ctx context.Context, self ...string) ([]Worker, error) {
	alive, _, err := w.muster(ctx, func(id string) error {
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
// dead, including those that held no work. It returns the live workers, ordered
// by id, and the ids of those that have died: the ones it buried, and the ones
// that were alive in this watcher's last Roster and have no lease any more,
// because someone else buried them or they released it. A worker that came and
// went between two calls is not seen.
//
// The workers named by self are never judged dead here: one that wakes from a
// long sleep must get a chance to renew its lease first.
//
// An error loses nothing: the next successful call returns those who died.
func (w *Watcher) Roster(ctx context.Context, self ...string) (alive []Worker, died []string, err error) {
	return w.muster(ctx, func(id string) error { return w.Bury(ctx, id) }, self)
}

// muster implements Roster and Living, which bury differently.
func (w *Watcher) muster(ctx context.Context, bury func(id string) error, self []string) (alive []Worker, died []string, err error) {
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
			w.mu.Lock()
			w.notice(err)
			w.mu.Unlock()
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
		w.roster[id] = true // until it is reported, even if this call fails
		w.mu.Lock()
		dead, left := w.judgeCell(id, cell, began, ended)
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
		alive = append(alive, Worker{ID: id, Host: v.Host, Left: left, Late: left <= v.patience()/2, Info: v.Info})
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

// missed adds the leases of workers on the roster that exist but were not
// listed: a list may leave out cells that are being written.
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
