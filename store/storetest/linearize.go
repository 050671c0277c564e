package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
)

// LinearizeOptions says how much Linearize does. Zero values mean the defaults.
type LinearizeOptions struct {
	Clients    int // concurrent clients, on two handles; at least 5; 0 means 6
	Operations int // operations in a history; at least 200; 0 means 240
	Histories  int // histories, each on a new journal; 0 means 5, or 1 with go test -short
}

// Linearize records what concurrent clients on two handles see of one journal and
// checks with porcupine that there is an order, consistent with real time, in
// which a plain compare-and-swap journal would give all of them the same results.
// The clients append one or several entries at what they believe to be the end,
// with a cell if the store can batch; append at ends that they know to be wrong;
// and read the whole journal. Some have their contexts cancelled during a call and
// some forget the result, so that the history holds appends whose outcome nobody
// knows.
//
// It is a case of Run. Call it directly to run it for longer.
func Linearize(t testing.TB, open Opener, o LinearizeOptions) {
	t.Helper()
	if o.Clients == 0 {
		o.Clients = 6
	}
	if o.Operations == 0 {
		o.Operations = 240
	}
	if o.Histories == 0 {
		o.Histories = 5
		if testing.Short() {
			o.Histories = 1
		}
	}
	if o.Clients < 5 || o.Operations < 200 || o.Histories < 1 {
		t.Fatalf("storetest: Linearize with %d clients, %d operations, %d histories proves too little; use at least 5 clients, 200 operations and 1 history", o.Clients, o.Operations, o.Histories)
	}
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	k := &kit{TB: t, ctx: ctx, opener: open, dir: t.TempDir()}
	defer k.closeAll()
	handles := []store.Store{k.open(), k.open()}
	var sum tally
	for n := range o.Histories {
		r := &linRun{ctx: ctx, handles: handles, journal: fmt.Sprintf("linear-%d", n), batches: store.BatcherOf(handles[0]) != nil}
		history, err := r.run(o.Clients, o.Operations)
		if err != nil {
			t.Fatalf("storetest: history %d of Linearize: %v", n+1, err)
		}
		if why := history.explain(); why != "" {
			t.Fatalf("history %d is not linearizable. Decisions based on such a journal are wrong: two writers believe that they have won, or an entry that was seen is gone.\n%s", n+1, why)
		}
		if why := r.tally.tooLittle(o.Operations); why != "" {
			t.Fatalf("history %d of %d operations proves too little: %s. It has %v. Too few of its calls succeed to say anything about the store.", n+1, len(history), why, r.tally)
		}
		for _, call := range history {
			sum.note(call)
		}
		sum.happened += history.happened()
	}
	t.Logf("%d histories of %d clients are linearizable: %v", o.Histories, o.Clients, sum)
}

// linRun records one history.
type linRun struct {
	ctx     context.Context
	handles []store.Store
	journal string
	batches bool // some appends write a cell too

	clock   atomic.Int64 // orders calls and returns of all clients
	latency atomic.Int64 // of the last accepted append, in nanoseconds

	mu      sync.Mutex
	taken   int // operations that clients have begun
	history linHistory
	tally   tally
	failure error // the first
}

func (r *linRun) run(clients, operations int) (linHistory, error) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for id := range clients {
		wg.Go(func() {
			<-start
			c := &linClient{linRun: r, id: id}
			for r.take(operations) && c.operation() {
				runtime.Gosched() // lets the others in where calls never wait
			}
		})
	}
	close(start)
	wg.Wait()
	if r.failure == nil {
		r.settle()
	}
	return r.history, r.failure
}

// take reports whether a client shall do another of n operations. Where luck
// left a history with too little of something, there may be more.
func (r *linRun) take(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken++
	return r.taken <= n || r.taken <= 4*n && r.tally.tooLittle(n) != ""
}

// settle ends a history so that its open outcomes are decided: once an append
// after all the open ones is accepted, none of them can happen any more, and the
// reads after it see all that did.
func (r *linRun) settle() {
	c := &linClient{linRun: r, id: -1}
	var highest uint64
	for _, call := range r.history {
		if !call.read && call.outcome == undecided {
			highest = max(highest, call.after)
		}
	}
	for range 100 {
		if !c.read(r.handles[0]) {
			return
		}
		call := c.append(r.ctx, r.handles[0], c.believed, 1)
		if r.keep(call); call.outcome == accepted && call.last > highest {
			for _, s := range r.handles {
				c.read(s)
			}
			r.compareCells()
			return
		}
	}
	r.fail(errors.New("with no other writer left, 100 appends at the end that was just read did not succeed: conflicts may be spurious, but not all of them"))
}

// compareCells demands that the cell of a batch is there if its entries are.
func (r *linRun) compareCells() {
	there := r.history.final()
	for _, call := range r.history {
		if call.cell == "" {
			continue
		}
		_, err := r.handles[1].Get(r.ctx, call.cell)
		for errors.Is(err, store.ErrUnavailable) && r.ctx.Err() == nil { // as in read
			time.Sleep(10 * time.Millisecond)
			_, err = r.handles[1].Get(r.ctx, call.cell)
		}
		if missing := errors.Is(err, store.ErrNotFound); err != nil && !missing || missing == there[call.entries[0]] {
			r.fail(fmt.Errorf("%v: Get of the cell that came with it = %v, want a batch as a whole or not at all", call, err))
		}
	}
}

