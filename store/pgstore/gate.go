package pgstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A gate is what a handle passes to open a connection. After a failure it lets one
// attempt through at a time, with pauses that grow. All other callers wait for its
// outcome: if it fails, that is their error too. So a server that is away or
// starting meets one attempt at a time of a handle, however many calls wait. Calls
// that find an open connection do not pass the gate.
type gate struct {
	mu    sync.Mutex
	under int           // attempts under way, or waiting for next
	err   error         // why the last attempt failed; nil if the gate is open
	began time.Time     // when that attempt began,
	ended time.Time     // and when it ended
	next  time.Time     // the earliest time of the next one
	pause time.Duration // after that one, if it fails
	news  chan struct{} // closed when any of this changes; nil if nobody waits
}

const (
	maxAttempts = maxConns // at a time, while they succeed

	// The pauses after failed attempts, of which up to a half is left out at random.
	leastPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// An attempt is one that passed the gate. It says how it ended with end. As the
// connection's tracer, which is how pgx tells of failures, it does so itself if there
// is no connection.
type attempt struct {
	gate  *gate
	ctx   context.Context
	began time.Time
	broke atomic.Pointer[error] // the error of the statement that closed the connection
}

var (
	_ pgx.ConnectTracer = (*attempt)(nil)
	_ pgx.QueryTracer   = (*attempt)(nil)
	_ pgx.BatchTracer   = (*attempt)(nil)

	_ pgx.CopyFromTracer = (*attempt)(nil)
	_ pgx.PrepareTracer  = (*attempt)(nil)
)

type calledKey struct{}

// called returns a context that says when its call began: an attempt that began
// later and failed is the call's outcome too.
func called(ctx context.Context) context.Context {
	return context.WithValue(ctx, calledKey{}, time.Now())
}

// enter waits until the caller may open a connection with config. It returns the
// error of another attempt that the caller has waited for.
func (g *gate) enter(ctx context.Context, config *pgx.ConnConfig) error {
	call, ok := ctx.Value(calledKey{}).(time.Time)
	if !ok {
		call = time.Now()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.under > 0 && (g.err != nil || g.under >= maxAttempts) {
		if g.err != nil && g.began.After(call) {
			return g.err
		}
		if err := g.wait(ctx, nil); err != nil {
			return err
		}
	}
	if g.err != nil && g.began.After(call) {
		return g.err
	}
	g.under++
	for pause := time.Until(g.next); g.err != nil && pause > 0; pause = time.Until(g.next) {
		if err := g.wait(ctx, time.After(pause)); err != nil {
			g.leave()
			return err
		}
	}
	config.Tracer = &attempt{gate: g, ctx: ctx, began: time.Now()}
	return nil
}

// wait waits until something changes, or it is due, or ctx ends. The caller holds
// the lock.
func (g *gate) wait(ctx context.Context, due <-chan time.Time) error {
	if g.news == nil {
		g.news = make(chan struct{})
	}
	news := g.news
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-news:
	case <-due:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// leave makes room for another attempt. The caller holds the lock.
func (g *gate) leave() {
	g.under--
	if g.news != nil {
		close(g.news)
		g.news = nil
	}
}

// end notes how an attempt ended, and returns err. One whose caller gave up says
// nothing about the server, nor does one that began before the last one failed.
func (a *attempt) end(err error) error {
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.err, g.pause = nil, 0
	case a.ctx.Err() == nil && (g.err == nil || a.began.After(g.ended)):
		g.pause = min(max(2*g.pause, leastPause), mostPause)
		g.err, g.began, g.ended = err, a.began, time.Now()
		g.next = g.ended.Add(g.pause - rand.N(g.pause/2))
	}
	g.leave()
	return err
}

// connect opens a connection. The caller then calls entered.
func (g *gate) connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	if err := g.enter(ctx, config); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}

// entered notes whether a new connection is good, and returns err, which says why
// it is not.
func entered(c *pgx.Conn, err error) error { return c.Config().Tracer.(*attempt).end(err) }

// TraceConnectStart implements pgx.ConnectTracer.
func (a *attempt) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd implements pgx.ConnectTracer. The one who opened a connection
// has yet to see whether it is good.
func (a *attempt) TraceConnectEnd(_ context.Context, d pgx.TraceConnectEndData) {
	if d.Err != nil {
		_ = a.end(d.Err)
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (a *attempt) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (a *attempt) TraceQueryEnd(_ context.Context, c *pgx.Conn, d pgx.TraceQueryEndData) {
	a.ended(c, d.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (a *attempt) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (a *attempt) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (a *attempt) TraceBatchEnd(_ context.Context, c *pgx.Conn, d pgx.TraceBatchEndData) {
	a.ended(c, d.Err)
}

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (a *attempt) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return ctx
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (a *attempt) TraceCopyFromEnd(_ context.Context, c *pgx.Conn, d pgx.TraceCopyFromEndData) {
	a.ended(c, d.Err)
}

// TracePrepareStart implements pgx.PrepareTracer.
func (a *attempt) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return ctx
}

// TracePrepareEnd implements pgx.PrepareTracer.
func (a *attempt) TracePrepareEnd(_ context.Context, c *pgx.Conn, d pgx.TracePrepareEndData) {
	a.ended(c, d.Err)
}

// ended notes the first error with which the connection was closed.
func (a *attempt) ended(c *pgx.Conn, err error) {
	if err != nil && c.IsClosed() {
		a.broke.CompareAndSwap(nil, &err)
	}
}
