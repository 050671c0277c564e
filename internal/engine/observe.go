package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/journal"
)

// Observer sees what an engine does.
type Observer interface {
	StepStarted(ctx context.Context, s StepInfo) (context.Context, func(error))
	Committed(name, thread, run string, e journal.Entry)
	PassStarted(ctx context.Context, p PassStart) (context.Context, func(PassEnd))
	TraceContext(ctx context.Context, given string) string
	Annotate(ctx context.Context, attrs []slog.Attr)
}

// StepInfo identifies an attempt of a step.
type StepInfo struct {
	Thread, Run, Flow, Path string
	Attempt                 int
	Trace                   string
	Attrs                   []slog.Attr
}

// PassStart describes a pass that begins.
type PassStart struct {
	Tenant, Thread, Run, Flow string
	Trace                     string
	Created                   time.Time
	Claim                     Claim
	Lost                      Claim
	Passes                    int
	Retries                   int
	Parent                    string
}

// Claim is the claim of a run by a worker.
type Claim struct {
	Seq    uint64
	Time   time.Time
	Worker string
}

// PassEnd says how a pass ended.
type PassEnd struct {
	Status journal.Status
	Ended  time.Time
	Error  string
	Err    error
}

func claimOf(c journal.Claim) Claim {
	return Claim{Seq: c.Seq, Time: clock.Stamp(c.Time), Worker: c.Worker}
}

// begun tells the observer that the pass begins. The function that it returns tells it
// that the pass is over.
func (p *Pass) begun() (over func()) {
	e := p.engine
	if e.opts.Observer == nil || p.holder == nil {
		return func() {}
	}
	r := p.run
	info := PassStart{Tenant: p.thread.Tenant, Thread: p.thread.ID, Run: r.ID, Flow: r.Flow, Trace: r.Trace, Created: clock.Stamp(r.Created),
		Claim: claimOf(r.Claim), Lost: claimOf(r.LostClaim), Passes: r.Claims, Retries: r.Retries}
	if from := p.thread.Parent; from != nil {
		info.Parent = from.Thread
	}
	ended := func(PassEnd) {}
	e.tell(func(o Observer) {
		ctx, done := o.PassStarted(p.runCtx, info)
		if ctx != nil {
			p.runCtx = ctx
		}
		if done != nil {
			ended = done
		}
	})
	return func() {
		end := locked(p, func() PassEnd {
			end := PassEnd{Status: p.run.Status, Ended: clock.Stamp(p.run.Ended), Err: p.sealed}
			if p.run.Fail != nil {
				end.Error = p.run.Fail.Msg
			}
			return end
		})
		e.tell(func(Observer) { ended(end) })
	}
}

// traceContext returns the trace context of what the pass starts.
func (p *Pass) traceContext() string { return p.engine.TraceContext(p.runCtx, p.run.Trace) }

// TraceContext returns the trace context of a run that is started in a context.
func (e *Engine) TraceContext(ctx context.Context, given string) (trace string) {
	trace = given
	e.tell(func(o Observer) { trace = o.TraceContext(ctx, given) })
	return trace
}

// Annotate tells the observer something about what is executed in a context.
func Annotate(ctx context.Context, attrs []slog.Attr) {
	if f, err := inside(ctx); err == nil && f.pass.holder != nil {
		f.pass.engine.tell(func(o Observer) { o.Annotate(ctx, attrs) })
	}
}

// tell calls the observer, if there is one. A panic in it does not fail the
// run.
func (e *Engine) tell(call func(Observer)) {
	if e.opts.Observer == nil {
		return
	}
	_, err := invoke(context.Background(), func(context.Context) (bool, error) {
		call(e.opts.Observer)
		return true, nil
	})
	if err != nil {
		e.threads.Log.Error("the observer", "error", err)
	}
}

func (e *Engine) stepStarted(ctx context.Context, f *frame, attrs []slog.Attr) (context.Context, func(error)) {
	if e.opts.Observer == nil {
		return ctx, unobserved
	}
	p, over := f.pass, func(error) {}
	e.tell(func(o Observer) {
		inner, ended := o.StepStarted(ctx, StepInfo{Thread: p.thread.ID, Run: p.run.ID, Flow: p.run.Flow,
			Path: f.path(), Attempt: f.attempt, Trace: p.run.Trace, Attrs: attrs})
		if inner != nil {
			ctx = inner
		}
		if ended != nil {
			over = ended
		}
	})
	return ctx, func(outcome error) { e.tell(func(Observer) { over(outcome) }) }
}

func unobserved(error) {}

func (e *Engine) observe(p *Pass, entries []journal.Entry) {
	for _, entry := range entries {
		e.tell(func(o Observer) { o.Committed(p.name, p.thread.ID, p.run.ID, entry) })
	}
}
