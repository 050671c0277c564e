package explore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
)

// drainTime is how long, in virtual time, actors may take to return when the
// execution is over.
const drainTime = time.Hour

// run is the scheduler of one execution.
func (w *World) run() {
	w.search.setup(w)
	if w.schedule() {
		if err := w.verdict(); err != nil {
			w.search.fail(err)
		}
	}
	w.drain()
}

// schedule takes step after step until none is possible. It returns false if
// the execution was left before its end.
func (w *World) schedule() bool {
	for {
		w.settle()
		moves, calls := w.moves()
		if len(moves) == 0 {
			if !w.passTime() {
				return true
			}
			continue
		}
		i, ok := w.search.choose(moves)
		if !ok {
			return false
		}
		if calls[i] == nil {
			w.delays--
			if !w.passTime() { // equal to the execution without this delay
				w.search.cut = true
				return false
			}
			continue
		}
		w.take(calls[i], moves[i].fault)
	}
}

// settle starts the actors that are ready, lets everything run until it
// waits, and takes over the calls that arrived.
func (w *World) settle() {
	for {
		synctest.Wait()
		i := slices.IndexFunc(w.actors, (*Actor).ready)
		if i < 0 {
			break
		}
		w.actors[i].start()
	}
	select {
	case <-w.bell:
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Goroutines of one actor arrive in any order; their calls are numbered
	// by what they are.
	slices.SortStableFunc(w.arrived, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.actor.index, b.actor.index), cmp.Compare(a.op, b.op),
			cmp.Compare(a.name, b.name), cmp.Compare(a.after, b.after), bytes.Compare(a.data, b.data))
	})
	for _, c := range w.arrived {
		c.number = c.actor.numbers
		c.actor.numbers++
	}
	w.pending = append(w.pending, w.arrived...)
	w.arrived = nil
	w.pending = slices.DeleteFunc(w.pending, func(c *call) bool { return c.left })
	slices.SortFunc(w.pending, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.actor.index, b.actor.index), cmp.Compare(a.number, b.number))
	})
}

// moves returns what can come next, with the call that each is about: calls,
// then faults, then time.
func (w *World) moves() (moves []move, calls []*call) {
	add := func(c *call, f fault) {
		m := move{actor: c.actor.index, number: c.number, fault: f, op: c.op, name: c.name, after: c.after}
		copy(m.cells[:], c.cells)
		moves = append(moves, m)
		calls = append(calls, c)
	}
	for _, c := range w.pending {
		if c.watch == nil || c.watch.dirty {
			add(c, noFault)
		}
	}
	for _, c := range w.pending {
		if !c.op.Writes() || c.actor.reliable {
			continue
		}
		if w.crashes > 0 {
			add(c, killBefore)
			add(c, killAfter)
		}
		if w.unknowns > 0 {
			add(c, unknownNot)
			add(c, unknownYes)
		}
		if w.conflict > 0 && c.op != store.OpDrop {
			add(c, conflict)
		}
	}
	if w.delays > 0 && len(moves) > 0 && w.left > 0 {
		moves = append(moves, move{actor: -1, op: opTime})
		calls = append(calls, nil)
	}
	return moves, calls
}

// take lets one call happen, or the fault.
func (w *World) take(c *call, f fault) {
	w.search.steps = append(w.search.steps, step{call: c, fault: f})
	if f.writes() {
		before := w.versions(c.cells)
		c.err = c.do()
		if c.op.Writes() && c.err == nil {
			w.wake(c.name)
			for i, version := range w.versions(c.cells) {
				if version != before[i] { // an optional cell may not have been written
					w.wake(c.cells[i])
				}
			}
		}
	}
	switch f {
	case killBefore, killAfter:
		w.crashes--
		c.err = ErrKilled
		c.actor.kill()
		return
	case unknownNot, unknownYes:
		w.unknowns--
		c.err = fmt.Errorf("%s %q: %w", c.op, c.name, ErrUnknown)
	case conflict:
		w.conflict--
		c.err = store.Conflictf("%s %q: refused for no reason", c.op, c.name)
	}
	w.pending = slices.DeleteFunc(w.pending, func(p *call) bool { return p == c })
	close(c.done)
}

// versions returns those of cells, "" for none.
func (w *World) versions(keys []string) []store.Version {
	versions := make([]store.Version, len(keys))
	for i, key := range keys {
		cell, _ := w.inner.Get(w.ctx, key)
		versions[i] = cell.Version
	}
	return versions
}

func (w *World) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watch := range w.watches {
		if strings.HasPrefix(name, watch.prefix) {
			watch.dirty = true
		}
	}
}

// passTime lets time pass until something happens, and reports whether
// something did.
func (w *World) passTime() bool {
	if w.left <= 0 || !slices.ContainsFunc(w.actors, (*Actor).Waiting) {
		return false
	}
	start := time.Now()
	happened := w.await(w.left)
	w.left -= time.Since(start)
	if happened {
		w.search.asleep = nil // time concerns everybody
		w.search.steps = append(w.search.steps, step{text: fmt.Sprintf("%s: %v", opTime, time.Since(start))})
	}
	return happened
}

func (w *World) await(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.bell:
		return true
	case <-timer.C:
		return false
	}
}

// verdict judges the ending.
func (w *World) verdict() error {
	for _, a := range w.actors {
		if a.broken != nil {
			return a.broken
		}
	}
	if w.check == nil {
		return w.Settled()
	}
	return w.check(w.ctx, w.Store())
}

// drain ends what still runs, and waits for it.
func (w *World) drain() {
	w.mu.Lock()
	w.over = true
	w.pending = append(w.pending, w.arrived...) // came at the moment the time was over
	w.arrived = nil
	w.mu.Unlock()
	for _, a := range w.actors {
		if a.cancel != nil {
			a.cancel(errors.New("explore: the execution is over"))
		}
	}
	w.refuse(func(*call) bool { return true })
	synctest.Wait()
	for range len(w.actors) {
		if len(w.running()) > 0 {
			w.await(drainTime)
		}
	}
	if names := w.running(); len(names) > 0 {
		w.search.fail(fmt.Errorf("actors do not return though their contexts are cancelled and their calls fail: %s", strings.Join(names, ", ")))
	}
	w.inner.Close()
}

func (w *World) running() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.actors {
		if a.cancel != nil && !a.returned {
			names = append(names, a.name)
		}
	}
	return names
}
