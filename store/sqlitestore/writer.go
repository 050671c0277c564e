package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// A writer commits the writes of a handle, many in one transaction. There is
// no goroutine for it: whichever caller gets the lead commits for all that
// wait, so that a single writer commits its own write where it stands.
type writer struct {
	s    *Store
	lead chan struct{} // holds one: who put it there may use what follows

	conn     *conn
	unsynced bool // the next commit need not wait for the disk
	loose    bool // commits of conn may not, see setSync
	known    map[string]*known
	written  time.Time // when the last batch was
	met      time.Time // when another process last had the lock
	placed   time.Time // when the file was last seen at its path
	due      int       // how many frames the WAL has at the next checkpoint
	batch    []*request
	clean    int64 // value of erased when the WAL was last emptied

	waits  atomic.Bool // for the database's lock
	poison atomic.Pointer[error]
	erased atomic.Int64 // writes that left bytes to be erased from the WAL

	mu    sync.Mutex // guards queue, and later
	queue []*request
	later *time.Timer // see eraseLater
}

// A request is one write.
type request struct {
	ctx    context.Context
	name   string // of the journal or cell
	cell   bool
	erases bool
	cells  []string        // that a batch wrote beside its journal
	made   []store.Version // of the cells of a batch after it
	size   int

	unsynced bool // it may be lost with the power

	// apply checks and writes, in a transaction that may hold other requests
	// before it and be repeated, also without them. See refused for its errors.
	apply func(*conn) error

	since time.Time
	done  chan struct{} // closed when err is set
	err   error
}

// undo is a refusal that comes after the first write of a request.
type undo struct{ error }

// errAgain says that a request has to be applied anew, after its first write.
var errAgain = errors.New("sqlitestore: apply again")

// known is what never changes about a journal until it is dropped.
type known struct {
	id   int64
	name []byte
	sum  int64 // of the name
}

// maxKnown bounds the journals that a writer remembers.
const maxKnown = 1024

func (w *writer) remember(journal string, k *known) {
	if len(w.known) >= maxKnown {
		for any := range w.known {
			delete(w.known, any)
			break
		}
	}
	w.known[journal] = k
}

// The bounds of one transaction.
const (
	maxBatch      = 256
	maxBatchBytes = 4 << 20
)

const (
	metLately = 50 * time.Millisecond   // processes that write meet more often
	wayTime   = mostPause + mostPause/5 // whoever waits tries meanwhile
)

func newWriter(s *Store, conn *conn) *writer {
	return &writer{s: s, conn: conn, lead: make(chan struct{}, 1), known: map[string]*known{}, due: checkpointFrames}
}

// do writes r and returns its outcome. Until a leader takes r, the end of its
// context or of the store withdraws it; from then on it is a matter of one
// commit.
func (w *writer) do(r *request) error {
	r.since = time.Now()
	r.done = make(chan struct{})
	w.mu.Lock()
	w.queue = append(w.queue, r)
	w.mu.Unlock()

	var why error
	select {
	case w.lead <- struct{}{}:
		w.leadFor(r)
		<-w.lead
		return r.err
	case <-r.done:
		return r.err
	case <-r.ctx.Done():
		why = r.ctx.Err()
	case <-w.s.closing:
		why = store.ErrClosed
	}
	if w.withdraw(r) {
		return why
	}
	<-r.done
	return r.err
}

// withdraw reports whether r was still in the queue, and takes it out.
func (w *writer) withdraw(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, q := range w.queue {
		if q == r {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			return true
		}
	}
	return false
}

// leadFor commits batches until r is done. It has the lead.
func (w *writer) leadFor(r *request) {
	for {
		select {
		case <-r.done:
			return
		default:
		}
		w.giveWay(r.ctx)
		// The batch is taken when the database's lock is there, so that
		// whoever waits for another process can still withdraw.
		w.unsynced = w.allUnsynced()
		if err := w.begin(r.ctx, r.since); err != nil {
			w.withdraw(r)
			r.err = err
			return
		}
		w.commit(w.take())
		clear(w.batch)
		w.checkpoint()
	}
}

// giveWay lets another process write first if one was met lately. A handle that
// begins again at once is faster than one that waits for the lock, which would
// starve, and finds only the first of its own next requests: the others come
// while it gives way, and each commit costs a sync.
func (w *writer) giveWay(ctx context.Context) {
	if time.Since(w.met) > metLately {
		return
	}
	if left := wayTime - time.Since(w.written); left > 0 {
		_ = w.s.pause(ctx, left) // a request that was cancelled meanwhile is not applied
	}
}

// allUnsynced reports whether all that waits may be lost with the power.
func (w *writer) allUnsynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.queue, func(r *request) bool { return !r.unsynced })
}

// setSync makes the next commit wait for the disk, or not. One that does makes
// durable those before it that did not: they are before it in the WAL, which is
// synced as a whole.
func (w *writer) setSync() error {
	if w.unsynced == w.loose || w.s.opts.Synchronous != Full {
		return nil
	}
	mode, want := "FULL", "2"
	if w.unsynced {
		mode, want = "NORMAL", "1"
	}
	w.loose = true // unless the opposite is known
	if _, err := w.conn.pragma("synchronous=" + mode); err != nil {
		return err
	}
	got, err := w.conn.pragma("synchronous")
	if err == nil && got != want {
		err = fmt.Errorf("PRAGMA synchronous=%s had no effect, the value is still %q", mode, got)
	}
	if err == nil {
		w.loose = w.unsynced
	}
	return err
}

