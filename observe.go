package perdure

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/journal"
)

// Observer is the hook for traces and metrics. Its methods must return quickly and
// be safe for concurrent use.
type Observer interface {
	// StepStarted is called when an attempt of a step begins. It returns the context
	// for the step and a function to call when the attempt is over, with the error of
	// the attempt or the reason why its result could not be recorded, which matches
	// ErrFenced if another worker may have the run.
	StepStarted(ctx context.Context, s StepInfo) (context.Context, func(error))
	// Committed is called when an entry of a run has been written to the journal.
	Committed(e Event)
}

// StepInfo describes an attempt of a step that begins.
type StepInfo struct {
	Thread, Run, Flow, Path string
	Attempt                 int
	Trace                   string      // as recorded with the run
	Attrs                   []slog.Attr // see Describe
}

// Tracer is an Observer that also sees passes, and keeps the trace of a run together
// across processes. Package otel has one.
type Tracer interface {
	Observer
	// PassStarted is called when a worker begins to execute a run. It returns the
	// context for the flow and a function to call when the pass is over.
	PassStarted(ctx context.Context, p PassStart) (context.Context, func(PassEnd))
	// TraceContext returns the trace context to record with a run that is started in
	// ctx. Given is the one in the request, usually "".
	TraceContext(ctx context.Context, given string) string
	// Annotate is called with the attributes that code passes to the function
	// [Annotate]. They may be slog.LogValuers that are expensive to resolve.
	Annotate(ctx context.Context, attrs []slog.Attr)
}

// PassStart describes a pass that begins.
type PassStart struct {
	Tenant, Thread, Run, Flow string
	Trace                     string    // recorded with the run, "" for none
	Created                   time.Time // when the run was queued
	Claim                     Claim     // with which the pass begins
	Lost                      Claim     // the claim of the previous pass, if its worker died or lost its lease; otherwise zero
	Passes                    int       // number of passes so far, including this one
	Retries                   int       // how often the run was retried after it had failed
	Parent                    string    // id of the thread that spawned this one, "" for none
}

// Claim is the claim of a run by a worker.
type Claim struct {
	Seq    uint64 // of the event
	Time   time.Time
	Worker string
}

// PassEnd says how a pass ended.
type PassEnd struct {
	Status Status    // of the run
	Ended  time.Time // when the run ended, zero if it has not
	Error  string    // of a failed run
	Err    error     // why the pass is over: matches ErrFenced if another worker may have the run
}

// Describe tells the Observer something about a step, such as which model it calls.
func Describe(attrs ...slog.Attr) StepOption {
	return func(o *engine.StepOptions) { o.Attrs = append(o.Attrs, attrs...) }
}

// Annotate tells the Observer, if it is a [Tracer], something about the step running in
// ctx that was not known when the step began, such as the tokens that it used. Without a
// Tracer, and outside a run, Annotate does nothing.
func Annotate(ctx context.Context, attrs ...slog.Attr) { engine.Annotate(ctx, attrs) }

// Observers combines several observers into one, ignoring those that are nil. The
// context of a step passes through all of them, in order.
func Observers(all ...Observer) Observer {
	var some observers
	for _, o := range all {
		if o != nil {
			some = append(some, o)
		}
	}
	switch len(some) {
	case 0:
		return nil
	case 1:
		return some[0]
	}
	return some
}

type observers []Observer

var _ Tracer = observers{}

// StepStarted implements Observer.
func (all observers) StepStarted(ctx context.Context, s StepInfo) (context.Context, func(error)) {
	return through(ctx, all, func(ctx context.Context, o Observer) (context.Context, func(error)) { return o.StepStarted(ctx, s) })
}

// Committed implements Observer.
func (all observers) Committed(e Event) {
	for _, o := range all {
		o.Committed(e)
	}
}

// PassStarted implements Tracer.
func (all observers) PassStarted(ctx context.Context, p PassStart) (context.Context, func(PassEnd)) {
	return through(ctx, slices.Collect(all.tracers), func(ctx context.Context, t Tracer) (context.Context, func(PassEnd)) { return t.PassStarted(ctx, p) })
}

// TraceContext implements Tracer.
func (all observers) TraceContext(ctx context.Context, given string) string {
	for t := range all.tracers {
		given = t.TraceContext(ctx, given)
	}
	return given
}

// Annotate implements Tracer.
func (all observers) Annotate(ctx context.Context, attrs []slog.Attr) {
	for t := range all.tracers {
		t.Annotate(ctx, attrs)
	}
}

// tracers yields those that are tracers.
func (all observers) tracers(yield func(Tracer) bool) {
	for _, o := range all {
		if t, ok := o.(Tracer); ok && !yield(t) {
			return
		}
	}
}

// through passes a context through all of some, and returns the last one and a function
// that calls what they returned, the last one first.
func through[O, T any](ctx context.Context, all []O, begin func(context.Context, O) (context.Context, func(T))) (context.Context, func(T)) {
	var ended []func(T)
	for _, o := range all {
		inner, over := begin(ctx, o)
		if inner != nil {
			ctx = inner
		}
		if over != nil {
			ended = append(ended, over)
		}
	}
	return ctx, func(with T) {
		for _, over := range slices.Backward(ended) {
			over(with)
		}
	}
}

// observer returns the engine's observer, or nil if there is none.
func (c *core) observer() engine.Observer {
	if c.opts.Observer == nil {
		return nil
	}
	return &observing{c}
}

// observing reports what the engine does to an Observer.
type observing struct{ core *core }

// StepStarted reports that an attempt of a step begins.
func (o *observing) StepStarted(ctx context.Context, s engine.StepInfo) (context.Context, func(error)) {
	return o.core.opts.Observer.StepStarted(ctx, StepInfo(s))
}

// Committed reports that an entry of a run is in the thread's journal.
func (o *observing) Committed(name, thread, run string, e journal.Entry) {
	if ev, err := o.core.event(context.Background(), name, run, e, false); err == nil {
		ev.Thread = thread
		o.core.opts.Observer.Committed(ev)
	}
}

// PassStarted reports that a pass begins.
func (o *observing) PassStarted(ctx context.Context, p engine.PassStart) (context.Context, func(engine.PassEnd)) {
	t, ok := o.core.opts.Observer.(Tracer)
	if !ok {
		return ctx, nil
	}
	ctx, over := t.PassStarted(ctx, PassStart{Tenant: p.Tenant, Thread: p.Thread, Run: p.Run, Flow: p.Flow, Trace: p.Trace, Created: p.Created,
		Claim: Claim(p.Claim), Lost: Claim(p.Lost), Passes: p.Passes, Retries: p.Retries, Parent: p.Parent})
	return ctx, func(end engine.PassEnd) {
		if over != nil {
			over(PassEnd(end))
		}
	}
}

// TraceContext returns the trace context of a run that is started in a context.
func (o *observing) TraceContext(ctx context.Context, given string) string {
	if t, ok := o.core.opts.Observer.(Tracer); ok {
		return t.TraceContext(ctx, given)
	}
	return given
}

// Annotate passes on what code says about a step.
func (o *observing) Annotate(ctx context.Context, attrs []slog.Attr) {
	if t, ok := o.core.opts.Observer.(Tracer); ok {
		t.Annotate(ctx, attrs)
	}
}
