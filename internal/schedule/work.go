package schedule

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/duty"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

const (
	calm    = time.Second      // the least time between two looks at all schedules
	seldom  = 10 * time.Minute // how often to look even if nothing has changed
	again   = time.Second      // the pause after an error of the store, and the first one after others
	longest = time.Minute      // the longest pause: a machine may have slept
	atOnce  = 8                // schedules whose firings a worker makes at a time

	minLate = time.Minute // a firing that is later was missed; never less than three leases
)

// Work makes firings until the context ends. Any number of workers may.
func Work(ctx context.Context, t *threads.Threads, lease time.Duration, cron Cron, starter Starter) {
	if threads.IsBare(t.Store) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{maker: maker{threads: t, cron: cron, starter: starter, id: threads.NewRunID(), late: max(minLate, 3*lease)},
		lease: lease, items: map[string]*item{}, trusted: map[string]bool{}, made: make(chan made, atOnce), ended: make(chan *item)}
	news, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		for range store.Watch(ctx, t.Store, newsKey) {
			select {
			case news <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		cancel()
		<-over
		for range w.busy {
			<-w.made
		}
		w.awaiting.Wait()
	}()
	next := bell.New(seldom)
	defer next.Stop()
	calmUntil, lookBy := time.Now(), time.Now()
	for {
		if !time.Now().Before(lookBy) {
			wait := seldom
			if err := w.readAll(ctx); err != nil && ctx.Err() == nil {
				if threads.IsUnusable(err) {
					return
				}
				t.Warn("looking for schedules", err)
				wait = again
			}
			calmUntil, lookBy = time.Now().Add(calm), time.Now().Add(wait)
		}
		next.Reset(min(time.Until(lookBy), w.begin(ctx), longest))
		select {
		case <-ctx.Done():
			return
		case <-over: // the store was closed
			return
		case <-news:
			if calmUntil.Before(lookBy) { // however often it is told
				lookBy = calmUntil
			}
		case m := <-w.made:
			w.busy--
			if threads.IsUnusable(m.err) {
				return
			}
			w.settle(ctx, m)
		case it := <-w.ended:
			it.after = time.Time{}
		case <-next.C:
		}
	}
}

// worker makes the firings of all schedules.
type worker struct {
	maker
	lease time.Duration
	items map[string]*item // by key
	made  chan made
	busy  int

	ended    chan *item // their last runs have
	awaiting sync.WaitGroup
	// trusted are other workers that have made firings since this one began: the next
	// ones of their schedules are theirs, unless they are a lease late.
	trusted map[string]bool
}

// item is a schedule as this worker last saw it.
type item struct {
	key     string
	version store.Version // of the cell at the last look
	s       *Schedule
	busy    bool      // its firings are being made
	after   time.Time // not to be looked at before
	tries   int       // that were in vain
	leave   func()    // ends the wait for the end of the last run; nil if nobody waits
}

// made is what came of making firings.
type made struct {
	*item
	was, now *Schedule // now is nil if it is gone
	err      error
}

// readAll reads all schedules.
func (w *worker) readAll(ctx context.Context) error {
	there := map[string]bool{}
	for cell, err := range w.threads.Store.List(ctx, Prefix, "") {
		if err != nil {
			return err
		}
		it := w.items[cell.Key]
		if there[cell.Key] = true; it != nil && (it.busy || it.version == cell.Version) {
			continue
		}
		s, err := parse(cell.Value)
		switch {
		case err != nil: // Get tells
		case it == nil || it.s.Life != s.Life || it.s.Writes != s.Writes:
			if it != nil {
				w.drop(it)
			}
			w.items[cell.Key] = &item{key: cell.Key, version: cell.Version, s: s}
		default:
			it.version = cell.Version
		}
	}
	for key, it := range w.items {
		if !there[key] && !it.busy {
			w.drop(it)
		}
	}
	return nil
}

// begin begins to make the firings that are due, and returns how long to wait for others.
func (w *worker) begin(ctx context.Context) time.Duration {
	wait := seldom
	for _, it := range w.items {
		if it.busy {
			continue
		}
		left := w.wait(it)
		if left > 0 || w.busy == atOnce {
			wait = min(wait, max(left, 0)) // if all are busy, the end of one ends the wait too
			if left <= 0 {
				wait = seldom
				break
			}
			continue
		}
		it.busy = true
		w.busy++
		was := it.s
		go func() {
			now, err := w.make(ctx, it.key)
			if ctx.Err() == nil && isOwn(err) {
				w.threads.Warn("making a firing of a schedule", err, "schedule", was.ID, "tenant", was.Tenant)
				if s, failed := w.write(ctx, it.key, was.Life, func(s *Schedule) bool { return s.fail(fault.Clip(err.Error(), mostText)) }); failed == nil {
					now = s
				}
			}
			w.made <- made{it, was, now, err}
		}()
	}
	return wait
}

// wait returns how long nothing is to be done about a schedule.
func (w *worker) wait(it *item) time.Duration {
	s, left := it.s, seldom
	if s.Paused {
		return left
	}
	if s.Next != 0 {
		left = clock.Until(s.Next)
		if w.trusted[s.Worker] {
			left += w.lease
		}
		if !w.starter.Has(s.Flow) { // others may have it
			left += 2 * w.lease
		}
	}
	if len(s.Queue) > 0 {
		left = min(left, 0) // as often as settle allows
	}
	return max(left, time.Until(it.after))
}

// settle takes over what came of making firings.
func (w *worker) settle(ctx context.Context, m made) {
	it, now := m.item, m.now
	it.busy, it.after = false, time.Time{}
	if m.err == nil && now == nil {
		w.drop(it)
		return
	}
	if now != nil {
		it.s = now
		switch {
		case now.Worker == w.id && w.trusted[m.was.Worker]: // it did not come
			delete(w.trusted, m.was.Worker)
		case now.Worker != w.id && now.Last != m.was.Last:
			w.trusted[now.Worker] = true
		}
	}
	switch {
	case ctx.Err() != nil:
	case m.err == nil && (now.Last != m.was.Last || now.LastOf != m.was.LastOf || len(now.Queue) == 0):
		it.tries = 0
	case m.err == nil: // the last run has not ended
		it.tries = min(it.tries+1, 4)
		it.after = time.Now().Add(again << (it.tries - 1))
		if w.trusted[now.Worker] {
			it.after = it.after.Add(30*time.Second + w.lease)
		} else {
			w.await(ctx, it)
		}
	case isOwn(m.err):
		it.tries = min(it.tries+1, 7)
		it.after = time.Now().Add(min(again<<(it.tries-1), longest))
	default:
		it.after = time.Now().Add(again)
	}
}

// await has a schedule looked at again as soon as its last run has ended.
func (w *worker) await(ctx context.Context, it *item) {
	if it.leave != nil {
		it.leave()
	}
	ctx, it.leave = context.WithCancel(ctx)
	s := it.s
	w.awaiting.Go(func() {
		if w.starter.Await(ctx, s, s.LastOf) != nil {
			return // the next look comes by itself
		}
		select {
		case w.ended <- it:
		case <-ctx.Done():
		}
	})
}

// drop forgets a schedule.
func (w *worker) drop(it *item) {
	if it.leave != nil {
		it.leave()
	}
	delete(w.items, it.key)
}

// isOwn reports whether an error is about one schedule, not about the store.
func isOwn(err error) bool {
	return err != nil && !threads.IsUnusable(err) && !duty.Passes(err) && !errors.Is(err, fault.ErrMoved) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnknown)
}
