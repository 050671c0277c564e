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

// Lease is a worker's sign of life. It is safe for concurrent use.
type Lease struct {
	s      store.Store
	id     string
	ttl    time.Duration
	holder string
	host   string
	info   json.RawMessage

	stop context.CancelFunc // ends renewing
	done chan struct{}      // closed when renewing has ended
	lost chan struct{}      // closed when the cell is gone or not ours

	mu      sync.Mutex
	version store.Version // of our last confirmed write; "" before the first
	first   store.Version // of the first, which is synced
	n       uint64        // its counter
	sent    uint64        // the highest counter ever sent
	start   time.Time     // just before the last successful renewal was sent
	ended   bool          // lost or released
	gone    bool          // the cell is no longer ours or no longer exists
	err     error         // of the last renewal
}

// Hold writes a lease for the worker called id, which must be new, or returns
// ErrTaken. The lease is renewed every quarter of ttl until Release, until it
// is lost, or until ctx ends; in the last case its cell stays and the lease
// lapses, unless Release removes it.
//
// Hold retries uncertain writes until ctx ends. After an error it removes what it
// may have written, if the store lets it; otherwise nobody renews that. If the store was slow, the lease may already have
// lapsed when Hold returns, until the next renewal.
//
// Info describes the worker to people; it may be nil. Every renewal writes it
// again, so it should be short.
func Hold(ctx context.Context, s store.Store, id string, ttl time.Duration, info json.RawMessage) (*Lease, error) {
	if id == "" || ttl < MinTTL || ttl > MaxTTL {
		return nil, fmt.Errorf("lease: hold %q for %v: %w: it needs an id and a ttl from %v to %v", id, ttl, store.ErrInvalid, MinTTL, MaxTTL)
	}
	host, _ := os.Hostname() // only for display
	l := &Lease{
		s: s, id: id, ttl: ttl, holder: rand.Text(), host: host, info: info,
		done: make(chan struct{}), lost: make(chan struct{}),
		sent: 1, start: time.Now(),
	}
	if err := l.create(ctx); err != nil {
		l.retract(ctx)
		return nil, fmt.Errorf("lease: hold %q: %w", id, err)
	}
	ctx, l.stop = context.WithCancel(ctx)
	go l.keep(ctx)
	return l, nil
}

// create writes the cell for the first time. Each attempt writes the same
// counter, so if two succeed, one of them late, the second is not taken for a
// renewal.
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
		// An earlier attempt may be the one that succeeded, so the time counts
		// from the first.
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

// retract removes the cell if an attempt to create it succeeded that looked as if it
// had not, so that nobody waits for a worker that does not exist.
func (l *Lease) retract(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if cell, err := l.s.Get(ctx, Prefix+l.id); err == nil && parse(cell).Holder == l.holder {
		_ = l.s.Delete(ctx, Prefix+l.id, cell.Version)
	}
}

// Valid reports whether the worker can rely on not being judged dead. It is
// true for three quarters of the ttl, counted from just before the last
// successful renewal was sent, and never after the lease was lost or released.
func (l *Lease) Valid() bool { return l.Left() > 0 }

// Left returns how long the lease stays valid without another renewal.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0
	}
	return max(0, l.ttl-l.ttl/4-time.Since(l.start))
}

// Lost is closed when the lease was taken away: someone else removed or wrote
// its cell. It is then never written again. A failing store does not lose the
// lease.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns the error of the last renewal, nil if it succeeded.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Release ends the lease: it is no longer valid or renewed, and its cell is
// removed, so that nobody has to wait for the ttl to pass. Call it again after
// an error; otherwise the cell stays until somebody buries it. It does not
// close Lost.
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
			// An interrupted renewal may have changed the cell.
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

// Prefix is the prefix of the keys of all leases, to list or watch them; the
// worker's id follows it.
const Prefix = "worker/"

const (
	// MinTTL is the shortest ttl that Hold accepts.
	MinTTL = time.Millisecond

	// MaxTTL is the longest ttl that Hold accepts, and how long a watcher waits
	// if the ttl in a cell is missing, negative or longer.
	MaxTTL = 10 * time.Minute
)

var (
	// ErrTaken means that a lease with this worker's id exists. An id is for
	// one incarnation of a worker; use a new one.
	ErrTaken = errors.New("lease: id is taken")

	// ErrAlive means that the worker's lease has changed since it was judged,
	// or that this watcher has not judged it dead.
	ErrAlive = errors.New("lease: worker is not known to be dead")
)

type value struct {
	N      uint64 `json:"n"`    // grows with each write
	TTL    int64  `json:"ttl"`  // in microseconds
	Host   string `json:"host"` // for people
	Holder string `json:"key"`  // random, so that a holder knows its own writes

	Info json.RawMessage `json:"info,omitempty"` // see Hold
}

func (v value) encode() ([]byte, error) { return json.Marshal(v) }

// parse decodes a cell. It returns the zero value if the cell is not a lease.
func parse(cell store.Cell) value {
	var v value
	if json.Unmarshal(cell.Value, &v) != nil {
		return value{}
	}
	return v
}

// patience returns how long a watcher waits for the cell to change.
func (v value) patience() time.Duration {
	if v.TTL <= 0 || v.TTL > MaxTTL.Microseconds() {
		return MaxTTL
	}
	return time.Duration(v.TTL) * time.Microsecond
}

// hopeless reports whether a call that returned err would return it again.
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
			// Sooner than usual, for several attempts before the lease lapses.
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

// renew writes the cell once, or finds that it is no longer ours.
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
		// This very renewal succeeded, and only its response was lost.
		l.confirm("", n, sent)
		return false, nil
	}
	return false, err
}

// try bounds the time of a renewal: a later response leaves too little of the
// ttl, and a call that hangs must not block the next one.
func (l *Lease) try(ctx context.Context, n uint64) (store.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/2)
	defer cancel()
	return l.put(ctx, n)
}

// put writes counter n over our last known write. Only the first write is
// synced.
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

// confirm records that counter n, sent at the given time, was written. An empty
// version keeps the one that inspect found.
func (l *Lease) confirm(version store.Version, n uint64, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version != "" {
		l.version = version
	}
	if n == 1 {
		l.first = version
	}
	l.n, l.start = n, sent
}

// known returns the counter of our last confirmed write.
func (l *Lease) known() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

type outcome int

const (
	unchanged outcome = iota // the cell is our last known write
	moved                    // it is another write of ours, now confirmed
	taken                    // it is gone or not ours
)

// inspect finds out what became of the cell after a write that was refused or
// whose outcome is unknown. A conflict alone proves nothing: the store may
// refuse spuriously, or an earlier write of ours may have arrived late.
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
	v := parse(cell)
	// The first write, though later ones are known, is one that arrived late, after
	// the cell was buried: the worker was dead in between. Other earlier writes are
	// what a crash of the store has kept, since renewals are not synced.
	late := v.N == 1 && l.n > 0 && cell.Version != l.first
	if v.Holder != l.holder || late {
		return taken, nil
	}
	l.version, l.n = cell.Version, v.N
	if v.N == 1 {
		l.first = cell.Version
	}
	return moved, nil
}
