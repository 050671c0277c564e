package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
)

// DepSpec describes a dep.
type DepSpec struct {
	Key     string
	Where   string
	Was     string
	PerNode bool
	Shared  bool
	AtSteps bool
}

// DepOption changes how a dep is kept.
type DepOption func(*DepSpec)

// resumable is a dep whose state outlives the pass: see perdure.Resumable.
type resumable interface {
	Dump(ctx context.Context) (json.RawMessage, error)
	Load(ctx context.Context, state json.RawMessage) error
}

// versioned is a resumable whose dump is expensive: see perdure.Versioned.
type versioned interface {
	StateVersion() uint64
}

type depSet struct {
	mu     sync.Mutex
	list   []*depValue    // in the order in which they were made
	making sync.WaitGroup // factories that are running
	byID   map[string]*depValue
}

type depValue struct {
	id    string
	spec  *DepSpec
	users []*branchRef
	held  map[*frame]bool // running steps that got it
	waits *depValue       // the dep that its factory waits for
	ready chan struct{}
	value any
	err   error

	last    json.RawMessage // as in the journal
	version uint64          // of last, if seen
	seen    bool
	next    json.RawMessage // the dump being committed
	nextVer uint64
	busy    bool            // a dump that was given up is still running
	inside  json.RawMessage // in development: as the last leaf left it
	fault   string
}

// branchRef is the branch that a frame is in, and the branches around it.
type branchRef struct {
	outer  *branchRef
	group  *Group
	closed bool // another branch of the group failed, and the group fails fast
	failed bool // this branch is recorded as the one that failed
}

// apart reports whether a and b are in different branches of one group.
func apart(a, b *branchRef) bool {
	for x := a; x != nil; x = x.outer {
		for y := b; y != nil; y = y.outer {
			if x.group == y.group && x != y {
				return true
			}
		}
	}
	return false
}

type makingKey struct{}

// making is the chain of deps that are being made, to detect cycles.
type making struct {
	id    string
	outer *making
}

// GetDep returns the value of a dep in this pass, making it on first use.
func GetDep(ctx context.Context, spec *DepSpec, make func(context.Context) (any, error)) (any, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	if spec.Key == "" || len(spec.Key) > 200 || strings.Contains(spec.Key, "@") || !utf8.ValidString(spec.Key) {
		return nil, fmt.Errorf("%w: the key is empty, or not up to 200 bytes of UTF-8 without @ (made at %s)", fault.ErrName, spec.Where)
	}
	id := spec.Key
	if spec.PerNode {
		id += "@" + f.path()
	}
	chain, _ := ctx.Value(makingKey{}).(*making)
	for m := chain; m != nil; m = m.outer {
		if m.id == id {
			return nil, fmt.Errorf("its factory needs itself (made at %s)", spec.Where)
		}
	}
	p := f.pass
	p.mu.Lock()
	over, sealed := f.done, p.sealed
	p.mu.Unlock()
	switch {
	case sealed != nil:
		return nil, sealed
	case over:
		return nil, fmt.Errorf("%w: its frame has returned", fault.ErrNoRun)
	}
	v, first, err := p.deps.join(id, spec, f)
	if err != nil {
		return nil, err
	}
	if first {
		// It is made for the pass, not for the step that happens to need it
		// first: it outlives that step's context, which only ends the wait.
		life, end := context.WithCancelCause(context.WithoutCancel(ctx))
		context.AfterFunc(p.ctx, func() { end(p.Err()) })
		p.deps.making.Go(func() {
			defer close(v.ready)
			p.makeDep(context.WithValue(life, makingKey{}, &making{id, chain}), v, make)
		})
	}
	select {
	case <-v.ready: // even if the context has ended
		return v.value, v.err
	default:
	}
	if chain != nil && p.deps.circle(chain, v) {
		return nil, fmt.Errorf("its factory needs itself through other deps (made at %s)", spec.Where)
	}
	select {
	case <-v.ready:
		return v.value, v.err
	case <-ctx.Done():
		return nil, p.cause(ctx)
	case <-p.ctx.Done():
		return nil, p.Err()
	}
}

