package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
)

// replay is the mode of a pass that only follows the record: it has no worker,
// appends nothing and starts no leaf. A frame that would begin something
// unrecorded waits in vain, so that its siblings are followed to their ends;
// when all are waiting, the pass is sealed. Its fields are guarded by the
// pass's mu.
type replay struct {
	pass  *Pass
	waits map[*waiter]recordEnd // where each waiter waits in vain
	past  map[*frame]bool       // frames of steps whose outcome is recorded

	diff  string      // how the code differs from the record, "" if it does not
	ends  []recordEnd // where the code continues, or waits, at the end of the record
	ended bool        // the code returned
	out   json.RawMessage
	err   error
}

// recordEnd is a place at which the record of a run ends.
type recordEnd struct {
	path  string
	verb  tree.Verb
	waits bool // it is recorded as waiting
	past  bool // it is below a step whose outcome is recorded
	added bool // the code declares it as added

	missed string // what is recorded in its frame and the code has not reached so far
}

func (e recordEnd) String() string { return fmt.Sprintf("%s %s", e.verb, e.path) }

// follow calls the function of a flow against the record of a run, and returns
// how that ended.
func (e *Engine) follow(ctx context.Context, name string, t *journal.Thread, run *journal.Run, memo *tree.Tree, fn FlowFunc) (*replay, error) {
	p := e.passOf(ctx, name, t, run, memo)
	stop := context.AfterFunc(ctx, func() { p.end(context.Cause(ctx)) })
	defer stop()
	r := &replay{pass: p, waits: map[*waiter]recordEnd{}, past: map[*frame]bool{}}
	p.mode = r
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.flow(fn)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	p.seal(fault.ErrFenced) // nothing can be left open
	p.mu.Unlock()
	p.closeDeps()
	return r, context.Cause(ctx)
}

// begin parks a frame whose verb in progress has no outcome in the record.
func (r *replay) begin(ctx context.Context, f *frame) error { return r.recordEnds(ctx, f, false) }

func (r *replay) recordEnds(ctx context.Context, f *frame, added bool) error {
	p := r.pass
	p.mu.Lock()
	path := tree.Below(f.memo.Path(), f.busy.name, 0)
	end := recordEnd{path: tree.Names(path), verb: f.busy.verb, past: r.isPast(f), added: added}
	if n := p.tree.At(path); n != nil {
		end.waits = n.Open != 0
		if diff, held := f.memo.Judge(end.verb, f.busy.name); !held {
			end.missed = diff
		}
	}
	w := &waiter{frame: f, ready: func() bool { return false }}
	r.waits[w] = end
	p.mu.Unlock()
	return p.park(ctx, w)
}

// isPast reports whether a frame is below a step whose outcome is recorded.
func (r *replay) isPast(f *frame) bool {
	for ; f != nil; f = f.parent {
		if r.past[f] {
			return true
		}
	}
	return false
}

// commit seals the pass instead of appending. If the entry would have blocked
// the run, it keeps the diff.
func (r *replay) commit(build func() batch) error {
	p := r.pass
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed != nil {
		return p.sealed
	}
	b := build()
	if len(b.lines) == 0 {
		return nil
	}
	for _, l := range b.lines {
		if l.Kind == journal.Blocked {
			r.diff = l.Body.Diff
			p.seal(fmt.Errorf("%w: %s", fault.ErrBlocked, r.diff))
			return p.sealed
		}
	}
	r.stop()
	return p.sealed
}

func (r *replay) suspend() {
	r.pass.mu.Lock()
	defer r.pass.mu.Unlock()
	if r.pass.active == 0 && r.pass.sealed == nil {
		r.stop()
	}
}

