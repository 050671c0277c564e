package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// turn is a lock for those who call the store while they hold it. Waiting for
// it is waiting at a channel, which lets virtual time go on in tests.
type turn chan struct{}

func (t turn) Lock() { t <- struct{}{} }

func (t turn) Unlock() { <-t }

// batch is what one commit appends. It is built under mu, again for each try,
// and then is called under mu when the entries are in the journal.
type batch struct {
	lines []threads.Line
	then  func()
}

// commit appends what build returns behind the entries seen so far. Entries
// that any node may write and that came between are absorbed, and build is
// asked again. A build that returns nothing ends the commit.
func (p *Pass) commit(build func() batch) error {
	p.order.Lock()
	defer p.order.Unlock()
	return p.mode.commit(build)
}

func (l live) commit(build func() batch) error {
	p := l.pass
	apart := false // what is late goes ahead, since there is no room for both
	for {
		p.mu.Lock()
		if p.sealed != nil {
			defer p.mu.Unlock()
			return p.sealed
		}
		b := build()
		if len(b.lines) == 0 {
			p.mu.Unlock()
			return nil
		}
		faults, late := len(p.problems), len(p.late)
		ahead := apart && late > 0
		if ahead {
			b = batch{}
		}
		if faults+late > 0 {
			b.lines = slices.Concat(p.problems, p.late, b.lines)
		}
		entries, data, err := p.write(b.lines)
		flows := p.letsGo(b.lines)
		p.mu.Unlock()
		if err != nil {
			return err
		}
		cells, settled := p.closing(b.lines, entries, flows)
		if settled {
			p.noted.closing.Store(true)
		}
		err = p.engine.threads.Append(p.io, p.name, p.thread, data, flows, cells...)
		switch {
		case err == nil:
			p.mu.Lock()
			p.settled = settled
			p.problems, p.late = p.problems[faults:], p.late[late:]
			p.apply(entries)
			alone := p.solo && slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Kind != journal.Nudge })
			p.solo = p.solo && !alone // it got on: it is no suspect any more
			for i := range b.lines {
				p.deps.saved(b.lines[i].Body.Deps)
			}
			if b.then != nil {
				b.then()
			}
			p.mu.Unlock()
			if alone {
				p.holder.NotSuspect(p.name)
			}
			p.engine.observe(p, entries)
			if ahead {
				continue
			}
			return nil
		case errors.Is(err, store.ErrTooLarge) && faults > 0:
			// What was only to be noted must not be in the way.
			p.engine.threads.Log.Error("problems too large to be recorded", "thread", p.name)
			p.mu.Lock()
			p.problems = p.problems[faults:]
			p.mu.Unlock()
		case errors.Is(err, store.ErrTooLarge) && late > 0 && !ahead:
			apart = true
		case errors.Is(err, store.ErrTooLarge):
			return fmt.Errorf("%w: %w", fault.ErrTooLarge, err)
		case errors.Is(err, store.ErrConflict) && p.io.Err() == nil:
			if err := p.absorb(); err != nil {
				return err
			}
		default:
			return p.lose(err)
		}
	}
}

// closing returns the writes of cells that belong to lines which end or suspend
// the run: of the summary, and of the hint, which goes if nothing is due behind
// them: then the thread is settled. What it leaves alone the worker does afterwards.
func (p *Pass) closing(lines []threads.Line, entries []journal.Entry, flows []string) (cells []store.Write, settled bool) {
	last := lines[len(lines)-1].Kind
	if last != journal.Ended && last != journal.Suspended {
		return nil, false
	}
	cells, ok := p.engine.threads.Foreseen(p.io, p.name, p.thread, entries)
	timed := func(l threads.Line) bool { return l.Body.Due != 0 }
	switch {
	case !ok: // the summary is right before the hint is gone
	case len(flows) > 0: // others go on
	case p.thread.Parent != nil: // it is told of the end first
	case last == journal.Suspended && (p.run.Due() != 0 || slices.ContainsFunc(lines, timed)): // it goes on by itself
	case last == journal.Suspended && (p.run.Cancelled || p.run.PausedAt != 0 || len(p.thread.Signals) > 0): // it may go on at once
	default:
		w, err := due.Removal(p.io, p.engine.threads.Store, p.run.Flow, p.name, p.thread.Seq+uint64(len(lines)))
		if settled = err == nil && w.Key != ""; settled {
			cells = append(cells, w)
		}
	}
	for i := range cells {
		cells[i].Optional = false // what was seen of them is outdated: they are seen again
	}
	return cells, settled
}

// write encodes lines of the run. What any node may write carries no epoch.
func (p *Pass) write(lines []threads.Line) ([]journal.Entry, [][]byte, error) {
	for i := range lines {
		lines[i].Run = p.run.N
		if !lines[i].Kind.Open() {
			lines[i].Epoch = p.epoch
		}
	}
	entries, data, err := threads.AppendLines(p.encoded[:0], p.thread, lines)
	p.encoded = entries
	return entries, data, err
}

