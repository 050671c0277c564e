package lease

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/store"
)

// Lease is the sign of life of a worker. It is safe for concurrent use.
type Lease struct {
	s      store.Store
	id     string
	ttl    time.Duration
	holder string
	host   string
	info   json.RawMessage

	stop context.CancelFunc // ends renewing
	done chan struct{}      // closed when renewing has ended
	lost chan struct{}      // closed when the cell is another's or gone

	mu      sync.Mutex
	version store.Version // of our last write that is known; "" before the first
	n       uint64        // its counter
	sent    uint64        // the highest counter that was ever sent
	start   time.Time     // the moment before the last renewal that succeeded was sent
	ended   bool          // lost or released
	gone    bool          // there is no cell of ours any more
	err     error         // of the last renewal
}

// Hold writes a lease for the worker called id, which must be new: ErrTaken if
// there is one already. The lease is renewed every quarter of ttl until
// Release, until it is lost, or until ctx ends; in the last case its cell stays
// and the lease lapses, unless Release removes it.
//
// Hold repeats what the store leaves open, until ctx ends. After an error a
// cell may be left that nobody renews. If the store was slow, the lease may
// have lapsed already when Hold returns, until the next renewal.
//
// Info is what the worker says of itself, for people; nil for nothing. It is
// written anew with each renewal, so it should be short.
func Hold(ctx context.Context, s store.Store, id string, ttl time.Duration, info json.RawMessage) (*Lease, error) {
	if id == "" || ttl < MinTTL || ttl > MaxTTL {
		return nil, fmt.Errorf("lease: hold %q for %v: %w: it needs an id and a ttl from %v to %v", id, ttl, store.ErrInvalid, MinTTL, MaxTTL)
	}
	host, _ := os.Hostname() // without it people see less, nothing else
	l := &Lease{
		s: s, id: id, ttl: ttl, holder: rand.Text(), host: host, info: info,
		done: make(chan struct{}), lost: make(chan struct{}),
		sent: 1, start: time.Now(),
	}
	if err := l.create(ctx); err != nil {
		return nil, fmt.Errorf("lease: hold %q: %w", id, err)
	}
	ctx, l.stop = context.WithCancel(ctx)
	go l.keep(ctx)
	return l, nil
}

// create writes the cell for the first time. Each try writes the same counter:
// of two that both happen, one late, the other is not taken for a renewal.
func (l *Lease) create(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		sent := time.Now()
		version, err := l.put(ctx, 1)
		if err == nil {
			l.confirm(version, 1, sent)
			return nil
		}
		if hopeless(err) {
			return err
		}
		// A try before this one may be the one that worked, so the time
		// counts from the first.
		switch found, lookErr := l.inspect(ctx); {
		case lookErr != nil && hopeless(lookErr):
			return lookErr
		case lookErr != nil, found == unchanged:
		case found == moved:
			return nil
		case found == taken:
			return ErrTaken
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// Valid reports whether the worker may believe that nobody takes it for dead.
// It is true for three quarters of the ttl, counted from before the last
// renewal that succeeded was sent, and never after the lease was lost or
// released.
func (l *Lease) Valid() bool { return l.Left() > 0 }

// Left returns how long the lease is valid without a further renewal.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0
	}
	return max(0, l.ttl-l.ttl/4-time.Since(l.start))
}

// Lost is closed when the lease was taken away: its cell was removed or written
// by another. It is then not written again. A store that fails is not loss.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns why the last renewal failed, nil if it did not.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Release ends the lease: it is no longer valid or renewed, and its cell is
// removed, so that nobody has to wait for the worker's death. It can be
// repeated, and is, if it returned an error; without that the cell stays until
// somebody buries it. Lost is not closed by it.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.stop()
	select {
	case <-l.done:
	case <-ctx.Done():
		return fmt.Errorf("lease: release %q: %w", l.id, ctx.Err())
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		l.mu.Lock()
		version, gone := l.version, l.gone
		l.mu.Unlock()
		if gone {
			return nil
		}
		err := l.s.Delete(ctx, Prefix+l.id, version)
		found := taken
		if err != nil && !hopeless(err) {
			// A renewal that was cut off may have moved the cell.
			var lookErr error
			found, lookErr = l.inspect(ctx)
			err = errors.Join(err, lookErr)
			if lookErr == nil && found == taken {
				err = nil
			}
		}
		switch {
		case err == nil:
			l.mu.Lock()
			l.gone = true
			l.mu.Unlock()
			return nil
		case hopeless(err):
			return fmt.Errorf("lease: release %q: %w", l.id, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lease: release %q: %w", l.id, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// Prefix is what the keys of all leases begin with, to list or watch them; the
// worker's id follows.
const Prefix = "worker/"

const (
	// MinTTL is the shortest ttl that Hold accepts.
	MinTTL = time.Millisecond

	// MaxTTL is the longest ttl that Hold accepts, and what a watcher waits
	// for where a cell holds none, a negative or a longer one.
	MaxTTL = 10 * time.Minute
)

var (
	// ErrTaken: another holds a lease under this worker's id. Ids are for
	// one incarnation of a worker; use a new one.
	ErrTaken = errors.New("lease: id is taken")

	// ErrAlive: the worker's lease has moved since it was judged, or was
	// not judged dead by this watcher.
	ErrAlive = errors.New("lease: worker is not known to be dead")
)

type value struct {
	N      uint64 `json:"n"`    // grows with each write
	TTL    int64  `json:"ttl"`  // in microseconds
	Host   string `json:"host"` // for people
	Holder string `json:"key"`  // random, so that a holder knows its own writes

	Info json.RawMessage `json:"info,omitempty"` // what else the worker says of itself
}

func (v value) encode() ([]byte, error) { return json.Marshal(v) }

// parse returns what a cell holds, the zero value if it is not a lease.
func parse(cell store.Cell) value {
	var v value
	if json.Unmarshal(cell.Value, &v) != nil {
		return value{}
	}
	return v
}

// patience returns how long a watcher waits for the cell to move.
func (v value) patience() time.Duration {
	if v.TTL <= 0 || v.TTL > MaxTTL.Microseconds() {
		return MaxTTL
	}
	return time.Duration(v.TTL) * time.Microsecond
}

// hopeless reports whether a call that answered err would do so again.
func hopeless(err error) bool {
	final := []error{store.ErrTooLarge, store.ErrInvalid, store.ErrClosed, store.ErrCorrupt, store.ErrKey, store.ErrNewer, store.ErrPoisoned}
	return slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) })
}

