package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
)

// Resumable is a dep whose state outlives the pass. Dump returns the state as
// JSON without changing anything; it may be called at any time, also while the
// dep is in use. Load takes a dump back in; it must accept {} and keys that it
// does not know, since older and newer code wrote them too. A dep that was
// never dumped is not loaded.
//
// An error of Load says that the code cannot read what is recorded, and blocks
// the run, see [ErrBlocked]. What may fail for a while, such as a connection,
// belongs into the function that makes the dep: its error is returned by Get.
type Resumable interface {
	Dump(ctx context.Context) (json.RawMessage, error)
	Load(ctx context.Context, state json.RawMessage) error
}

// Versioned is an upgrade of Resumable for deps whose dump is expensive: while
// the number stays the same, Dump is not called.
type Versioned interface {
	StateVersion() uint64
}

// Dep is a dependency that lives as long as a pass: it is made on first use,
// and closed at the pass's end if it is an io.Closer. If it is [Resumable] its
// state is kept in the journal: with the outcome of the step that changed it,
// when the run suspends or ends, and every few seconds inside a long step. A
// new pass, and a new run of the thread, load the newest state before the
// flow sees the value.
//
// Change a dep in leaf steps only, and get it there, with the step's own
// context: flow code runs again on resume and would change it twice, and a
// step that got it is known to save it.
type Dep[T any] struct {
	depSpec
	make func(context.Context) (T, error)
}

type depSpec struct {
	key     string
	where   string
	was     string
	perNode bool
	shared  bool
	atSteps bool
}

// A DepOption changes how a dep is kept.
type DepOption func(*depSpec)

// PerNode gives each place in the tree a value of its own. The place is the
// frame that calls Get: get it in a branch or scope to use it in its steps.
func PerNode() DepOption { return func(d *depSpec) { d.perNode = true } }

// Shared lets several branches of a group use one value. After a crash it is
// as of the last commit of any of them.
func Shared() DepOption { return func(d *depSpec) { d.shared = true } }

// AtSteps leaves out the dumps inside long steps, for state that must agree
// with the finished steps.
func AtSteps() DepOption { return func(d *depSpec) { d.atSteps = true } }

// WasKey adopts the state of a key that the dep had before.
func WasKey(old string) DepOption { return func(d *depSpec) { d.was = old } }

// NewDep returns a dep with a key that is unique within a run and stable
// across versions of the code. Make may get other deps.
func NewDep[T any](key string, make func(context.Context) (T, error), opts ...DepOption) *Dep[T] {
	d := &Dep[T]{depSpec: depSpec{key: key, where: "unknown"}, make: make}
	if _, file, line, ok := runtime.Caller(1); ok {
		d.where = fmt.Sprintf("%s:%d", filepath.Base(file), line)
	}
	for _, o := range opts {
		o(&d.depSpec)
	}
	return d
}

// Get returns the value of this pass, and makes it on first use.
func (d *Dep[T]) Get(ctx context.Context) (T, error) {
	var zero T
	v, err := getDep(ctx, &d.depSpec, func(ctx context.Context) (any, error) { return d.make(ctx) })
	if err != nil {
		return zero, fmt.Errorf("%w %q: %w", fault.ErrDep, d.key, err)
	}
	value, _ := v.(T) // a nil interface is the zero T
	return value, nil
}

// depSet holds the deps of a pass.
type depSet struct {
	mu     sync.Mutex
	list   []*depValue    // in the order in which they were made
	making sync.WaitGroup // factories under way
	byID   map[string]*depValue
}

// depValue is one value of a dep.
type depValue struct {
	id    string
	spec  *depSpec
	users []*branchRef
	held  map[*frame]bool // steps under way that got it
	waits *depValue       // that its factory waits for
	ready chan struct{}
	value any
	err   error

	last    json.RawMessage // as it is in the journal
	version uint64          // of last, if seen
	seen    bool
	next    json.RawMessage // taken, and in the journal when the commit succeeds
	nextVer uint64
	busy    bool            // a dump that was given up is still under way
	inside  json.RawMessage // in development: as the last leaf left it
	fault   string
}