// join returns the value under an id, and whether the caller has to make it.
func (s *depSet) join(id string, spec *DepSpec, f *frame) (*depValue, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := f.branch
	v := s.byID[id]
	if v == nil {
		v = &depValue{id: id, spec: spec, users: []*branchRef{user}, held: map[*frame]bool{}, ready: make(chan struct{})}
		s.byID[id] = v
		v.hold(f)
		return v, true, nil
	}
	if v.spec != spec {
		return nil, false, fmt.Errorf("two deps have this key: one made at %s, one at %s", v.spec.Where, spec.Where)
	}
	known := false
	for _, u := range v.users {
		if !spec.PerNode && !spec.Shared && apart(u, user) {
			return nil, false, fmt.Errorf("two branches of a group use it; add PerNode() or Shared() (made at %s)", spec.Where)
		}
		known = known || u == user
	}
	if !known {
		v.users = append(v.users, user)
	}
	v.hold(f)
	return v, false, nil
}

// circle notes that the factory of the innermost dep of a chain waits for v,
// and reports whether v's own factory waits for one in the chain.
func (s *depSet) circle(chain *making, v *depValue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := v; w != nil; w = w.waits {
		for m := chain; m != nil; m = m.outer {
			if w == s.byID[m.id] {
				return true
			}
		}
	}
	if own := s.byID[chain.id]; own != nil {
		own.waits = v
	}
	return false
}

// made returns the deps in the order in which they were made.
func (s *depSet) made() []*depValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// resumables yields the deps that have a state.
func (s *depSet) resumables() iter.Seq2[*depValue, resumable] {
	return func(yield func(*depValue, resumable) bool) {
		for _, v := range s.made() {
			if r, ok := v.value.(resumable); ok && !yield(v, r) {
				return
			}
		}
	}
}

// hold remembers that a step uses the dep.
func (v *depValue) hold(f *frame) {
	if f.step {
		v.held[f] = true
	}
}

// letGo forgets a step that has ended.
func (s *depSet) letGo(f *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.byID {
		delete(v.held, f)
	}
}

// makeDep calls the factory, and loads the newest state if there is any.
func (p *Pass) makeDep(ctx context.Context, v *depValue, make func(context.Context) (any, error)) {
	v.err = errors.New("its factory called runtime.Goexit")
	defer func() {
		if v.err != nil { // the next Get makes it again
			p.deps.mu.Lock()
			delete(p.deps.byID, v.id)
			p.deps.mu.Unlock()
		}
	}()
	value, err := invoke(ctx, make)
	if err != nil {
		v.err = err
		return
	}
	r, resumable := value.(resumable)
	if resumable {
		if err := p.loadDep(ctx, v, r); err != nil {
			v.err = errors.Join(err, closeDep(value))
			return
		}
	}
	if resumable && p.engine.opts.Development {
		res, _ := p.callDump(r, nil)
		v.inside = res.raw
	}
	p.deps.mu.Lock()
	v.value, v.err = value, nil
	p.deps.list = append(p.deps.list, v)
	p.deps.mu.Unlock()
	if resumable {
		p.hasResumable()
	}
}

func (p *Pass) loadDep(ctx context.Context, v *depValue, r resumable) error {
	p.mu.Lock()
	dumps := p.run.DumpsAt()
	p.mu.Unlock()
	blob, own := dumps[v.id]
	ok := own
	if !ok && v.spec.Was != "" {
		blob, ok = dumps[strings.Replace(v.id, v.spec.Key, v.spec.Was, 1)]
	}
	if !ok {
		p.engine.threads.Log.Debug("a resumable dep starts cold", "thread", p.name, "dep", v.id)
		return nil
	}
	f, err := inside(ctx)
	if err != nil {
		return err
	}
	raw, err := p.load(f, blob)
	if err != nil {
		return err
	}
	if _, err := invoke(ctx, func(ctx context.Context) (bool, error) { return true, r.Load(ctx, raw) }); err != nil {
		if sealed := p.Err(); sealed != nil {
			return sealed
		}
		return p.misfit(f, fmt.Sprintf("the state of dep %q", v.id), raw, fmt.Sprintf("Load of %T", r), err)
	}
	if !own {
		return nil // the next commit writes it under its new key
	}
	v.last = raw
	if ver, ok := r.(versioned); ok {
		v.version, v.seen = ver.StateVersion(), true
	}
	return nil
}

// closeDeps closes the deps that the pass made, newest first.
func (p *Pass) closeDeps() {
	p.deps.making.Wait() // their context has ended
	for _, v := range slices.Backward(p.deps.made()) {
		if err := closeDep(v.value); err != nil {
			p.engine.threads.Log.Warn("closing a dep", "thread", p.name, "dep", v.id, "error", err)
		}
	}
}

func closeDep(v any) error {
	c, ok := v.(io.Closer)
	if !ok {
		return nil
	}
	_, err := invoke(context.Background(), func(context.Context) (bool, error) { return true, c.Close() })
	return err
}
