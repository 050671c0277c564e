package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
)

// Limits bound what is in progress at a time. A field that is 0 has its default.
type Limits struct {
	// Streams are event streams, waits for runs, and other requests that stay
	// open until something happens.
	Streams int
	// Requests are all other requests.
	Requests int
	// Bytes is the size of request bodies, of threads that are being read, and of
	// responses that clients have not read yet. Requests up to 32 KiB do not count.
	// Event streams and pages of events hold one event at a time.
	Bytes int64
}

// or returns the limits with defaults in place of zeros.
func (l Limits) or(defaults Limits) Limits {
	return Limits{cmp.Or(l.Streams, defaults.Streams), cmp.Or(l.Requests, defaults.Requests), cmp.Or(l.Bytes, defaults.Bytes)}
}

// The defaults: a tenant takes at most half of a server, a token a quarter.
var (
	serverLimits = Limits{Streams: 10_000, Requests: 2000, Bytes: 256 << 20}
	tenantLimits = Limits{Streams: 5000, Requests: 1000, Bytes: 128 << 20}
	tokenLimits  = Limits{Streams: 2500, Requests: 500, Bytes: 64 << 20}
	userLimits   = Limits{Streams: 100, Requests: 50, Bytes: 32 << 20}
)

// bucket is something with limits: the server, a tenant, a token by its hash, or a
// user with all tokens and tickets that are limited to the user.
type bucket struct{ kind, name string }

// ledger counts what is in progress.
type ledger struct {
	mu    sync.Mutex
	used  map[bucket]Limits // those with something in progress
	turns map[bucket]int    // heavy requests at work
	freed chan struct{}     // closed when bytes or a turn are returned; nil: nobody waits
}

// wake wakes those who wait for room. The mutex is held.
func (g *ledger) wake() {
	if g.freed != nil {
		close(g.freed)
		g.freed = nil
	}
}

