package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/journal"
)

// Limits of a dump. Beyond them the last good one stays, and an event of kind
// "problem" says so.
const (
	MaxDump     = 8 << 20
	DumpTimeout = 10 * time.Second
)

// dumps returns the deps whose state is not in the journal yet. order is held,
// so that dumps are taken in the order in which they are committed. What is
// returned has to be committed.
func (p *pass) dumps() map[string]journal.Value {
	return p.dumpWhere(func(*depValue) bool { return true })
}

func (p *pass) dumpWhere(is func(*depValue) bool) map[string]journal.Value {
	p.deps.mu.Lock()
	list := append([]*depValue(nil), p.deps.list...)
	p.deps.mu.Unlock()
	var changed map[string]journal.Value
	for _, v := range list {
		r, ok := v.value.(Resumable)
		if !ok || !is(v) {
			continue
		}
		raw, err := p.dump(v, r)
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
	return changed
}

// saved notes that the dumps of a commit are in the journal.
func (s *depSet) saved(dumps map[string]journal.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range dumps {
		if v := s.byID[id]; v != nil {
			_, versioned := v.value.(Versioned)
			v.last, v.version, v.seen = v.next, v.nextVer, versioned
		}
	}
}

// concerns reports whether a leaf in a branch can have changed the dep.
func (s *depSet) concerns(v *depValue, leaf *branchRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range v.users {
		for b := leaf; ; b = b.outer {
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

// noteFault keeps a problem with a dump for the next commit, once until it
// changes.
func (p *pass) noteFault(v *depValue, err error) {
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
	p.rt.log.Warn("dumping a dep", "thread", p.name, "dep", v.id, "error", err)
	p.problem(v.id, fmt.Errorf("dump of dep %q, the last good one stays: %w", v.id, err))
}

// problem keeps something to be recorded with the next commit.
func (p *pass) problem(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, draft{kind: journal.Problem, body: journal.Body{Name: name, Fail: failure(err)}})
}

// dump returns the state of a dep if it is another than the last one.
func (p *pass) dump(v *depValue, r Resumable) (json.RawMessage, error) {
	if v.busy {
		return nil, errors.New("an earlier Dump has not returned")
	}
	ver, versioned := r.(Versioned)
	if versioned && v.seen && ver.StateVersion() == v.version {
		return nil, nil
	}
	type result struct {
		raw     json.RawMessage
		version uint64
		err     error
	}
	done := make(chan result, 1)
	ctx, cancel := context.WithTimeout(p.io, DumpTimeout)
	defer cancel()
	go func() {
		var res result
		res.raw, res.err = invoke(ctx, func(ctx context.Context) (json.RawMessage, error) {
			if versioned {
				res.version = ver.StateVersion()
			}
			return r.Dump(ctx)
		})
		done <- res
	}()
	var res result
	select {
	case res = <-done:
	case <-ctx.Done():
		v.busy = true
		go func() {
			<-done
			p.order.Lock()
			defer p.order.Unlock()
			v.busy = false
		}()
		return nil, fmt.Errorf("%w after %v", ErrTimeout, DumpTimeout)
	}
	switch {
	case res.err != nil:
		return nil, res.err
	case len(res.raw) > MaxDump:
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(res.raw), MaxDump)
	case !json.Valid(res.raw) || !utf8.Valid(res.raw):
		return nil, fmt.Errorf("%w: Dump did not return JSON", ErrNotJSON)
	}
	if bytes.Equal(res.raw, v.last) {
		v.version, v.seen = res.version, versioned
		return nil, nil
	}
	v.next, v.nextVer = res.raw, res.version
	return res.raw, nil
}

// watchLeaf keeps track of the steps that run, so that deps are saved inside
// those that run long, and a change outside of them is noticed in development.
func (p *pass) watchLeaf(f *frame, begins bool) {
	if begins && p.rt.opts.Development {
		p.checkOutside(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !begins {
		delete(p.leaves, f)
		return
	}
	p.leaves[f] = time.Now()
	if p.saving {
		return
	}
	p.saving = true
	go p.saveInside()
}

// checkOutside reports deps that changed while no step was running.
func (p *pass) checkOutside(f *frame) {
	p.order.Lock()
	defer p.order.Unlock()
	p.mu.Lock()
	quiet := len(p.leaves) == 0 && p.sealed == nil
	p.mu.Unlock()
	if !quiet {
		return
	}
	p.deps.mu.Lock()
	list := append([]*depValue(nil), p.deps.list...)
	p.deps.mu.Unlock()
	for _, v := range list {
		r, ok := v.value.(Resumable)
		if !ok || v.last == nil {
			continue
		}
		if raw, err := p.dump(v, r); err == nil && raw != nil {
			p.problem(v.id, fmt.Errorf("%w %q was changed outside a leaf step, before %s; a resumed run would change it twice", ErrDep, v.id, f.path()))
		}
	}
}

// saveInside saves deps while a step runs longer than the interval.
func (p *pass) saveInside() {
	tick := time.NewTicker(p.rt.opts.DumpInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		long := false
		for f, since := range p.leaves {
			long = long || !f.verbs && time.Since(since) >= p.rt.opts.DumpInterval
		}
		p.mu.Unlock()
		if long {
			p.saveNow()
		}
	}
}

func (p *pass) saveNow() {
	p.order.Lock()
	defer p.order.Unlock()
	dumps := p.dumpWhere(func(v *depValue) bool { return !v.spec.atSteps })
	if len(dumps) == 0 {
		return
	}
	_ = p.commitLocked(func() batch {
		return batch{drafts: []draft{{kind: journal.Dumped, body: journal.Body{Deps: dumps}}}}
	})
}
