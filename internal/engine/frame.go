package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
)

// frame is one execution of a run, step, scope or branch; a context carries it.
// Its fields are guarded by the pass's mu.
type frame struct {
	pass     *Pass
	parent   *frame
	memo     *tree.Frame
	view     *view
	now      int64 // time of the newest outcome it has passed, in Unix microseconds
	step     bool  // a step or cleanup: leaf or composite
	once     bool  // at-most-once: always a leaf
	leaf     bool  // it changed something
	verbs    bool  // it called a verb
	done     bool
	cut      bool  // a verb below it was refused because of a cancel
	cleaning bool  // it is a cleanup, or below one
	timedOut bool  // its timeout has passed
	took     int64 // how long its function took, in microseconds, once it has returned
	attempt  int
	pending  leaf // what the leaf changed
	watch    leafWatch
	busy     inProgress
	limit    *stopwatch
	group    *Group     // the open group, nil for none
	branch   *branchRef // the branch it is in, nil for none
	speech   *speech    // its deltas, nil if there are none
	key      string     // what Key returns; "" for the key of its path
	inTx     bool       // its function runs in a transaction: always a leaf
	tx       *transaction
}

type frameKey struct{}

// inside returns the frame that a context belongs to.
func inside(ctx context.Context) (*frame, error) {
	f, _ := ctx.Value(frameKey{}).(*frame)
	if f == nil {
		return nil, fmt.Errorf("%w: the context does not come from a flow", fault.ErrNoRun)
	}
	return f, nil
}

func (f *frame) child(memo *tree.Frame) *frame {
	return &frame{pass: f.pass, parent: f, memo: memo, view: f.view, now: f.now, cleaning: f.cleaning, branch: f.branch}
}

func (f *frame) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, frameKey{}, f)
}

// path returns the path of the frame, without the numbers of groups.
func (f *frame) path() string { return tree.Names(f.memo.Path()) }

// within reports whether f is other or below it.
func (f *frame) within(other *frame) bool {
	for ; f != nil && f != other; f = f.parent {
	}
	return f != nil
}

// cutOff notes, in all frames from f up, that a cancel refused something, or,
// in those below a group, that the group's failure did. The caller holds mu.
func (f *frame) cutOff() {
	var top *frame
	if g := f.closedBy(); g != nil && !f.pass.run.Cancelled {
		top = g.frame
	}
	for ; f != nil && f != top; f = f.parent {
		f.cut = true
	}
}

// closedBy returns the outermost group that has closed the frame because
// another branch failed, nil if none has. The caller holds mu.
func (f *frame) closedBy() (g *Group) {
	for b := f.branch; b != nil; b = b.outer {
		if b.closed {
			g = b.group
		}
	}
	return g
}

// refusal returns why nothing more may begin in the frame and its waits are
// given up, nil if it may continue. Cleanups always may. The caller holds mu.
func (f *frame) refusal() error {
	switch {
	case f.cleaning:
		return nil
	case f.pass.run.Cancelled:
		return fault.ErrCancelled
	case f.closedBy() != nil:
		return fault.ErrFailedFast
	}
	return nil
}

// begin marks a verb of the frame as in progress.
func (f *frame) begin(verb tree.Verb, name string) error {
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	at := func(name string) string { return f.path() + "/" + name }
	switch {
	case f.done:
		return fmt.Errorf("%w: %s %s was called after its frame had returned", fault.ErrNoRun, verb, at(name))
	case f.busy.verb == "group with branch":
		return fmt.Errorf("%w: %s while the group with branch %s is open; call its Wait first, and inside a branch use the context that its function was given", fault.ErrConcurrent, at(name), at(f.busy.name))
	case f.busy.verb != "":
		return fmt.Errorf("%w: %s while %s %s is in progress; inside a step or scope use the context that its function was given", fault.ErrConcurrent, at(name), f.busy.verb, at(f.busy.name))
	case f.pass.sealed != nil:
		return f.pass.sealed
	case f.once:
		return fmt.Errorf("%w: %s is inside an at-most-once step", fault.ErrComposite, at(name))
	case f.inTx:
		return fmt.Errorf("%w: %s is inside a step that runs in a transaction", fault.ErrComposite, at(name))
	case f.leaf:
		return fmt.Errorf("%w: %s comes after a change in the same step", fault.ErrComposite, at(name))
	}
	f.busy, f.verbs = inProgress{verb, name}, true
	return nil
}

// inProgress is the verb of a frame that has not returned yet.
type inProgress struct {
	verb tree.Verb
	name string
}

func (f *frame) finish() {
	f.pass.mu.Lock()
	f.busy = inProgress{}
	f.pass.mu.Unlock()
}