// await calls try with the mutex held, and again whenever something is returned,
// until it succeeds or the time is over. It returns the last error.
func (g *ledger) await(ctx context.Context, most time.Duration, try func() error) error {
	var late <-chan time.Time
	for last := false; ; {
		g.mu.Lock()
		err := try()
		if err == nil || last || errors.Is(err, perdure.ErrTooLarge) {
			g.mu.Unlock()
			return err
		}
		if g.freed == nil {
			g.freed = make(chan struct{})
		}
		freed := g.freed
		g.mu.Unlock()
		if late == nil {
			late = time.After(most)
		}
		select {
		case <-freed:
		case <-late:
			last = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Limits of the memory of a request, and how long it waits for others.
const (
	heavy    = 256 << 10   // bytes from which a request needs a turn
	oneTurn  = 32 << 20    // bytes of a limit per turn
	turnTime = time.Minute // how long a heavy request waits for a turn
	roomTime = time.Second // how long a request waits for bytes to be returned
)

// load is what one request takes of the limits. A nil load takes nothing, as in
// tests without a connection.
//
// Memory is counted before it is filled: by the kernel for what it reads, since
// the load is the [threads.Scale] of the request, and here for bodies and
// responses. A response is made from what was read, so the larger of the two
// counts. Heavy requests of one caller run one after the other: the others wait,
// and hold nothing but their bodies.
type load struct {
	s        *Server
	ctx      context.Context
	write    bool // it takes effect before the response, which is therefore not refused
	buckets  []bucket
	tenant   string
	grown    threads.Growth // what was admitted
	admitted time.Time      // when a run was
	refused  bool           // nothing came of it
	reserved int64          // bytes that count with it until it is settled
	settled  bool           // it is in the store, or never will be

	// Guarded by the ledger's mutex.
	held   Limits
	sent   int64 // bytes of the body
	values int64 // bytes of values that were read, and of the body
	fold   int64 // bytes of the largest thread that was folded
	turn   bool  // it has a turn
	begun  bool  // the response has begun, or it is a stream: it needs no turn any more
	over   bool
}

var _ threads.Scale = (*load)(nil)

// enter counts a request for whoever makes it. Of one that needs no token only
// the bytes count.
func (l *load) enter(known bool, buckets ...bucket) error {
	if l == nil {
		return nil
	}
	l.buckets = append(buckets, bucket{kind: "server"}) // last, so that the error names the caller's own limit first
	if !known {
		return nil
	}
	return l.take(Limits{Requests: 1})
}

// Value counts bytes of a value until letGo.
func (l *load) Value(ctx context.Context, bytes int64) error {
	return l.grow(ctx, func() int64 {
		l.values += bytes
		return l.values + l.fold
	})
}

// Fold counts the entries of a thread.
func (l *load) Fold(ctx context.Context, bytes int64) error {
	return l.grow(ctx, func() int64 {
		l.fold = max(l.fold, bytes)
		return l.values + l.fold
	})
}

// hold counts bytes of the response until the request ends.
func (l *load) hold(bytes int) error {
	if l == nil {
		return nil
	}
	return l.grow(l.ctx, func() int64 { return int64(bytes) })
}

// letGo returns the bytes of what was read and is no longer needed.
func (l *load) letGo() {
	if l == nil {
		return
	}
	l.s.ledger.mu.Lock()
	defer l.s.ledger.mu.Unlock()
	l.values, l.fold = 0, 0
	l.add(Limits{Bytes: -l.held.Bytes})
}

// body counts bytes of the body as they arrive. They wait for no turn: the sender
// may be slow, and the request can still be refused.
func (l *load) body(bytes int) error {
	if l == nil {
		return nil
	}
	return l.s.ledger.await(l.ctx, roomTime, func() error {
		if err := l.reach(l.values + int64(bytes)); err != nil {
			return err
		}
		l.values += int64(bytes)
		l.sent += int64(bytes)
		return nil
	})
}

// bodyBytes returns how many bytes of the body have arrived.
func (l *load) bodyBytes() int64 {
	l.s.ledger.mu.Lock()
	defer l.s.ledger.mu.Unlock()
	return l.sent
}

// grow makes the request hold at least as many bytes as weight returns. It waits
// for its turn and for room.
func (l *load) grow(ctx context.Context, weight func() int64) error {
	g := &l.s.ledger
	g.mu.Lock()
	most := weight()
	g.mu.Unlock()
	if most > heavy {
		if err := g.await(ctx, turnTime, l.takeTurn); err != nil {
			return err
		}
	}
	err := g.await(ctx, roomTime, func() error { return l.reach(most) })
	if err != nil && l.write && ctx.Err() == nil && !errors.Is(err, perdure.ErrTooLarge) {
		g.mu.Lock()
		defer g.mu.Unlock()
		l.add(Limits{Bytes: max(most-l.held.Bytes, 0)})
		return nil
	}
	return err
}

// reach makes the request hold this many bytes, unless that exceeds a limit. The
// mutex is held.
func (l *load) reach(bytes int64) error {
	bytes += -bytes & (streamBuffer - 1) // so that entries are not counted one by one
	if l.over || bytes <= streamBuffer || bytes <= l.held.Bytes {
		return nil
	}
	size := bytes
	if l.write { // what it changes must be read, however large
		size = l.values
	}
	most := l.s.opts.Limits.Bytes / 2 // which leaves as many for others of its tenant
	if len(l.buckets) > 2 {
		most = min(most, l.s.opts.TenantLimits.Bytes/2)
	}
	if size > most {
		return fmt.Errorf("%w: this needs at least %d bytes of memory, but one request may use at most %d, half of its tenant's limit; ask for a part, or raise the server's limits", perdure.ErrTooLarge, size, most)
	}
	return l.try(Limits{Bytes: bytes - l.held.Bytes})
}

// takeTurn takes one of the caller's turns for heavy requests. The mutex is held.
func (l *load) takeTurn() error {
	if l.turn || l.begun || l.over || len(l.buckets) == 0 {
		return nil
	}
	g, b := &l.s.ledger, l.buckets[0]
	most, whose, err := l.s.limitsOf(b)
	if g.turns[b] >= max(1, int(most.Bytes/oneTurn)) {
		return fmt.Errorf("%w: %s large requests in progress; try again", err, whose)
	}
	g.turns[b]++
	l.turn = true
	return nil
}

// begin returns the turn when the response begins. A write keeps it to the end:
// its response is not refused, so there must not be many.
func (l *load) begin() {
	l.settle()
	l.s.ledger.mu.Lock()
	defer l.s.ledger.mu.Unlock()
	if !l.write {
		l.rest()
	}
}

// rest returns the turn. The mutex is held.
func (l *load) rest() {
	l.begun = true
	if !l.turn {
		return
	}
	g, b := &l.s.ledger, l.buckets[0]
	if g.turns[b]--; g.turns[b] == 0 {
		delete(g.turns, b)
	}
	l.turn = false
	g.wake()
}

// stream makes the request a stream until leave is called. It then holds no
// bytes.
func (l *load) stream() (leave func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	done, err := l.s.quotas.openStream(l.tenant)
	if err != nil {
		return nil, err
	}
	change := Limits{Streams: 1, Requests: -l.held.Requests}
	if err := l.take(change); err != nil {
		done()
		return nil, err
	}
	l.letGo()
	l.s.ledger.mu.Lock()
	defer l.s.ledger.mu.Unlock()
	l.rest()
	return func() {
		done()
		l.s.ledger.mu.Lock()
		defer l.s.ledger.mu.Unlock()
		l.add(Limits{Streams: -1, Requests: -change.Requests})
	}, nil
}

// release returns everything.
func (l *load) release() {
	l.settle()
	l.s.ledger.mu.Lock()
	defer l.s.ledger.mu.Unlock()
	l.over = true
	l.rest()
	l.add(Limits{Streams: -l.held.Streams, Requests: -l.held.Requests, Bytes: -l.held.Bytes})
}

// take adds to what the request holds, unless that exceeds a limit.
func (l *load) take(n Limits) error {
	l.s.ledger.mu.Lock()
	defer l.s.ledger.mu.Unlock()
	return l.try(n)
}

// try is take. The mutex is held.
func (l *load) try(n Limits) error {
	for i, b := range l.buckets {
		if err := l.full(b, i == 0, n); err != nil {
			return err
		}
	}
	l.add(n)
	return nil
}

// add adds to what the request holds. The mutex is held.
func (l *load) add(n Limits) {
	g := &l.s.ledger
	for _, b := range l.buckets {
		if now := g.used[b].plus(n); now != (Limits{}) {
			g.used[b] = now
		} else {
			delete(g.used, b)
		}
	}
	l.held = l.held.plus(n)
	if n.Bytes < 0 {
		g.wake()
	}
}

func (l Limits) plus(n Limits) Limits {
	return Limits{l.Streams + n.Streams, l.Requests + n.Requests, l.Bytes + n.Bytes}
}

// limitsOf returns the limits of a bucket, and how to report that they are reached.
func (s *Server) limitsOf(b bucket) (most Limits, whose string, err error) {
	switch b.kind {
	case "tenant":
		return s.opts.TenantLimits, "the tenant has", api.ErrTooMany
	case "user":
		return s.opts.UserLimits, "the user has", api.ErrTooMany
	case "token":
		return s.opts.TokenLimits, "the token has", api.ErrTooMany
	}
	return s.opts.Limits, "this server has", api.ErrOverloaded
}

// full returns an error if a bucket has no room for more. A single request may
// exceed the bytes of its user or token if nothing else of theirs is in progress:
// otherwise it could never be served.
func (l *load) full(b bucket, own bool, more Limits) error {
	most, whose, err := l.s.limitsOf(b)
	used := l.s.ledger.used[b]
	switch {
	case more.Streams > 0 && used.Streams+more.Streams > most.Streams:
		return fmt.Errorf("%w: %s %d event streams open; close some, or try again", err, whose, used.Streams)
	case more.Requests > 0 && used.Requests+more.Requests > most.Requests:
		return fmt.Errorf("%w: %s %d requests in progress; try again", err, whose, used.Requests)
	case more.Bytes > 0 && !(own && used.Bytes == l.held.Bytes) && used.Bytes+more.Bytes > most.Bytes:
		return fmt.Errorf("%w: %s %d bytes of requests and responses in progress that are not read to their end; read them, or try again", err, whose, used.Bytes)
	}
	return nil
}
