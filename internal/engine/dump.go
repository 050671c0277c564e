package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Limits of a dump. If one exceeds them, the last good one stays, and an event
// of kind "problem" says so.
const (
	MaxDump     = 8 << 20
	DumpTimeout = 10 * time.Second
)

// dumps returns the states of deps that are not in the journal yet. The caller
// holds order, so that dumps are taken in the order in which they are
// committed, and must commit what it gets.
func (p *Pass) dumps() map[string]journal.Value {
	return p.dumpWhere(func(*depValue) bool { return true })
}

func (p *Pass) dumpWhere(is func(*depValue) bool) map[string]journal.Value {
	var changed map[string]journal.Value
	for v, r := range p.deps.resumables() {
		if !is(v) {
			continue
		}
		raw, err := p.dump(v, r)
		if !is(v) { // a leaf that has begun meanwhile may have changed it
			continue
		}
		if err == nil && raw != nil {
			var kept journal.Value
			if kept, err = p.value(raw); err == nil {
				if changed == nil {
					changed = map[string]journal.Value{}
				}
				changed[v.id] = kept
			}
		}
		p.noteFault(v, err)
	}
	return p.small(changed)
}

// small makes dumps fit into one entry together: the largest become blobs.
func (p *Pass) small(dumps map[string]journal.Value) map[string]journal.Value {
	for {
		total, largest := 0, ""
		for id, v := range dumps {
			total += len(v.JSON)
			if largest == "" || len(v.JSON) > len(dumps[largest].JSON) {
				largest = id
			}
		}
		if total <= blob.Inline {
			return dumps
		}
		kept, err := p.engine.threads.StoreBlob(p.io, p.cells(), p.name, dumps[largest].JSON)
		if errors.Is(err, store.ErrRolledBack) {
			return nil // the commit will say so too
		}
		if err != nil {
			_ = p.lose(err)
			return nil
		}
		dumps[largest] = kept
	}
}

// saved notes that the dumps of a commit are in the journal.
func (s *depSet) saved(dumps map[string]journal.Value) {
	if len(dumps) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range dumps {
		if v := s.byID[id]; v != nil {
			_, versioned := v.value.(versioned)
			v.last, v.version, v.seen = v.next, v.nextVer, versioned
		}
	}
}

// concerns reports whether a dep is saved with a leaf: the leaf uses it, or no
// other leaf can have changed it that is not recorded yet.
func (p *Pass) concerns(v *depValue, leaf *frame) bool {
	p.mu.Lock()
	alone := true
	for f := range p.leaves {
		alone = alone && (f == leaf || f.verbs)
	}
	p.mu.Unlock()
	s := &p.deps
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.held[leaf] || !alone {
		return v.held[leaf]
	}
	for _, u := range v.users {
		for b := leaf.branch; ; b = b.outer {
			if u == b {
				return true
			}
			if b == nil {
				break
			}
		}
	}
	return false
}

// noteFault queues a new problem with a dump for the next commit.
func (p *Pass) noteFault(v *depValue, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == v.fault {
		return
	}
	v.fault = text
	if err == nil {
		return
	}
	p.engine.threads.Log.Warn("dumping a dep", "thread", p.name, "dep", v.id, "error", p.failure(err).Msg)
	p.problem(v.id, fmt.Errorf("dump of dep %q (the last good one is kept): %w", v.id, err))
}

// problem queues a problem to be recorded with the next commit.
func (p *Pass) problem(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems) >= 4 {
		return
	}
	p.problems = append(p.problems, threads.Line{Kind: journal.Problem, Body: journal.Body{Name: name, Fail: p.failure(err)}})
}

// dump returns the state of a dep if it differs from the last one.
func (p *Pass) dump(v *depValue, r resumable) (json.RawMessage, error) {
	if v.busy {
		return nil, errors.New("an earlier Dump has not returned")
	}
	ver, versioned := r.(versioned)
	if versioned && v.seen {
		now, err := invoke(p.io, func(context.Context) (uint64, error) { return ver.StateVersion(), nil })
		if err != nil {
			return nil, err
		}
		if now == v.version {
			return nil, nil
		}
	}
	res, returned := p.callDump(r, ver)
	if returned != nil {
		v.busy = true
		go func() {
			<-returned
			p.order.Lock()
			defer p.order.Unlock()
			v.busy = false
		}()
	}
	switch {
	case res.err != nil:
		return nil, res.err
	case len(res.raw) > MaxDump:
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", fault.ErrTooLarge, len(res.raw), MaxDump)
	case !json.Valid(res.raw):
		return nil, fmt.Errorf("%w: Dump did not return JSON", fault.ErrNotJSON)
	}
	if err := strict.Text(res.raw); err != nil {
		return nil, fmt.Errorf("%w: the result of Dump: %w", fault.ErrNotJSON, err)
	}
	if err := exact.CheckDepth(res.raw); err != nil {
		return nil, err
	}
	if bytes.Equal(res.raw, v.last) {
		v.version, v.seen = res.version, versioned
		return nil, nil
	}
	v.next, v.nextVer = res.raw, res.version
	return res.raw, nil
}