// enter begins a verb: it finds the frame, marks it as busy, and looks up what
// is recorded. Unless it returns an error, the caller must call finish.
func enter(ctx context.Context, verb tree.Verb, name string, opt tree.Options) (*frame, tree.Visit, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, tree.Visit{}, err
	}
	if verb != tree.Plan {
		if err := tree.CheckName(name); err != nil {
			return nil, tree.Visit{}, fmt.Errorf("%w: %w", fault.ErrName, err)
		}
	}
	if err := f.begin(verb, name); err != nil {
		return nil, tree.Visit{}, err
	}
	v, err := f.visit(ctx, verb, name, opt)
	if err != nil {
		f.finish()
		return nil, tree.Visit{}, err
	}
	return f, v, nil
}

// carry takes a verb to its outcome, and returns its node and value. If the
// verb is not recorded, it calls begin; the node is nil if that recorded
// nothing.
func carry(ctx context.Context, verb tree.Verb, name string, opt tree.Options, begin func(f *frame, path string) error) (*tree.Node, json.RawMessage, error) {
	f, v, err := enter(ctx, verb, name, opt)
	if err != nil {
		return nil, nil, err
	}
	defer f.finish()
	n := v.Node
	if n == nil {
		if err := f.pass.gate(ctx, f); err != nil {
			return nil, nil, err
		}
		if err := begin(f, v.Path); err != nil {
			return nil, nil, err
		}
		if n = f.pass.node(v.Path); n == nil {
			return nil, nil, nil
		}
	}
	if err := f.pass.until(ctx, f, v.Path, n); err != nil {
		return nil, nil, err
	}
	raw, err := f.result(n)
	return n, raw, err
}

func (f *frame) visit(ctx context.Context, verb tree.Verb, name string, opt tree.Options) (tree.Visit, error) {
	p := f.pass
	p.mu.Lock()
	v, err := f.memo.Visit(name, verb, opt)
	p.tree.Tell(p.thread, p.run.N)
	p.mu.Unlock()
	if err != nil {
		return v, fmt.Errorf("%w: %s/%s: %w", fault.ErrName, f.path(), name, err)
	}
	// A new verb in a new branch may come before what is recorded after the
	// group, or beside branches that are still to be started: Wait decides.
	for b := f.branch; v.Held && b != nil; b = b.outer {
		select {
		case <-b.group.judged:
		case <-ctx.Done():
			return v, p.cutCause(ctx, f)
		case <-p.ctx.Done():
			return v, p.Err()
		}
		p.mu.Lock()
		v.Diff, v.Held = f.memo.Judge(verb, name)
		p.mu.Unlock()
	}
	if v.Node == nil && ctx.Err() != nil {
		return v, p.cutCause(ctx, f)
	}
	p.mu.Lock()
	// Under a cancel the code leaves past what is recorded, and so does a
	// closed branch.
	diverged := v.Diff != "" && !p.run.Cancelled && f.closedBy() == nil
	p.mu.Unlock()
	if diverged {
		return v, p.block(f, v.Diff)
	}
	return v, nil
}

// takeOver adopts the effects of a recorded child: its changes to the state and
// the time at which it ended.
func (f *frame) takeOver(n *tree.Node) {
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	f.view.apply(tree.Changes(n))
	f.now = max(f.now, n.Time)
}

func (f *frame) result(n *tree.Node) (json.RawMessage, error) {
	f.takeOver(n)
	if n.Fail != nil {
		return nil, &fault.StepError{Path: n.Path(), Attempt: n.Attempts + 1, Err: &fault.Recorded{Fail: *n.Fail}}
	}
	if n.Verb == tree.Ask {
		return f.pass.load(f, n.Answer.Value)
	}
	return f.pass.load(f, n.Value)
}

// locked calls read under the pass's mu and returns its result.
func locked[T any](p *Pass, read func() T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return read()
}

// node returns the node at a path, nil if nothing is recorded there yet.
func (p *Pass) node(path string) *tree.Node {
	return locked(p, func() *tree.Node { return p.tree.At(path) })
}

// started returns the node of a step that is about to run, nil if nothing is
// recorded of it yet.
func (p *Pass) started(path string) *tree.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tree.Started(path)
	return p.tree.At(path)
}

// left ends a frame: it waits for the branches of an open group, and checks
// that the code visited everything that is recorded.
func (f *frame) left(returned error) error {
	p := f.pass
	if g := locked(p, func() *Group { return f.group }); g != nil {
		g.abandon()
	}
	text := ""
	if returned != nil {
		text = ", with the error: " + fault.Clip(returned.Error(), 1000)
	}
	p.mu.Lock()
	f.done = true
	f.forgetDeltas()
	sealed, cut := p.sealed, p.run.Cancelled || f.closedBy() != nil
	diff := ""
	if sealed == nil && !cut && !fault.Interrupted(returned) {
		if diff = f.memo.Leave(); diff != "" {
			diff += text
		}
	}
	p.mu.Unlock()
	switch {
	case sealed != nil:
		return sealed
	case diff != "":
		return p.block(f, diff)
	}
	return nil
}

// leaf is what a leaf step has changed so far.
type leaf struct {
	changes []journal.Change
	edits   []edited // the changes that are edits of texts
	spend   map[string]int64
}