func (r *linRun) keep(call linCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, call)
	r.tally.note(call)
}

func (r *linRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}

// linClient is one client. Any of its calls may go through either handle.
type linClient struct {
	*linRun
	id       int
	made     int    // appends so far, to tell entries apart
	believed uint64 // where it believes the journal to end
	doubts   bool   // it has reason to read before it appends again
}

// operation does one operation and reports whether to go on.
func (c *linClient) operation() bool {
	s := c.handles[rand.IntN(len(c.handles))]
	if dice := rand.IntN(100); dice < 15 || c.doubts && dice < 70 {
		return c.read(s)
	}
	n := 1
	if rand.IntN(3) == 0 {
		n = 2 + rand.IntN(4)
	}
	switch dice := rand.IntN(100); {
	case dice < 10 && c.believed > 0:
		c.keep(c.append(c.ctx, s, uint64(rand.Int64N(int64(c.believed))), n))
	case dice < 14:
		c.keep(c.append(c.ctx, s, c.believed+1+uint64(rand.IntN(3)), n))
	case dice < 30:
		call := c.append(c.ctx, s, c.believed, n)
		call.outcome, call.last, call.forgotten = undecided, 0, true
		c.keep(call)
		c.doubts = true
	case dice < 50:
		ctx, stop := c.interrupted()
		c.believe(c.append(ctx, s, c.believed, n))
		stop()
	default:
		c.believe(c.append(c.ctx, s, c.believed, n))
	}
	return true
}

// interrupted returns a context that is cancelled while an append runs. For
// stores that wait, that is some moment of about as long as appends take; for
// those too quick for a timer, it is when the store looks at the context for
// the n-th time.
func (c *linClient) interrupted() (context.Context, func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	if rand.IntN(2) == 0 {
		return &glimpsed{Context: ctx, cancel: cancel, looks: rand.Int32N(3)}, cancel
	}
	timer := time.AfterFunc(time.Duration(rand.Int64N(1+c.latency.Load()*5/4)), cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// glimpsed is a context that is cancelled by the look after looks others.
type glimpsed struct {
	context.Context
	cancel func()
	mu     sync.Mutex
	looks  int32
}

func (g *glimpsed) glimpse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.looks--; g.looks < 0 {
		g.cancel()
	}
}

// Done implements context.Context.
func (g *glimpsed) Done() <-chan struct{} {
	g.glimpse()
	return g.Context.Done()
}

// Err implements context.Context.
func (g *glimpsed) Err() error {
	g.glimpse()
	return g.Context.Err()
}

func (c *linClient) believe(call linCall) {
	c.keep(call)
	if call.outcome == accepted {
		c.believed = call.last
	} else {
		c.doubts = true
	}
}

func (c *linClient) append(ctx context.Context, s store.Store, after uint64, n int) linCall {
	call := linCall{client: c.id, after: after}
	c.made++
	var entries [][]byte
	for i := range n {
		e := fmt.Sprintf("client %d append %d entry %d", c.id, c.made, i)
		call.entries = append(call.entries, e)
		entries = append(entries, []byte(e))
	}
	write := func() (uint64, error) { return s.Append(ctx, c.journal, after, entries...) }
	if c.batches && rand.IntN(2) == 0 {
		call.cell = fmt.Sprintf("%s/%d/%d", c.journal, c.id, c.made)
		cells := []store.Write{{Key: call.cell, Value: entries[0]}}
		write = func() (uint64, error) {
			return s.(store.Batcher).AppendBatch(ctx, store.Batch{Journal: c.journal, After: after, Entries: entries, Cells: cells})
		}
	}
	began := time.Now()
	call.call = c.clock.Add(1)
	last, err := write()
	call.ret = c.clock.Add(1)
	switch {
	case err == nil:
		c.latency.Store(int64(time.Since(began)))
		call.outcome, call.last = accepted, last
	case errors.Is(err, store.ErrConflict):
		call.outcome = refused
	default:
		call.outcome = undecided
	}
	return call
}

// read reads the whole journal and reports whether that went well. A read that an
// engine was not available for says nothing, and is made again.
func (c *linClient) read(s store.Store) bool {
	call := linCall{client: c.id, read: true}
	call.call = c.clock.Add(1)
	for e, err := range s.Read(c.ctx, c.journal, 0) {
		if errors.Is(err, store.ErrUnavailable) && c.ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			return c.read(s)
		}
		if err != nil {
			c.fail(fmt.Errorf("a read of the journal ended with %w, want its entries", err))
			return false
		}
		call.entries = append(call.entries, string(e.Data))
		if e.Seq != uint64(len(call.entries)) {
			c.fail(fmt.Errorf("a read yielded sequence %d as entry %d, want sequences dense from 1", e.Seq, len(call.entries)))
			return false
		}
	}
	call.ret = c.clock.Add(1)
	c.keep(call)
	c.believed, c.doubts = uint64(len(call.entries)), false
	return true
}
