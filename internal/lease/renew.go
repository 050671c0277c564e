package lease

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/store"
)

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
			// Sooner than usual: there is time for several tries before
			// the lease lapses.
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
	found, lookErr := l.look(lookCtx)
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

// put writes counter n over our last known write.
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
	return l.s.Put(ctx, Prefix+l.id, data, prev)
}

// confirm records that counter n, sent at the given moment, was written. An
// empty version leaves the one that look has found.
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

// outcome is what look finds.
type outcome int

const (
	unchanged outcome = iota // the cell is our last known write
	moved                    // it is a later write of ours, which is known now
	taken                    // it is gone or another's
)

// look finds out what became of the cell after a write that was refused or left
// open. A conflict alone says nothing: the store may refuse for no reason, or
// an earlier write of ours may have happened late.
func (l *Lease) look(ctx context.Context) (outcome, error) {
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
