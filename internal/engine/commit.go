package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// turn is a lock that is held during calls to the store. It is a channel, since
// virtual time in tests advances while goroutines wait on a channel, but not
// while they wait on a mutex.
type turn chan struct{}

func (t turn) Lock() { t <- struct{}{} }

func (t turn) Unlock() { <-t }

// order is the lock of whoever commits, in two parts. A step that runs in a
// transaction holds the first while its function runs. Otherwise a commit of
// another branch could hold the second, which the transaction needs in the end,
// and wait for a store that the transaction has locked.
type order struct {
	tx   turn // held by whoever writes
	tail turn // held by whoever appends or absorbs
}

func (o order) Lock() {
	o.tx.Lock()
	o.tail.Lock()
}

func (o order) Unlock() {
	o.tail.Unlock()
	o.tx.Unlock()
}

// batch is what one commit appends. It is built under mu, again for each
// attempt; then is called under mu once the entries are in the journal.
type batch struct {
	lines []threads.Line
	then  func()
	in    *transaction // that is committed with the lines; nil for none
}

// commit appends what build returns after the entries seen so far. If others
// have appended entries that any node may write, it absorbs them and calls
// build again. A build that returns nothing ends the commit.
func (p *Pass) commit(build func() batch) error {
	p.order.Lock()
	defer p.order.Unlock()
	return p.mode.commit(build)
}

// commitBeside is commit for what ends the pass while a transaction may be open: it
// does not wait for the function of that step. If the store waits, the limit of the
// transaction ends the wait.
func (p *Pass) commitBeside(build func() batch) error {
	p.order.tail.Lock()
	defer p.order.tail.Unlock()
	return p.mode.commit(build)
}

func (l live) commit(build func() batch) error {
	p := l.pass
	apart := false // the late lines need an append of their own, since both do not fit into one
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
		if b.in != nil {
			faults, late = 0, 0 // they go with the next commit, which may need two appends
		}
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
		if b.in != nil {
			err = b.in.append(p, data)
		} else {
			err = p.engine.threads.Append(p.io, p.opened, data, flows, cells...)
		}
		switch {
		case err == nil:
			p.mu.Lock()
			p.settled = settled
			p.problems, p.late = p.problems[faults:], p.late[late:]
			p.apply(entries)
			alone := p.solo && slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Kind != journal.Nudge })
			p.solo = p.solo && !alone // it has made progress, so it is no longer a suspect
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
			// Problems are only notes, and must not prevent the commit.
			p.engine.threads.Log.Error("problems too large to be recorded", "thread", p.name)
			p.mu.Lock()
			p.problems = p.problems[faults:]
			p.mu.Unlock()
		case errors.Is(err, store.ErrTooLarge) && late > 0 && !ahead:
			apart = true
		case undone(err):
			return err
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

// closing returns the cell writes that go with lines that end or suspend the
// run: the summary and, if nothing is due after them, the removal of the hint,
// which makes the thread settled. The worker does afterwards what closing
// leaves out.
func (p *Pass) closing(lines []threads.Line, entries []journal.Entry, flows []string) (cells []store.Write, settled bool) {
	last := lines[len(lines)-1].Kind
	if last != journal.Ended && last != journal.Suspended {
		return nil, false
	}
	cells, ok := p.engine.threads.Foreseen(p.io, p.opened, entries)
	timed := func(l threads.Line) bool { return l.Body.Due != 0 }
	switch {
	case !ok: // the summary must be right before the hint goes
	case len(flows) > 0: // other runs continue
	case p.thread.Parent != nil: // the parent is told of the end first
	case last == journal.Suspended && (p.run.Due() != 0 || slices.ContainsFunc(lines, timed)): // it continues by itself
	case last == journal.Suspended && (p.run.Cancelled || p.run.PausedAt != 0 || len(p.thread.Signals) > 0): // it may continue at once
	default:
		w, err := due.Removal(p.io, p.opened.Cells(p.engine.threads.Store), p.run.Flow, p.name, p.thread.Seq+uint64(len(lines)))
		if settled = err == nil && w.Key != ""; settled {
			cells = append(cells, w)
		}
	}
	for i := range cells {
		// If one is outdated, the batch conflicts and is built again.
		cells[i].Optional = cells[i].Optional && threads.IsIndex(cells[i].Key)
	}
	return cells, settled
}