// begin starts a transaction that may write.
func (w *writer) begin(ctx context.Context, since time.Time) error {
	w.checkPlace()
	if p := w.poison.Load(); p != nil {
		return *p
	}
	w.waits.Store(true)
	tries := 0
	err := w.s.retry(ctx, since, func() error {
		if tries++; tries == 2 {
			w.met = time.Now()
		}
		if err := w.setSync(); err != nil {
			return err
		}
		return w.conn.exec("BEGIN IMMEDIATE")
	})
	w.waits.Store(false)
	switch {
	case err == nil, errors.Is(err, store.ErrClosed), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case errors.Is(err, store.ErrBusy):
		return fmt.Errorf("%w; nothing was written, so try again", err)
	case isDamage(err):
		return &store.CorruptError{Where: w.s.file, Reason: reason(err)}
	}
	return w.s.failed("begin a transaction on", err)
}

// placePace is how often writers look whether the file is still at its path.
const placePace = 100 * time.Millisecond

// checkPlace poisons the handle if the file was removed, moved or replaced: no
// one would find there what is written from now on. It has the lead.
func (w *writer) checkPlace() {
	now := time.Now()
	if now.Sub(w.placed) < placePace {
		return
	}
	w.placed = now
	info, err := os.Stat(w.s.file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, w.s.place) {
		w.poisoned("write to", errors.New("the file was removed, moved or replaced while it was open"))
	}
}

// take removes the next batch from the queue, of unsynced requests only if that
// is how it will be committed.
func (w *writer) take() []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, 0
	for n < len(w.queue) && n < maxBatch && (w.queue[n].unsynced || !w.unsynced) && (n == 0 || size+w.queue[n].size <= maxBatchBytes) {
		size += w.queue[n].size
		n++
	}
	w.batch = append(w.batch[:0], w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return w.batch
}

// commit writes a batch in the transaction that begin started, and tells each
// request its outcome.
func (w *writer) commit(batch []*request) {
	defer func() {
		// The driver panics where SQLite cannot go on, as without memory. Half
		// a transaction is in its hands then, and so are the locks: to die is
		// what this store survives. Whoever recovers, as net/http does, would
		// leave all writers waiting.
		if p := recover(); p != nil {
			go panic(p)
			select {}
		}
	}()
	for todo := batch; len(todo) > 0; {
		bad, err := w.apply(todo)
		if err == nil {
			if err := w.conn.commit(); err != nil {
				w.conn.rollback()
				w.fail(todo, err)
			}
			break
		}
		w.conn.rollback()
		r := todo[bad]
		switch late, ok := err.(undo); {
		case err == errAgain:
		case ok:
			r.err = late.error
		case isDamage(err), code(err) == sqlite3.CONSTRAINT:
			// Damage in the way of one request is no matter of the others,
			// and the transaction that met it is undone.
			r.err = w.s.damaged(r, err)
		default:
			w.fail(todo, err)
			w.tell(batch)
			return
		}
		if err != errAgain {
			todo = slices.Concat(todo[:bad], todo[bad+1:])
		}
		if len(todo) == 0 {
			break
		}
		if err := w.begin(context.Background(), todo[0].since); err != nil {
			for _, r := range todo {
				r.err = err
			}
			break
		}
	}
	w.tell(batch)
}

// apply applies requests. After an error the transaction has to be rolled
// back, and bad is the request that met it.
func (w *writer) apply(todo []*request) (bad int, err error) {
	for i, r := range todo {
		if r.err = r.ctx.Err(); r.err != nil {
			continue
		}
		r.err = r.apply(w.conn)
		if _, late := r.err.(undo); late || r.err != nil && !refused(r.err) {
			return i, r.err
		}
	}
	return 0, nil
}

// refused reports whether err is the answer of a request that wrote nothing.
func refused(err error) bool {
	for _, definite := range []error{store.ErrConflict, store.ErrDropped, store.ErrCorrupt, store.ErrTooLarge} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return false
}

// tell wakes whoever waits for a request of the batch or for its news.
func (w *writer) tell(batch []*request) {
	w.written = time.Now()
	for _, r := range batch {
		if r.err == nil {
			if r.erases {
				w.erased.Add(1)
			}
			w.s.Wake(r.name)
			for _, key := range r.cells {
				w.s.Wake(key)
			}
		}
		close(r.done)
	}
	w.s.peers.wake(batch)
}

// fail poisons the handle: it does not know what the disk holds. Requests
// that were refused fail too, for what refused them may be what is not there.
func (w *writer) fail(todo []*request, err error) {
	w.poisoned("write to", err)
	for _, r := range todo {
		r.err = *w.poison.Load()
	}
}

func (w *writer) poisoned(doing string, err error) {
	p := fmt.Errorf("%w: %w; close the store and open it again", store.ErrPoisoned, w.s.failed(doing, err))
	w.poison.CompareAndSwap(nil, &p)
}

// damaged locates SQLite's own report of damage at the thing that met it.
func (s *Store) damaged(r *request, err error) error {
	if r.cell {
		return &store.CorruptError{Cell: r.name, Where: s.file, Reason: reason(err)}
	}
	return s.badPages(r.name, 1, err)
}

func (s *Store) badPages(journal string, seq uint64, err error) error {
	return &store.CorruptError{Journal: journal, Seq: seq, Where: s.file, Reason: reason(err)}
}