// branchRef is a branch that a frame stands in, and those around it.
type branchRef struct {
	outer  *branchRef
	group  *Group
	closed bool // another branch of the group failed, and the group fails fast
	failed bool // it is recorded that this one did
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

// making is the chain of deps that are being made, to find circles.
type making struct {
	id    string
	outer *making
}

func getDep(ctx context.Context, spec *depSpec, make func(context.Context) (any, error)) (any, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	if spec.key == "" || len(spec.key) > 200 || strings.Contains(spec.key, "@") || !utf8.ValidString(spec.key) {
		return nil, fmt.Errorf("%w: the key is empty, or not up to 200 bytes of UTF-8 without @ (made at %s)", fault.ErrName, spec.where)
	}
	id := spec.key
	if spec.perNode {
		id += "@" + f.path()
	}
	chain, _ := ctx.Value(makingKey{}).(*making)
	for m := chain; m != nil; m = m.outer {
		if m.id == id {
			return nil, fmt.Errorf("its factory needs itself (made at %s)", spec.where)
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
		context.AfterFunc(p.ctx, func() { end(p.sealedErr()) })
		p.deps.making.Go(func() {
			defer close(v.ready)
			p.makeDep(context.WithValue(life, makingKey{}, &making{id, chain}), v, make)
		})
	}
	select {
	case <-v.ready: // also if the context has ended
		return v.value, v.err
	default:
	}
	if chain != nil && p.deps.circle(chain, v) {
		return nil, fmt.Errorf("its factory needs itself, by way of others (made at %s)", spec.where)
	}
	select {
	case <-v.ready:
		return v.value, v.err
	case <-ctx.Done():
		return nil, p.cause(ctx)
	case <-p.ctx.Done():
		return nil, p.sealedErr()
	}
}

// join returns the value under an id, and whether the caller has to make it.
func (s *depSet) join(id string, spec *depSpec, f *frame) (*depValue, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := f.branch
	v := s.byID[id]
	if v == nil {
		if s.byID == nil {
			s.byID = map[string]*depValue{}
		}
		v = &depValue{id: id, spec: spec, users: []*branchRef{user}, ready: make(chan struct{})}
		s.byID[id] = v
		v.hold(f)
		return v, true, nil
	}
	if v.spec != spec {
		return nil, false, fmt.Errorf("two deps have this key: one made at %s, one at %s", v.spec.where, spec.where)
	}
	known := false
	for _, u := range v.users {
		if !spec.perNode && !spec.shared && apart(u, user) {
			return nil, false, fmt.Errorf("two branches of a group use it; say PerNode() or Shared() (made at %s)", spec.where)
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
// and reports whether v's own factory waits for one of the chain.
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

// hold remembers that a step uses the dep.
func (v *depValue) hold(f *frame) {
	if f.step {
		if v.held == nil {
			v.held = map[*frame]bool{}
		}
		v.held[f] = true
	}
}

// letGo forgets a step that is over.
func (s *depSet) letGo(f *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.byID {
		delete(v.held, f)
	}
}

// makeDep calls the factory, and loads the newest state if there is any.
func (p *pass) makeDep(ctx context.Context, v *depValue, make func(context.Context) (any, error)) {
	v.err = errors.New("its factory left by runtime.Goexit")
	defer func() {
		if v.err != nil { // the next Get makes it anew
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
	r, resumable := value.(Resumable)
	if resumable {
		if err := p.loadDep(ctx, v, r); err != nil {
			v.err = errors.Join(err, closeDep(value))
			return
		}
	}
	if resumable && p.rt.opts.Development {
		v.inside, _ = p.look(r)
	}
	p.deps.mu.Lock()
	v.value, v.err = value, nil
	p.deps.list = append(p.deps.list, v)
	p.deps.mu.Unlock()
	if resumable {
		p.hasResumable()
	}
}

func (p *pass) loadDep(ctx context.Context, v *depValue, r Resumable) error {
	p.mu.Lock()
	dumps := p.run.DumpsAt()
	p.mu.Unlock()
	blob, ok := dumps[v.id]
	own := ok
	if !ok && v.spec.was != "" {
		blob, ok = dumps[strings.Replace(v.id, v.spec.key, v.spec.was, 1)]
	}
	if !ok {
		p.rt.threads.Log.Debug("a resumable dep starts cold", "thread", p.name, "dep", v.id)
		return nil
	}
	adopted := !own
	f, err := inside(ctx)
	if err != nil {
		return err
	}
	raw, err := p.load(f, blob)
	if err != nil {
		return err
	}
	if _, err := invoke(ctx, func(ctx context.Context) (bool, error) { return true, r.Load(ctx, raw) }); err != nil {
		if sealed := p.sealedErr(); sealed != nil {
			return sealed
		}
		return p.misfit(f, fmt.Sprintf("the state of dep %q", v.id), raw, fmt.Sprintf("Load of %T", r), err)
	}
	if adopted {
		return nil // the next commit writes it under its new key
	}
	v.last = raw
	if ver, ok := r.(Versioned); ok {
		v.version, v.seen = ver.StateVersion(), true
	}
	return nil
}

// closeDeps closes what the pass made, the newest first.
func (p *pass) closeDeps() {
	p.deps.making.Wait() // their context has ended
	p.deps.mu.Lock()
	list := p.deps.list
	p.deps.mu.Unlock()
	for i := len(list) - 1; i >= 0; i-- {
		if err := closeDep(list[i].value); err != nil {
			p.rt.threads.Log.Warn("closing a dep", "thread", p.name, "dep", list[i].id, "error", err)
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