// stop seals the pass where the record ends. mu is held.
func (r *replay) stop() {
	p := r.pass
	for w := range p.waiters {
		if end, ok := r.waits[w]; ok {
			r.ends = append(r.ends, end)
		}
	}
	slices.SortFunc(r.ends, func(a, b recordEnd) int { return strings.Compare(a.path, b.path) })
	if i := slices.IndexFunc(r.ends, func(e recordEnd) bool { return e.past && !e.added }); i >= 0 {
		r.diff = fmt.Sprintf("at %s, inside a step that is done:\n- recorded: nothing\n+ the code: %s", r.ends[i].path, r.ends[i].verb)
	}
	p.seal(fmt.Errorf("%w: this is a replay, and the record ends here", fault.ErrSuspended))
}

func (r *replay) finish(out json.RawMessage, err error) { r.ended, r.out, r.err = true, out, err }

// replaced reports whether no child is recorded here. One that is recorded is
// followed, whatever became of it.
func (r *replay) replaced(_ *journal.Child, n *tree.Node) bool { return n == nil }

func (r *replay) startChild(*journal.Child) error { return nil }

func (r *replay) cancelChildren([]*journal.Child) error { return nil }

// passed runs the body of a composite step whose outcome is recorded, to see
// whether the code would do the same again.
func (r *replay) passed(ctx context.Context, s *step, n *tree.Node) error {
	if n.Fail != nil {
		return nil
	}
	inner := s.enter(n.Attempts + 1)
	r.pass.mu.Lock()
	r.past[inner] = true
	r.pass.mu.Unlock()
	raw, err, stop := r.body(ctx, s, inner)
	if stop != nil {
		return stop
	}
	recorded, loadErr := r.pass.load(s.frame, n.Value)
	switch {
	case loadErr != nil:
		return loadErr
	case err != nil:
		return r.pass.block(s.frame, fmt.Sprintf("at %s:\n- recorded: a result, %s\n+ the code: the error %s", n.Path(), shown(recorded), fault.Clip(err.Error(), maxShown)))
	case !bytes.Equal(raw, recorded):
		return r.pass.block(s.frame, fmt.Sprintf("the result of %s:\n- recorded: %s\n+ the code: %s", n.Path(), shown(recorded), shown(raw)))
	}
	return nil
}

// body runs the body of a composite step. It returns what the body returned, or
// why the frame has to stop.
func (r *replay) body(ctx context.Context, s *step, inner *frame) (raw json.RawMessage, err, stop error) {
	exited := true
	defer func() {
		r.pass.deps.letGo(inner)
		if exited { // by runtime.Goexit, which also ends the frame
			_ = inner.left(fault.ErrFenced)
		}
	}()
	raw, err = invoke(inner.with(ctx), s.fn)
	exited = false
	return raw, err, inner.left(err)
}

// run runs the body of a step without an outcome, if it is a composite that has
// begun. At any other step the record ends.
func (r *replay) run(ctx context.Context, s *step) error {
	n := r.pass.started(s.path)
	switch {
	case n != nil && n.Intent && !s.Once:
		return s.notOnce()
	case n != nil && n.Intent:
		return r.recordEnds(ctx, s.frame, false)
	case n == nil || !n.Composite():
		return r.recordEnds(ctx, s.frame, s.Added)
	}
	inner := s.enter(n.Attempts + 1)
	limited, unlimited := s.limit(ctx, inner)
	defer unlimited()
	_, err, stop := r.body(limited, s, inner)
	if stop == nil {
		stop = s.stopped(inner, err)
	}
	if stop != nil {
		return stop
	}
	return r.recordEnds(ctx, s.frame, false)
}

// maxShown is how much of a value a diff shows.
const maxShown = 400

func shown(raw []byte) string {
	if raw == nil {
		return "nothing"
	}
	return fault.Clip(string(raw), maxShown)
}

