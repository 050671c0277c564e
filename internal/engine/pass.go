package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// FlowFunc is the function of a flow.
type FlowFunc func(ctx context.Context, in json.RawMessage) (json.RawMessage, error)

// Pass is one execution of a run's code, between a claim and the next
// suspension or end. All that it writes goes through commit, one append after
// the other; mu guards what is read in between.
type Pass struct {
	engine *Engine
	name   string          // of the thread
	holder Holder          // nil in a replay
	io     context.Context // for the store: outlives the seal
	ctx    context.Context // ends when the pass is sealed
	end    context.CancelCauseFunc
	runCtx context.Context // ends also when the run is cancelled
	cancel context.CancelCauseFunc
	born   time.Time // the moment after the claim, on the monotonic clock

	secrets *scrub.Set // that user code was given

	order     turn            // held by whoever commits
	recording [1]threads.Line // what record commits; order is held
	encoded   []journal.Entry // what the last commit wrote; order is held

	mu       sync.Mutex
	thread   *journal.Thread
	run      *journal.Run
	tree     *tree.Tree
	epoch    uint64
	active   int // threads of control that do not wait
	resting  int // those of them that only let time pass
	waiters  map[*waiter]bool
	draining bool          // the worker is to hand over
	drained  chan struct{} // closed then
	solo     bool          // it is a suspect that runs alone
	halted   bool          // the code does not fit: nothing is started any more
	sealed   error         // why nothing is written or started any more
	settled  bool          // the summary and the hint went with the last entry

	calls     map[*step]bool        // steps from before their function starts until its outcome is recorded
	spending  map[*frame]bool       // leaves that spent and have no outcome yet
	leaves    map[*frame]*leafWatch // steps that run
	resumable bool                  // there are deps to be saved inside them
	problems  []threads.Line        // to be recorded with the next commit, if they fit
	late      []threads.Line        // to be recorded with the next commit

	deps depSet

	noted *Executing // of a live pass, what those see who wait for it
	mode  mode       // live, or a replay
}

// Holder is the worker that holds a run.
type Holder interface {
	// ID names the worker in claims.
	ID() string
	// AwaitLease waits until the worker may believe that its runs are its own.
	AwaitLease(ctx context.Context) error
	// LeaseValid reports whether it may believe so now.
	LeaseValid() bool
	// NotSuspect tells that a run which was executed alone got on.
	NotSuspect(thread string)
}

// mode is what a pass does where its record ends. A live pass goes on and
// commits; a replay stops there.
type mode interface {
	// commit appends what build returns behind the entries seen so far. The
	// order is held.
	commit(build func() batch) error
	// suspend ends the pass, since every thread of control waits.
	suspend()
	// begin lets a frame begin something that is not on record.
	begin(ctx context.Context, f *frame) error
	// passed is called with a composite step whose outcome is on record.
	passed(ctx context.Context, s *step, n *tree.Node) error
	// run carries on with a step until its outcome is on record.
	run(ctx context.Context, s *step) error
	// replaced reports whether Spawn starts another child in place of a node's.
	replaced(child *journal.Child, n *tree.Node) bool
	// startChild makes sure that a child is started.
	startChild(child *journal.Child) error
	// cancelChildren cancels children whose end the run does not know.
	cancelChildren(open []*journal.Child) error
	// finish ends the run with what its flow returned.
	finish(out json.RawMessage, err error)
}

// live is the mode of a pass that executes a run.
type live struct{ pass *Pass }

// NewPass returns the pass of a run that a worker has claimed with entries. Solo
// says that the run is a suspect, which is executed alone.
func (e *Engine) NewPass(h Holder, io context.Context, o *threads.Opened, run *journal.Run, entries []journal.Entry, solo bool) *Pass {
	p := e.passOf(io, o.Name, o.Thread, run, o.Trees[run.N])
	p.holder, p.epoch, p.solo, p.mode = h, o.Thread.Epoch, solo, live{p}
	e.noteExecuting(p)
	e.observe(p, entries)
	return p
}

// passOf returns a pass without a mode.
func (e *Engine) passOf(io context.Context, name string, t *journal.Thread, run *journal.Run, memo *tree.Tree) *Pass {
	p := &Pass{engine: e, name: name, io: io, born: time.Now(), order: make(turn, 1), thread: t, run: run, tree: memo,
		active: 1, waiters: map[*waiter]bool{}, drained: make(chan struct{}),
		calls: map[*step]bool{}, spending: map[*frame]bool{}, deps: depSet{byID: map[string]*depValue{}}, leaves: map[*frame]*leafWatch{}}
	p.ctx, p.end = context.WithCancelCause(context.WithoutCancel(io))
	p.runCtx, p.cancel = context.WithCancelCause(p.ctx)
	p.runCtx, p.secrets = scrub.With(p.runCtx)
	return p
}