// apply folds entries that are in the journal. mu is held.
func (p *Pass) apply(entries []journal.Entry) {
	for _, e := range entries {
		e.Keep()
		err := p.thread.Apply(e)
		if err == nil && e.Run == p.run.N {
			e.Texts = p.thread.Texts(e)
			err = p.tree.Apply(e)
			p.tree.Tell(p.thread, e.Run)
		}
		if err != nil {
			p.seal(fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, e.Seq, err))
			return
		}
	}
	if p.run.Cancelled {
		p.cancel(fault.ErrCancelled)
	}
	for w := range p.waiters {
		if p.goesOn(w) {
			p.unpark(w)
		}
	}
}

// absorb reads what others appended. An entry that only a worker writes, or
// of an unknown kind, means that the run is another's.
func (p *Pass) absorb() error {
	for {
		after := locked(p, func() uint64 { return p.thread.Seq })
		tail, err := store.ReadAll(p.io, p.engine.threads.Store, threads.JournalKey(p.name), after-p.thread.Base)
		if err != nil {
			if threads.IsUnusable(err) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrDropped) {
				return p.lose(err)
			}
			p.engine.threads.Log.Warn("reading a tail", "thread", p.name, "error", err)
			select {
			case <-p.io.Done():
				return p.lose(err)
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		var news []journal.Entry
		prev := p.thread.Head
		for _, line := range tail {
			e, err := journal.Decode(prev, line.Seq+p.thread.Base, line.Data)
			if err != nil || !e.Kind.Open() {
				p.apply(news)
				err = p.fence(e, err)
				if e.Kind != journal.Claimed && e.Kind != journal.Erased {
					go p.letGo()
				}
				return err
			}
			prev = e.Hash
			news = append(news, e)
		}
		p.apply(news)
		return nil
	}
}

// fence seals the pass because of an entry that this worker cannot absorb.
func (p *Pass) fence(e journal.Entry, err error) error {
	if err == nil && e.Kind == journal.Erased {
		err = fmt.Errorf("%w: %w", fault.ErrFenced, &fault.ErasedError{Thread: p.thread.ID})
	} else if err == nil {
		err = fmt.Errorf("%w: entry %d is %s", fault.ErrFenced, e.Seq, e.Kind)
	} else {
		err = fmt.Errorf("%w: entry %d: %w", fault.ErrFenced, e.Seq, err)
	}
	p.seal(err)
	return p.sealed
}

// lose seals the pass because the store failed it.
func (p *Pass) lose(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seal(fmt.Errorf("%w: the store failed: %w", fault.ErrFenced, fault.IfDropped(p.name, err)))
	return p.sealed
}

// seal ends the pass: from now on nothing is recorded and no function is
// started. mu is held.
func (p *Pass) seal(why error) {
	if p.sealed == nil {
		p.sealed = why
		p.end(why)
	}
}

// letsGo returns the flows of runs that may go on after lines that end or
// suspend this one, so that they can be announced before. A run that is blocked
// here is announced to workers with other code, which left it to this one.
func (p *Pass) letsGo(lines []threads.Line) []string {
	for i := range lines {
		switch kind := lines[i].Kind; kind {
		case journal.Ended, journal.Suspended, journal.Blocked, journal.Released:
			flows := threads.OtherFlows(p.thread, p.run)
			if len(flows) > 0 || p.draining || kind == journal.Blocked {
				flows = append(flows, p.run.Flow)
			}
			return flows
		}
	}
	return nil
}

// letGo says after a fence that the run is free, so that one who understands
// the thread need not wait for this worker's death.
func (p *Pass) letGo() {
	for range 5 {
		o, err := p.engine.threads.Read(p.io, p.name)
		if err != nil || o.Thread.Epoch != p.epoch || o.Thread.Worker != p.holder.ID() || o.Thread.Erased {
			return
		}
		_, data, err := threads.EncodeLines(o.Thread, []threads.Line{{Kind: journal.Released, Run: p.run.N, Epoch: p.epoch}})
		if err != nil {
			return
		}
		if err := p.engine.threads.Append(p.io, p.name, o.Thread, data, []string{p.run.Flow}); !errors.Is(err, store.ErrConflict) {
			return
		}
	}
}

// watch reads the tail whenever something was appended while the pass itself
// is quiet. While it commits, its own compare-and-swap tells it.
func (p *Pass) watch() {
	const quiet = 20 * time.Millisecond
	head := func() uint64 { return locked(p, func() uint64 { return p.thread.Seq }) }
	for range store.Watch(p.ctx, p.engine.threads.Store, threads.JournalKey(p.name)) {
		for {
			before := head()
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(quiet):
			}
			if head() == before {
				break
			}
		}
		p.order.Lock()
		err := p.absorb()
		p.order.Unlock()
		if err != nil && p.ctx.Err() == nil {
			p.engine.threads.Log.Warn("following a thread", slog.String("thread", p.name), slog.Any("error", err))
		}
	}
}