// Replay runs the function of a flow, nil if there is none, against a recorded
// run of the named thread. The problem is how the code differs from the record,
// "" if it does not; the note says where it would continue.
func (e *Engine) Replay(ctx context.Context, name string, rec *archive.Recording, entries []journal.Entry, was *journal.Run, fn FlowFunc) (problem, note string, err error) {
	recorded := rec.Runs[was.N]
	switch {
	case fn == nil:
		return fmt.Sprintf("there is no flow %q to replay it with", was.Flow), "", nil
	case recorded == nil || !recorded.Begun:
		return "", "it has not begun", nil
	}
	t, dumps, err := recorded.Tree()
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
	}
	run := *was
	run.Status, run.Cancelled, run.PausedAt, run.Fail = journal.StatusRunning, false, 0, nil
	run.BaseState, run.BaseDeps, run.Dumps = recorded.State, recorded.Deps, dumps
	r, err := e.follow(ctx, name, rec.Thread, &run, t, fn)
	if err != nil {
		return "", "", err
	}
	return e.verdict(ctx, name, entries, was, r, recorded.Cancel >= 0)
}

// verdict compares what the code did with the state of the run.
func (e *Engine) verdict(ctx context.Context, name string, entries []journal.Entry, was *journal.Run, r *replay, cancelled bool) (problem, note string, err error) {
	var places []string
	added := false
	for _, end := range r.ends {
		if added = added || end.added; end.waits {
			places = append(places, "waits at "+end.String())
		} else {
			places = append(places, "goes on at "+end.String())
		}
	}
	where := "the code " + strings.Join(places, ", ")
	for _, end := range r.ends {
		if end.missed != "" {
			where += "; it has to reach what it has not reached so far, " + end.missed
		}
	}
	final := was.Status.Final() && !cancelled
	switch {
	case r.diff != "":
		problem = r.diff
	case !r.ended && len(r.ends) == 0:
		problem = "the code neither returned nor waits for anything that is recorded"
	case !r.ended && added:
		note = where + ", which was added; what comes behind it was not followed"
	case !r.ended && final:
		problem = fmt.Sprintf("- recorded: the end of the run, %s\n+ %s", was.Status, where)
	case !r.ended:
		note = where
	case !final:
		note = "the code returns where the record ends"
	case was.Status == journal.StatusFailed:
		problem = otherFailure(was.Fail, r.err)
	case r.err != nil:
		problem = fmt.Sprintf("the end of the run:\n- recorded: %s\n+ the code: the error %s", was.Status, fault.Clip(r.err.Error(), maxShown))
	default:
		want, err := e.recordedOutput(ctx, name, entries, was)
		if err != nil {
			return "", "", err
		}
		if !bytes.Equal(want, r.out) {
			problem = fmt.Sprintf("the output:\n- recorded: %s\n+ the code: %s", shown(want), shown(r.out))
		}
	}
	if cancelled {
		note = strings.TrimPrefix(note+"; it was followed up to its cancel", "; ")
	}
	return problem, note, nil
}

// otherFailure returns how an error differs from the recorded one, "" if it
// does not.
func otherFailure(want *journal.Failure, err error) string {
	if want == nil {
		want = &journal.Failure{}
	}
	if err == nil {
		return fmt.Sprintf("the end of the run:\n- recorded: the error %s\n+ the code: no error", fault.Clip(want.Msg, maxShown))
	}
	got := fault.Failure(err)
	if got.Msg == want.Msg && slices.Equal(got.Codes, want.Codes) {
		return ""
	}
	return fmt.Sprintf("the error:\n- recorded: %s %q\n+ the code: %s %q", fault.Clip(want.Msg, maxShown), want.Codes, fault.Clip(got.Msg, maxShown), got.Codes)
}

func (e *Engine) recordedOutput(ctx context.Context, name string, entries []journal.Entry, run *journal.Run) ([]byte, error) {
	value := run.Output
	if run.Ref != 0 {
		if run.Ref > uint64(len(entries)) {
			return nil, fmt.Errorf("%w: entry %d is missing", fault.ErrCorrupt, run.Ref)
		}
		b, err := entries[run.Ref-1].Read()
		if err != nil {
			return nil, err
		}
		value = b.Value
	}
	raw, err := e.threads.Load(ctx, name, value)
	if errors.Is(err, fault.ErrCorrupt) || err == nil {
		return raw, err
	}
	return nil, fmt.Errorf("the output: %w", err)
}
