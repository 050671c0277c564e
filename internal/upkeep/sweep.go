package upkeep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

const (
	sweepCell = "perdure/sweep"
	// sweepPace is how long a sweep rests after each thread, and sweepSign how
	// often it shows that it is in progress.
	sweepPace = 5 * time.Millisecond
	sweepSign = time.Minute
)

type sweepMark struct {
	After string `json:"after,omitempty"` // how far the current or interrupted sweep has come
}

// Sweep goes through all journals from time to time until the context ends. Finish, if
// it is not nil, is called with each sweep, to complete what others left half done.
func Sweep(ctx context.Context, t *threads.Threads, finish func(context.Context) error) {
	(&sweeper{threads: t, every: sweepInterval, finish: finish}).run(ctx)
}

type sweeper struct {
	threads *threads.Threads
	finish  func(context.Context) error
	every   time.Duration
	seen    store.Version // of the cell at the last look; "" if there was none
}

func (s *sweeper) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.every + rand.N(s.every/5)):
		}
		_ = s.threads.CheckMoved(ctx) // logs it
		switch b, err := s.sweep(ctx); {
		case ctx.Err() != nil:
			return
		case errors.Is(err, threads.ErrNothing):
		case err != nil:
			s.threads.Warn("looking for lost hints", err)
		case b.Hints+b.Summaries+b.Damaged > 0:
			s.threads.Log.Warn("looked for lost hints", "threads", b.Threads, "hints", b.Hints, "summaries", b.Summaries, "damaged", b.Damaged, "orphans", b.Orphans)
		default:
			s.threads.Log.Debug("looked for lost hints", "threads", b.Threads, "orphans", b.Orphans)
		}
	}
}

// sweep sweeps once. If another worker is doing so, it returns ErrNothing.
func (s *sweeper) sweep(ctx context.Context) (*Rebuilt, error) {
	cell, err := s.threads.Store.Get(ctx, sweepCell)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if cell.Version != s.seen {
		s.seen = cell.Version
		return nil, threads.ErrNothing
	}
	var mark sweepMark
	_ = json.Unmarshal(cell.Value, &mark) // if it cannot be read, sweep from the beginning
	if err := s.show(ctx, mark); err != nil {
		return nil, err
	}
	if _, err := s.threads.ExpireUploads(ctx); err != nil {
		s.threads.Warn("removing old uploads", err)
	}
	if s.finish != nil {
		if err := s.finish(ctx); err != nil && ctx.Err() == nil {
			s.threads.Warn("completing interrupted erases", err)
		}
	}
	shown := time.Now()
	b := &rebuilder{threads: s.threads}
	b.step = func(after string) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sweepPace):
		}
		if after == "" || time.Since(shown) < sweepSign {
			return nil
		}
		shown = time.Now()
		return s.show(ctx, sweepMark{After: after})
	}
	if err := b.rebuildAll(ctx, mark.After); err != nil {
		return &b.found, err
	}
	return &b.found, s.show(ctx, sweepMark{})
}

// show writes the cell. If another worker has done so, that one sweeps:
// ErrNothing.
func (s *sweeper) show(ctx context.Context, mark sweepMark) error {
	value, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	version, err := s.threads.Store.Put(ctx, sweepCell, value, s.seen)
	if errors.Is(err, store.ErrConflict) {
		return threads.ErrNothing
	}
	if err != nil {
		return fmt.Errorf("showing a sweep: %w", err)
	}
	s.seen = version
	return nil
}

// Workers go through all journals from time to time and write what Rebuild
// would, so a hint that was lost, for whatever reason, is missing for a while
// but not forever. One worker does so at a time: the one that writes a certain
// cell. A worker that finds the cell changed since its last look leaves the
// sweep to another, so no clock is ever compared with another machine's.

// SweepInterval is the time between two sweeps.
const SweepInterval = 10 * time.Minute

var sweepInterval = SweepInterval

// SetSweepInterval changes the interval of sweeps that begin from now on, until
// undo is called. It is for tests.
func SetSweepInterval(d time.Duration) (undo func()) {
	old := sweepInterval
	sweepInterval = d
	return func() { sweepInterval = old }
}