// Execute runs the function of the flow until the pass is sealed.
func (p *Pass) Execute(fn FlowFunc) {
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		p.watch()
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.flow(fn)
	}()
	<-ended
	p.mu.Lock()
	p.seal(fault.ErrFenced) // nothing can be left open
	p.mu.Unlock()
	<-watching
	p.closeDeps()
}

// flow calls the flow's function and records how the run ended.
func (p *Pass) flow(fn FlowFunc) {
	root := &frame{pass: p, memo: p.tree.Frame(), now: p.run.Created, attempt: 1,
		view: &view{base: p.run.BaseState}}
	root.view.apply(p.tree.Root.State) // edited in a fork before anything was recorded
	if p.run.Cancelled {
		p.cancel(fault.ErrCancelled)
	}
	var out json.RawMessage
	err := errors.New("perdure: the flow called runtime.Goexit")
	defer func() {
		if stop := root.left(err); stop != nil {
			return
		}
		p.mode.finish(out, err)
	}()
	in, loadErr := p.load(root, p.run.Input)
	if loadErr != nil { // it has sealed the pass
		err = loadErr
		return
	}
	out, err = invoke(root.with(p.runCtx), func(ctx context.Context) (json.RawMessage, error) { return fn(ctx, in) })
}

func (l live) finish(out json.RawMessage, err error) {
	p := l.pass
	b := journal.Body{Status: string(journal.StatusSucceeded), Value: journal.Value{JSON: out}}
	if err != nil {
		b = journal.Body{Status: string(journal.StatusFailed), Fail: p.failure(err)}
	} else if b.Ref = p.alike("", out); b.Ref != 0 {
		b.Value = journal.Value{}
	}
	p.checkOutside("the end")
	if p.cancelChildren(false) != nil { // it has sealed the pass
		return
	}
	p.order.Lock()
	defer p.order.Unlock()
	b.Deps = p.dumps()
	if err := p.fit(&b); err != nil {
		return
	}
	err = l.commit(func() batch {
		end := b
		end.Unknown = lifecycle.UnknownOutcomes(p.run)
		if p.run.Cancelled {
			end.Status = string(journal.StatusCancelled)
		}
		return batch{
			lines: []threads.Line{{Kind: journal.Ended, Body: end}},
			then:  func() { p.seal(errEnded) },
		}
	})
	if err != nil && p.Err() == nil {
		_ = p.lose(err)
	}
}

var errEnded = errors.New("perdure: the run has ended")

// halt lets nothing start any more, and what other branches than that of f have
// started finish, for a while: an outcome that is not recorded would be thrown
// away, and its step would run again.
func (p *Pass) halt(f *frame) {
	begin := time.Now()
	for time.Since(begin) < p.engine.opts.Grace {
		p.mu.Lock()
		p.halted = true
		busy := false
		for s := range p.calls {
			busy = busy || s.inner == nil || !s.inner.verbs && !f.within(s.inner)
		}
		p.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// block stops the run because the code of a frame does not fit what is recorded.
func (p *Pass) block(f *frame, diff string) error {
	diff = fault.Clip(diff, fault.MaxMessage)
	p.halt(f)
	for done := false; !done; {
		over := locked(p, func() bool { return p.run.Cancelled }) // then no code of it has to run any more, and it ends
		if over {
			if err := p.cancelChildren(false); err != nil {
				return err
			}
		}
		err := p.commit(func() batch {
			if done = over == p.run.Cancelled; !done {
				return batch{}
			}
			b := batch{
				lines: []threads.Line{{Kind: journal.Blocked, Body: journal.Body{Diff: diff, Version: p.engine.opts.Version}}},
				then:  func() { p.seal(fmt.Errorf("%w: %s", fault.ErrBlocked, diff)) },
			}
			if over {
				b.lines = append(b.lines, threads.Line{Kind: journal.Ended, Body: journal.Body{Status: string(journal.StatusCancelled), Unknown: lifecycle.UnknownOutcomes(p.run)}})
			}
			return b
		})
		if err != nil {
			return err
		}
	}
	return p.Err()
}

// Drain lets the pass begin nothing new, so that it is handed over.
func (p *Pass) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		p.draining = true
		close(p.drained)
	}
}

// Release hands the run over although a step is still running.
func (p *Pass) Release() {
	_ = p.commit(func() batch {
		return batch{
			lines: []threads.Line{{Kind: journal.Released}},
			then:  func() { p.seal(fmt.Errorf("%w: the worker stopped", fault.ErrFenced)) },
		}
	})
}

// Settled reports whether the thread's hint was removed with the pass's last entry,
// and its summary brought up to date. It is for those who have executed the pass.
func (p *Pass) Settled() bool { return locked(p, func() bool { return p.settled }) }

// Err returns why the pass is sealed, nil if it is not.
func (p *Pass) Err() error { return locked(p, func() error { return p.sealed }) }

// failure returns what the journal keeps of an error of the pass's user code,
// without the secrets that the run was given.
func (p *Pass) failure(err error) *journal.Failure { return fault.FailureWithout(p.secrets, err) }
