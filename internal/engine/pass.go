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

// Pass is one execution of a run's code, from a claim to the next suspension or
// the end. Everything it writes goes through commit, one append after another;
// mu guards what is read in between.
type Pass struct {
	engine *Engine
	name   string          // of the thread
	opened *threads.Opened // the thread, nil in a replay; what it says of cells is guarded by order
	holder Holder          // nil in a replay
	io     context.Context // for the store: outlives the seal
	ctx    context.Context // ends when the pass is sealed
	end    context.CancelCauseFunc
	runCtx context.Context // also ends when the run is cancelled
	cancel context.CancelCauseFunc
	born   time.Time // just after the claim, on the monotonic clock

	secrets *scrub.Set // given to user code

	order     order           // held by whoever commits
	recording [1]threads.Line // what record commits; guarded by order
	inTx      *transaction    // through which record commits, nil for none; guarded by order
	encoded   []journal.Entry // what the last commit wrote; guarded by order

	mu       sync.Mutex
	thread   *journal.Thread
	run      *journal.Run
	tree     *tree.Tree
	epoch    uint64
	active   int // threads of control that are not parked
	resting  int // those of them that only let time pass
	waiters  map[*waiter]bool
	draining bool          // the worker is about to hand it over
	drained  chan struct{} // closed when draining is set
	solo     bool          // it is a suspect, and executed alone
	halted   bool          // the code does not match the record: nothing more is started
	sealed   error         // why nothing more is written or started
	settled  bool          // the summary was written and the hint removed with the last entry

	calls     map[*step]bool        // steps whose function is about to start or has no recorded outcome yet
	spending  map[*frame]bool       // leaves that have spent something and have no outcome yet
	leaves    map[*frame]*leafWatch // running steps
	resumable bool                  // there are deps to save inside them
	problems  []threads.Line        // to be recorded with the next commit, if they fit
	late      []threads.Line        // to be recorded with the next commit

	deps depSet

	noted *Executing // in a live pass: what those who wait for it see
	mode  mode       // live, or a replay
}

// Holder is the worker that holds a run.
type Holder interface {
	// ID names the worker in claims.
	ID() string
	// AwaitLease waits until the worker's lease is valid.
	AwaitLease(ctx context.Context) error
	// LeaseValid reports whether it is valid now.
	LeaseValid() bool
	// NotSuspect is called when a run that was executed alone has made
	// progress.
	NotSuspect(thread string)
}

// mode is what a pass does where the record ends. A live pass continues and
// commits; a replay stops there.
type mode interface {
	// commit appends what build returns after the entries seen so far. The
	// caller holds order.
	commit(build func() batch) error
	// suspend ends the pass, since every thread of control is waiting.
	suspend()
	// begin lets a frame begin something that is not recorded.
	begin(ctx context.Context, f *frame) error
	// passed is called for a composite step whose outcome is recorded.
	passed(ctx context.Context, s *step, n *tree.Node) error
	// run executes a step until its outcome is recorded.
	run(ctx context.Context, s *step) error
	// replaced reports whether Spawn must start another child in place of this
	// one.
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

// NewPass returns the pass of a run that a worker has claimed with the given
// entries. Solo means that the run is a suspect, and executed alone.
func (e *Engine) NewPass(h Holder, io context.Context, o *threads.Opened, run *journal.Run, entries []journal.Entry, solo bool) *Pass {
	p := e.passOf(io, o.Name, o.Thread, run, o.Trees[run.N])
	p.opened, p.holder, p.epoch, p.solo, p.mode = o, h, o.Thread.Epoch, solo, live{p}
	e.noteExecuting(p)
	e.observe(p, entries)
	return p
}

// passOf returns a pass without a mode.
func (e *Engine) passOf(io context.Context, name string, t *journal.Thread, run *journal.Run, memo *tree.Tree) *Pass {
	p := &Pass{engine: e, name: name, io: io, born: time.Now(), order: order{tx: make(turn, 1), tail: make(turn, 1)}, thread: t, run: run, tree: memo,
		active: 1, waiters: map[*waiter]bool{}, drained: make(chan struct{}),
		calls: map[*step]bool{}, spending: map[*frame]bool{}, deps: depSet{byID: map[string]*depValue{}}, leaves: map[*frame]*leafWatch{}}
	p.ctx, p.end = context.WithCancelCause(context.WithoutCancel(io))
	p.runCtx, p.cancel = context.WithCancelCause(p.ctx)
	p.runCtx, p.secrets = scrub.With(p.runCtx)
	return p
}

// Execute runs the function of the flow until the pass is sealed.
func (p *Pass) Execute(fn FlowFunc) {
	over := p.begun()
	defer over()
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

// halt prevents new starts, and gives steps that are running in branches other
// than f's some time to finish: an unrecorded outcome would be thrown away, and
// its step would run again.
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

// block stops the run because the code of a frame does not match the record.
func (p *Pass) block(f *frame, diff string) error {
	diff = fault.Clip(diff, fault.MaxMessage)
	for open := f; open != nil; open = open.parent {
		open.rollback()
	}
	p.halt(f)
	for done := false; !done; {
		over := locked(p, func() bool { return p.run.Cancelled }) // then none of its code has to run, and it ends
		if over {
			if err := p.cancelChildren(false); err != nil {
				return err
			}
		}
		err := p.commitBeside(func() batch {
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

// Drain keeps the pass from beginning anything new, so that it can be handed
// over.
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
	_ = p.commitBeside(func() batch {
		return batch{
			lines: []threads.Line{{Kind: journal.Released}},
			then:  func() { p.seal(errReleased) },
		}
	})
}

var errReleased = fmt.Errorf("%w: the worker stopped", fault.ErrFenced)

// Released reports whether the pass was handed over while a step was running.
func (p *Pass) Released() bool { return errors.Is(p.Err(), errReleased) }

// Settled reports whether the pass's last entry also removed the thread's hint
// and updated its summary. It is meaningful once the pass has been executed.
func (p *Pass) Settled() bool { return locked(p, func() bool { return p.settled }) }

// Err returns why the pass is sealed, nil if it is not.
func (p *Pass) Err() error { return locked(p, func() error { return p.sealed }) }

// failure returns what the journal keeps of an error of user code, without the
// secrets that the run was given.
func (p *Pass) failure(err error) *journal.Failure { return fault.FailureWithout(p.secrets, err) }
