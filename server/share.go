package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// A window counts what happened within the last minute, in steps of five seconds.
type window struct {
	n    [windowSteps]int64
	step int64 // the step of n[0]; n[1] is the one before it
}

const (
	windowStep  = 5 * time.Second
	windowSteps = 12
)

func stepOf(now time.Time) int64 { return now.UnixNano() / int64(windowStep) }

// forward moves the window to a time.
func (w *window) forward(now time.Time) {
	by := stepOf(now) - w.step
	if by <= 0 {
		return
	}
	old := w.n
	w.n, w.step = [windowSteps]int64{}, stepOf(now)
	if by < windowSteps {
		copy(w.n[by:], old[:])
	}
}

func (w *window) add(now time.Time, n int64) {
	w.forward(now)
	w.n[0] += n
}

// takeBack removes what was added at a time.
func (w *window) takeBack(at time.Time, n int64) {
	if i := w.step - stepOf(at); i >= 0 && i < windowSteps {
		w.n[i] -= n
	}
}

// sum returns how often it happened within the minute before a time.
func (w window) sum(now time.Time) (sum int64) {
	w.forward(now)
	for _, n := range w.n {
		sum += n
	}
	return sum
}

// plus returns the sum of two windows at a time.
func (w window) plus(other window, now time.Time) window {
	w.forward(now)
	other.forward(now)
	for i, n := range other.n {
		w.n[i] += n
	}
	return w
}

// until returns how long it takes until there are fewer than most.
func (w window) until(most int64, now time.Time) time.Duration {
	sum := w.sum(now)
	next := time.Duration(int64(windowStep) - now.UnixNano()%int64(windowStep)) // then the oldest step is over
	for i := windowSteps - 1; i > 0; i-- {
		if sum -= w.n[i]; sum < most {
			break
		}
		next += windowStep
	}
	return next
}

// share is how servers of a store tell each other about starts and streams: each
// writes a cell from time to time, and reads those of the others. So a server knows
// what the others had a few seconds ago, and together they may exceed a quota by
// what they admit in between.
type share struct {
	quotas *quotas
	key    string
	cell   store.Version // of the own one; "": there is none

	seen map[string]*peer // by key
	done chan struct{}    // closed when run has ended
}

// peer is another server. A cell that does not change for a while belongs to a
// server that is gone: no clocks are compared.
type peer struct {
	version store.Version
	since   time.Time // when the version was first seen
	told    map[string]told
}

// told is what a server tells about a tenant.
type told struct {
	Starts  []int64 `json:"starts,omitempty"` // by age, the newest first
	Streams int64   `json:"streams,omitempty"`
}

const (
	sharePrefix = "quota/"
	shareEvery  = 2 * time.Second
	shareGone   = 5 * shareEvery  // the streams of a server that has been silent for that long do not count
	shareDead   = 30 * shareEvery // and its cell is removed: its starts were more than a minute ago
	shareMost   = 2000            // tenants in a cell
)

func (s *share) init(q *quotas) {
	s.quotas, s.key, s.seen, s.done = q, sharePrefix+threads.NewRunID(), map[string]*peer{}, make(chan struct{})
}

// others is what other servers have of a tenant.
type others struct {
	starts  window
	streams int64
}

// ofOthers returns what other servers have of a tenant. The mutex of quotas is held.
func (s *share) ofOthers(tenant string, now time.Time) (sum others) {
	part := threads.Behind(s.quotas.s.rt).All.Tenant(tenant).Part
	for _, p := range s.seen {
		t, ok := p.told[part]
		if !ok {
			continue
		}
		w := window{step: stepOf(p.since)}
		copy(w.n[:], t.Starts)
		sum.starts = sum.starts.plus(w, now) // of a server that is gone too: they were within a minute
		if now.Sub(p.since) <= shareGone {
			sum.streams += t.Streams
		}
	}
	return sum
}

// run exchanges until the server stops.
func (s *share) run() {
	defer close(s.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		if !first { // at once: it may take the place of another server
			select {
			case <-tick.C:
			case <-s.quotas.s.stop:
				bounded, done := context.WithTimeout(ctx, shareEvery)
				defer done()
				_ = s.write(bounded, s.last(time.Now()))
				return
			}
		}
		bounded, done := context.WithTimeout(ctx, 5*shareEvery)
		if err := s.exchange(bounded); err != nil && !threads.Behind(s.quotas.s.rt).All.Logged(err) {
			s.quotas.s.opts.Logger.Warn("telling other servers what tenants use", "error", err)
		}
		done()
	}
}

// exchange writes the own cell and reads the others.
func (s *share) exchange(ctx context.Context) error {
	if err := s.write(ctx, s.own(time.Now())); err != nil {
		return err
	}
	now, found := time.Now(), map[string]*peer{}
	var dead []store.Cell
	for cell, err := range s.quotas.s.store().List(ctx, sharePrefix, "") {
		if err != nil {
			return err
		}
		if cell.Key == s.key {
			continue
		}
		p := s.seen[cell.Key]
		if p == nil || p.version != cell.Version {
			p = &peer{version: cell.Version, since: now}
			_ = json.Unmarshal(cell.Value, &p.told) // what cannot be read counts nothing
		}
		if found[cell.Key] = p; now.Sub(p.since) > shareDead {
			dead = append(dead, cell)
		}
	}
	s.quotas.mu.Lock()
	s.seen = found
	s.quotas.mu.Unlock()
	for _, cell := range dead {
		if err := s.quotas.s.store().Delete(ctx, cell.Key, cell.Version); err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// own returns what this server tells.
func (s *share) own(now time.Time) map[string]told {
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	all := threads.Behind(s.quotas.s.rt).All
	tell := map[string]told{}
	for tenant, a := range s.quotas.tenants {
		a.starts.forward(now)
		if starts := a.starts.sum(now); starts > 0 || a.streams > 0 {
			tell[all.Tenant(tenant).Part] = told{Starts: slices.Clone(a.starts.n[:]), Streams: a.streams}
		}
		if len(tell) == shareMost {
			break
		}
	}
	return tell
}

// last returns what this server tells when it stops. Starts count as long as those of
// others, so that a restart does not open the gate; then another server removes the cell.
func (s *share) last(now time.Time) map[string]told {
	tell := map[string]told{}
	for part, t := range s.own(now) {
		if slices.Max(t.Starts) > 0 {
			tell[part] = told{Starts: t.Starts}
		}
	}
	return tell
}

// write writes the own cell, or removes it if there is nothing to tell. It is
// written even if nothing has changed: that is a sign of life.
func (s *share) write(ctx context.Context, tell map[string]told) error {
	st := s.quotas.s.store()
	if len(tell) == 0 {
		if s.cell == "" {
			return nil
		}
		err := st.Delete(ctx, s.key, s.cell)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			s.cell, err = "", nil
		}
		return err
	}
	value, err := json.Marshal(tell)
	if err != nil {
		return err
	}
	version, err := store.PutUnsynced(ctx, st, s.key, value, s.cell)
	if err == nil {
		s.cell = version
		return nil
	}
	// Whether it was written is not known, or another server took this one for gone.
	cell, getErr := st.Get(ctx, s.key)
	switch {
	case getErr == nil:
		s.cell = cell.Version
	case errors.Is(getErr, store.ErrNotFound):
		s.cell = ""
	}
	return err
}
