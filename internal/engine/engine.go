// Package engine executes runs: a pass calls the code of a flow, whose verbs
// look up what is recorded and commit what is new, entry by entry. It may
// import internal/threads, lifecycle and archive, and what those import.
package engine

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
)

// Engine executes runs on the threads of a store.
type Engine struct {
	threads *threads.Threads
	opts    Options

	mu     sync.Mutex
	passes map[string]*Executing    // by the name of the thread
	byID   map[[2]string]*Executing // by its tenant and id
}

// Options of an engine.
type Options struct {
	Version      string                                                // of the code
	Validator    Validator                                             // of answers, nil for none
	Observer     Observer                                              // nil for none
	Lease        time.Duration                                         // how long to keep retrying a failing store
	Grace        time.Duration                                         // how long a blocked run lets its other branches finish
	DumpInterval time.Duration                                         // between saves of deps inside a step
	Development  bool                                                  // deps are watched for changes outside leaf steps
	CheckInput   func(flow string, input any) (json.RawMessage, error) // returns the JSON of an input, if the flow accepts it
}

// Validator checks a value against a JSON Schema.
type Validator interface {
	Validate(schema, value json.RawMessage) error
}

// New returns an engine.
func New(t *threads.Threads, o Options) *Engine {
	return &Engine{threads: t, opts: o, passes: map[string]*Executing{}, byID: map[[2]string]*Executing{}}
}

// Executing is a pass that is running in this process.
type Executing struct {
	Run  string
	Name string        // of the thread
	User string        // of the thread
	Done chan struct{} // closed when it has ended

	closing atomic.Bool     // its last entries have been or are being appended
	left    *journal.Thread // set before Done is closed
}

// Closing reports whether the thread that the pass will leave may be older than
// this call.
func (x *Executing) Closing() bool { return x.closing.Load() }

// Left returns the thread as an ended pass has left it, if there was nothing
// more to do. The thread does not change, and contains everything that was
// appended before a call of Closing that returned false.
func (x *Executing) Left() *journal.Thread {
	select {
	case <-x.Done:
		return x.left
	default:
		return nil
	}
}

// noteExecuting notes that a pass is running in this process.
func (e *Engine) noteExecuting(p *Pass) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.noted = &Executing{Run: p.run.ID, Name: p.name, User: p.thread.User, Done: make(chan struct{})}
	e.passes[p.name], e.byID[p.id()] = p.noted, p.noted
}

// Over tells those who wait for the pass that it has ended.
func (p *Pass) Over() {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.passes[p.name] == p.noted {
		e.threads.Said.ForgetThread(p.name)
		delete(e.passes, p.name)
	}
	if e.byID[p.id()] == p.noted {
		delete(e.byID, p.id())
	}
	if p.Settled() {
		p.noted.left = p.thread
	}
	close(p.noted.Done)
}

// Executing returns the pass of a thread that is running in this process, nil
// if there is none.
func (e *Engine) Executing(name string) *Executing {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.passes[name]
}

// ExecutingID is Executing for the thread of a tenant with an id.
func (e *Engine) ExecutingID(tenant, thread string) *Executing {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byID[[2]string{tenant, thread}]
}

func (p *Pass) id() [2]string { return [2]string{p.thread.Tenant, p.thread.ID} }

func (e *Engine) control(tenant string) *lifecycle.Control {
	return lifecycle.New(e.threads.Tenant(tenant), 0, e.opts.CheckInput)
}

// place says where code is running: see perdure.Place.
type place struct {
	Tenant, User, Thread, Run, Flow, Path string
}

// Here returns the place of a context.
func Here(ctx context.Context) (place, error) {
	f, err := inside(ctx)
	if err != nil {
		return place{}, err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	t := f.pass.thread
	return place{Tenant: t.Tenant, User: t.User, Thread: t.ID, Run: f.pass.run.ID, Flow: f.pass.run.Flow, Path: f.path()}, nil
}

// TenantOf returns the threads of the tenant that a context's run belongs to.
func TenantOf(ctx context.Context) (*threads.Tenant, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	return f.pass.engine.threads.Tenant(f.pass.thread.Tenant), nil
}

// IsErasedWithUser reports whether the thread that a context's run belongs to was erased
// with everything of its user: see threads.Tenant.
func IsErasedWithUser(ctx context.Context) (bool, error) {
	f, err := inside(ctx)
	if err != nil {
		return false, err
	}
	p := f.pass
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.engine.opts.Lease) // the pass may have been fenced
	defer cancel()
	return p.engine.threads.Tenant(p.thread.Tenant).IsErasedWithUser(ctx, p.name, p.thread.User, p.thread.Created)
}

// CheckLeaf returns an error unless a context is that of a leaf step, which may
// not call verbs from then on.
func CheckLeaf(ctx context.Context, what string) error {
	return change(ctx, what, func(*frame) error { return nil })
}

// Misfit blocks the run that a context belongs to, because the code cannot read
// a recorded value, and returns the error that ends the pass.
func Misfit(ctx context.Context, where string, raw json.RawMessage, reader string, err error) error {
	f, outside := inside(ctx)
	if outside != nil {
		return outside
	}
	return f.pass.misfit(f, where, raw, reader, err)
}
