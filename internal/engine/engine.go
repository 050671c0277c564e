package engine

import (
	"context"
	"encoding/json"
	"sync"
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
	passes map[string]chan struct{} // by thread: closed when the pass in this process is over
}

// Options of an engine.
type Options struct {
	Version      string                                                // of the code
	Validator    Validator                                             // of answers, nil for none
	Observer     Observer                                              // nil for none
	Lease        time.Duration                                         // how long a store that fails is asked again
	Grace        time.Duration                                         // how long a run that is blocked lets other branches finish
	DumpInterval time.Duration                                         // between saves of deps inside a step
	Development  bool                                                  // deps are watched for changes outside leaf steps
	CheckInput   func(flow string, input any) (json.RawMessage, error) // returns the JSON of an input, if the flow takes it
}

// Validator checks a value against a JSON Schema.
type Validator interface {
	Validate(schema, value json.RawMessage) error
}

// Observer sees what an engine does.
type Observer interface {
	StepStarted(ctx context.Context, s StepInfo) (context.Context, func(error))
	Committed(name, thread, run string, e journal.Entry)
}

// StepInfo says which attempt of which step begins.
type StepInfo struct {
	Thread, Run, Flow, Path string
	Attempt                 int
	Trace                   string
}

// New returns an engine.
func New(t *threads.Threads, o Options) *Engine {
	return &Engine{threads: t, opts: o, passes: map[string]chan struct{}{}}
}

// noteExecuting notes that a pass of a thread runs in this process, until over is
// called.
func (c *Engine) noteExecuting(name string) (over func()) {
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passes[name] = done
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.passes[name] == done {
			delete(c.passes, name)
		}
		close(done)
	}
}

// PassDone returns what is closed when the pass of a thread in this process is
// over, nil if there is none.
func (c *Engine) PassDone(name string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passes[name]
}

// control returns the control of a tenant's threads.
func (c *Engine) control(tenant string) *lifecycle.Control {
	return lifecycle.New(c.threads.Tenant(tenant), 0, c.opts.CheckInput)
}
