package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
)

// replay is what a pass has that only follows what is recorded: it has no
// worker, appends nothing and starts no leaf. Where a frame would begin
// something that is not recorded it waits in vain, so that its siblings are
// followed to their ends; when all wait, the pass is sealed. Its fields are
// guarded by the pass's mu.
type replay struct {
	diff  string      // why the code does not fit, "" if it does
	ends  []recordEnd // where the code goes on, or waits, behind the record
	ended bool        // the code returned
	out   json.RawMessage
	err   error
}

// recordEnd is a place at which the record of a run ends.
type recordEnd struct {
	path  string
	verb  tree.Verb
	waits bool // it is recorded, and waits
	past  bool // it is below a step that is done
	added bool // the code says that it is new

	missed string // what its frame has recorded and the code has not reached so far
}

func (e recordEnd) String() string { return fmt.Sprintf("%s %s", e.verb, e.path) }

// recordEnds parks a frame whose verb in progress has no outcome in the record.
func (p *pass) recordEnds(ctx context.Context, f *frame, added bool) error {
	p.mu.Lock()
	path := tree.Below(f.memo.Path(), f.busy.name, 0)
	end := &recordEnd{path: tree.Names(path), verb: f.busy.verb, past: f.past, added: added}
	if n := p.tree.At(path); n != nil {
		end.waits = n.Open != 0
		if diff, held := f.memo.Judge(end.verb, f.busy.name); !held {
			end.missed = diff
		}
	}
	p.mu.Unlock()
	return p.park(ctx, &waiter{frame: f, ready: func() bool { return false }, end: end})
}

// stop seals the pass instead of a commit. mu is held.
func (r *replay) stop(p *pass, b batch) {
	for _, l := range b.lines {
		if l.Kind == journal.Blocked {
			r.diff = l.Body.Diff
			p.seal(fmt.Errorf("%w: %s", fault.ErrBlocked, r.diff))
			return
		}
	}
	for w := range p.waiters {
		if w.end != nil {
			r.ends = append(r.ends, *w.end)
		}
	}
	slices.SortFunc(r.ends, func(a, b recordEnd) int { return strings.Compare(a.path, b.path) })
	if i := slices.IndexFunc(r.ends, func(e recordEnd) bool { return e.past && !e.added }); i >= 0 {
		r.diff = fmt.Sprintf("at %s, inside a step that is done:\n- recorded: nothing\n+ the code: %s", r.ends[i].path, r.ends[i].verb)
	}
	p.seal(fmt.Errorf("%w: this is a replay, and the record ends here", fault.ErrSuspended))
}

// returned notes what the code returned.
func (r *replay) returned(out json.RawMessage, err error) { r.ended, r.out, r.err = true, out, err }

// follow runs the body of a composite step that is done, in a replay only, to
// see whether the code would do the same again.
func (s *step) follow(ctx context.Context, n *tree.Node) error {
	p := s.frame.pass
	if p.replay == nil || n.Fail != nil || !n.Composite() {
		return nil
	}
	inner := s.frame.child(s.frame.memo.Enter(s.visit))
	inner.step, inner.attempt, inner.past = true, n.Attempts+1, true
	inner.view = newView(s.frame.view)
	exited := true
	defer func() {
		if exited {
			_ = inner.left(fault.ErrFenced)
		}
	}()
	raw, err := invoke(inner.with(ctx), s.fn)
	exited = false
	if stop := inner.left(err); stop != nil {
		return stop
	}
	recorded, loadErr := p.load(s.frame, n.Value)
	switch {
	case loadErr != nil:
		return loadErr
	case err != nil:
		return p.block(s.frame, fmt.Sprintf("at %s:\n- recorded: a result, %s\n+ the code: the error %s", n.Path(), shown(recorded), fault.Clip(err.Error(), maxShown)))
	case !bytes.Equal(raw, recorded):
		return p.block(s.frame, fmt.Sprintf("the result of %s:\n- recorded: %s\n+ the code: %s", n.Path(), shown(recorded), shown(raw)))
	}
	return nil
}

// followOn runs the body of a step that is not done, if it is a composite that
// has begun. Anything else is where the record ends.
func (s *step) followOn(ctx context.Context, n *tree.Node, attempt int) error {
	if n == nil || !n.Composite() {
		return s.frame.pass.recordEnds(ctx, s.frame, s.added)
	}
	_, err := s.attempt(ctx, attempt)
	return err
}

// maxShown is how much of a value a difference shows.
const maxShown = 400

func shown(raw []byte) string {
	if raw == nil {
		return "nothing"
	}
	return fault.Clip(string(raw), maxShown)
}