// watchLeaf tracks a step until it is recorded: what it changes until then is saved with
// no other. Deps are saved inside it if it runs for long, and in development changes
// outside steps are noticed.
func (p *Pass) watchLeaf(f *frame) {
	p.checkOutside(f.path())
	p.mu.Lock()
	defer p.mu.Unlock()
	f.watch.since = time.Now()
	p.leaves[f] = &f.watch
	if p.resumable {
		p.saveLater(f, &f.watch)
	}
}

// leafReturned ends the saves inside a step whose function has returned.
func (p *Pass) leafReturned(f *frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.watch.returned = true
	if f.watch.timer != nil {
		f.watch.timer.Stop()
	}
}

// unwatchLeaf ends watchLeaf.
func (p *Pass) unwatchLeaf(f *frame) {
	p.leafReturned(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leaves, f)
}

// leafWatch is when a step began, whether its function has returned, and the timer that
// saves deps inside it.
type leafWatch struct {
	since    time.Time
	returned bool
	timer    *time.Timer
}

// saveLater saves deps once a leaf has run for the interval. The caller holds
// mu.
func (p *Pass) saveLater(f *frame, w *leafWatch) {
	if w.timer == nil && !w.returned {
		w.timer = time.AfterFunc(max(p.engine.opts.DumpInterval-time.Since(w.since), 1), func() { p.saveInside(f) })
	}
}

// hasResumable makes steps save deps from now on, including those that are
// running.
func (p *Pass) hasResumable() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumable = true
	for f, w := range p.leaves {
		p.saveLater(f, w)
	}
}

// saveInside saves the deps that a long leaf may have changed, and again after
// each interval.
func (p *Pass) saveInside(f *frame) {
	p.order.Lock()
	defer p.order.Unlock()
	p.mu.Lock()
	w := p.leaves[f]
	over := w == nil || w.returned
	leaf := !f.verbs && p.sealed == nil
	p.mu.Unlock()
	if over {
		return
	}
	if leaf {
		dumps := p.dumpWhere(func(v *depValue) bool { return !v.spec.AtSteps && p.concerns(v, f) })
		if len(dumps) > 0 {
			_ = p.mode.commit(func() batch {
				return batch{lines: []threads.Line{{Kind: journal.Dumped, Body: journal.Body{Deps: dumps}}}}
			})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaves[f] == w && !w.returned && p.sealed == nil {
		w.timer.Reset(p.engine.opts.DumpInterval)
	}
}

// checkOutside reports, in development, deps that changed while no leaf was
// running: flow code runs again on resume, and would change them twice.
func (p *Pass) checkOutside(where string) {
	if !p.engine.opts.Development {
		return
	}
	p.order.Lock()
	defer p.order.Unlock()
	p.mu.Lock()
	quiet := p.sealed == nil
	for f := range p.leaves {
		quiet = quiet && f.verbs
	}
	p.mu.Unlock()
	if !quiet {
		return
	}
	for v, r := range p.deps.resumables() {
		if v.busy {
			continue
		}
		res, _ := p.callDump(r, nil)
		if res.err == nil && v.inside != nil && !bytes.Equal(res.raw, v.inside) {
			p.problem(v.id, fmt.Errorf("%w %q was changed outside a leaf step, before %s; a resumed run would change it twice", fault.ErrDep, v.id, where))
		}
		v.inside = res.raw
	}
}

// settledInside notes the states of deps after a leaf, which flow code must not
// change.
func (p *Pass) settledInside() {
	if !p.engine.opts.Development {
		return
	}
	for v, r := range p.deps.resumables() {
		if !v.busy {
			res, _ := p.callDump(r, nil)
			v.inside = res.raw
		}
	}
}

// dumped is what Dump returned, and the version before the call.
type dumped struct {
	raw     json.RawMessage
	version uint64
	err     error
}

// callDump calls Dump, and StateVersion before it if ver is not nil. It gives
// up on a call that takes too long, and then returns the channel on which that
// call will report its end.
func (p *Pass) callDump(r resumable, ver versioned) (res dumped, returned <-chan dumped) {
	ctx, cancel := context.WithTimeout(p.io, DumpTimeout)
	defer cancel()
	done := make(chan dumped, 1)
	go func() {
		var res dumped
		res.raw, res.err = invoke(ctx, func(ctx context.Context) (json.RawMessage, error) {
			if ver != nil {
				res.version = ver.StateVersion()
			}
			return r.Dump(ctx)
		})
		done <- res
	}()
	select {
	case res := <-done:
		return res, nil
	case <-ctx.Done():
		return dumped{err: fmt.Errorf("%w after %v", fault.ErrTimeout, DumpTimeout)}, done
	}
}