// write encodes lines of the run. Entries that any node may write carry no
// epoch.
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

// apply folds entries that are in the journal. The caller holds mu.
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

// absorb reads and folds what others appended. The store may have no connection to
// read with but that of the transaction, which then has to end.
func (p *Pass) absorb() error {
	tail, err := p.readTail(p.inTx == nil)
	if err != nil {
		return err
	}
	return p.foldTail(tail)
}

// readTail reads what others appended. If it fails, a patient one tries again until
// the pass is over.
func (p *Pass) readTail(patient bool) ([]store.Entry, error) {
	for {
		after := locked(p, func() uint64 { return p.thread.Seq })
		tail, err := store.ReadAll(p.io, p.engine.threads.Store, threads.JournalKey(p.name), after-p.thread.Base)
		if err == nil {
			return tail, nil
		}
		if !patient || threads.IsUnusable(err) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrDropped) {
			return nil, p.lose(err)
		}
		p.engine.threads.Warn("reading a tail", err, "thread", p.name)
		select {
		case <-p.io.Done():
			return nil, p.lose(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// foldTail folds what others appended, except for what the pass has seen since it
// was read. An entry that only a worker writes, or one of an unknown kind, means
// that the run is no longer ours.
func (p *Pass) foldTail(tail []store.Entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var news []journal.Entry
	prev, seen := p.thread.Head, p.thread.Seq
	for _, line := range tail {
		if line.Seq+p.thread.Base <= seen {
			continue
		}
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

// fence seals the pass because of an entry that this worker cannot absorb.
func (p *Pass) fence(e journal.Entry, err error) error {
	if err == nil && e.Kind == journal.Erased {
		err = fmt.Errorf("%w: %w", fault.ErrFenced, &fault.ErasedError{Thread: p.thread.ID})
	} else if err == nil && e.Kind == journal.Moved {
		b, _ := e.Read()
		err = fmt.Errorf("%w: %w", fault.ErrFenced, &fault.MovedError{Thread: p.thread.ID, To: b.Name})
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
// started. The caller holds mu.
func (p *Pass) seal(why error) {
	if p.sealed == nil {
		p.sealed = why
		p.end(why)
	}
}

// letsGo returns the flows of runs that may continue after lines that end or
// suspend this one, so that they can be announced first. A run that is blocked
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

// letGo records after a fence that the run is free, so that a worker that
// understands the thread need not wait for this one to die.
func (p *Pass) letGo() {
	for range 5 {
		o, err := p.engine.threads.Read(p.io, p.name)
		if err != nil || o.Thread.Epoch != p.epoch || o.Thread.Worker != p.holder.ID() || o.Thread.Erased || o.Thread.Moved != "" {
			return
		}
		_, data, err := threads.EncodeLines(o.Thread, []threads.Line{{Kind: journal.Released, Run: p.run.N, Epoch: p.epoch}})
		if err != nil {
			return
		}
		if err := p.engine.threads.Append(p.io, o, data, []string{p.run.Flow}); !errors.Is(err, store.ErrConflict) {
			return
		}
	}
}

// watch reads the tail when something is appended while the pass itself is
// quiet. A pass that is committing learns of it from its own conflicts.
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
		tail, err := p.readTail(true) // without the lock, which a transaction may need to go on
		if err == nil {
			p.order.tail.Lock()
			err = p.foldTail(tail)
			p.order.tail.Unlock()
		}
		if err != nil && p.ctx.Err() == nil {
			p.engine.threads.Warn("following a thread", err, "thread", p.name)
		}
	}
}