// keep renews the lease until ctx ends or it is lost.
func (l *Lease) keep(ctx context.Context) {
	defer close(l.done)
	next := bell.New(l.untilRenewal())
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if ctx.Err() != nil {
			return
		}
		lost, err := l.renew(ctx)
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		if lost {
			return
		}
		if err != nil {
			// Sooner than usual: there is time for several tries before it lapses.
			next.Reset(l.ttl / 16)
			continue
		}
		next.Reset(l.untilRenewal())
	}
}

// untilRenewal counts from when the last renewal was sent, so that a slow store
// does not make renewals rarer.
func (l *Lease) untilRenewal() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl/4 - time.Since(l.start)
}

// renew moves the cell once, or finds that it is no longer ours.
func (l *Lease) renew(ctx context.Context) (lost bool, err error) {
	l.mu.Lock()
	l.sent++
	n := l.sent
	l.mu.Unlock()

	sent := time.Now()
	version, err := l.try(ctx, n)
	if err == nil {
		l.confirm(version, n, sent)
		return false, nil
	}
	lookCtx, cancel := context.WithTimeout(ctx, l.ttl/4)
	defer cancel()
	found, lookErr := l.inspect(lookCtx)
	switch {
	case lookErr != nil:
		return false, errors.Join(err, lookErr)
	case found == taken:
		l.mu.Lock()
		l.ended, l.gone = true, true
		l.mu.Unlock()
		close(l.lost)
		return true, err
	case found == moved && l.known() == n:
		// This very renewal worked, and only its answer was lost.
		l.confirm("", n, sent)
		return false, nil
	}
	return false, err
}

// try bounds a renewal: an answer that comes later leaves too little of the
// ttl, and a call that hangs must not keep the next one from being made.
func (l *Lease) try(ctx context.Context, n uint64) (store.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/2)
	defer cancel()
	return l.put(ctx, n)
}

// put writes counter n over our last known write, and syncs the first.
func (l *Lease) put(ctx context.Context, n uint64) (store.Version, error) {
	// The recorded ttl is rounded up: a watcher may only wait longer.
	micros := (l.ttl + time.Microsecond - 1) / time.Microsecond
	data, err := value{N: n, TTL: int64(micros), Host: l.host, Holder: l.holder, Info: l.info}.encode()
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	prev := l.version
	l.mu.Unlock()
	if n == 1 {
		return l.s.Put(ctx, Prefix+l.id, data, prev)
	}
	return store.PutUnsynced(ctx, l.s, Prefix+l.id, data, prev)
}

// confirm records that counter n, sent at the given moment, was written. An
// empty version leaves the one that inspect has found.
func (l *Lease) confirm(version store.Version, n uint64, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version != "" {
		l.version = version
	}
	l.n, l.start = n, sent
}

// known returns the counter of our last write that is known.
func (l *Lease) known() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

type outcome int

const (
	unchanged outcome = iota // the cell is our last known write
	moved                    // it is a later write of ours, which is known now
	taken                    // it is gone or another's
)

// inspect finds out what became of the cell after a write that was refused or left
// open. A conflict alone says nothing: the store may refuse for no reason, or
// an earlier write of ours may have happened late.
func (l *Lease) inspect(ctx context.Context) (outcome, error) {
	cell, err := l.s.Get(ctx, Prefix+l.id)
	missing := errors.Is(err, store.ErrNotFound)
	if err != nil && !missing {
		return unchanged, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if cell.Version == l.version && (!missing || l.version == "") {
		return unchanged, nil
	}
	if missing {
		return taken, nil
	}
	// A counter that is not above the known one is a first write that came
	// late, after the cell was buried: the worker was dead in between.
	if v := parse(cell); v.Holder == l.holder && v.N > l.n {
		l.version, l.n = cell.Version, v.N
		return moved, nil
	}
	return taken, nil
}
