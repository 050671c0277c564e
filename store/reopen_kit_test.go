package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// disk is a memory that outlives its handles. While it is full, each write
// fails and poisons the handle that made it.
type disk struct {
	t      *testing.T
	name   string
	keeper *memstore.Store // keeps the memory when no other handle does

	mu      sync.Mutex
	full    bool
	broken  error         // what opening answers
	hold    chan struct{} // if not nil, opening waits for it, or for its context
	gate    func()        // called by each write before it begins
	opens   []time.Time
	handles []*brittle
	opened  func(*brittle) store.Store // what a handle is wrapped in, nil for nothing
}

func newDisk(t *testing.T) *disk {
	d := &disk{t: t, name: fmt.Sprintf("%s %p", t.Name(), t)}
	d.keeper = memstore.Open(d.name)
	t.Cleanup(func() { d.keeper.Close() })
	return d
}

func (d *disk) set(full bool, broken error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.broken = full, broken
}

func (d *disk) open(ctx context.Context) (store.Store, error) {
	d.mu.Lock()
	d.opens = append(d.opens, time.Now())
	hold := d.hold
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return nil, d.broken
	}
	b := &brittle{Store: memstore.Open(d.name), disk: d}
	d.handles = append(d.handles, b)
	if d.opened != nil {
		return d.opened(b), nil
	}
	return b, nil
}

// reopen returns a store on the disk, and closes it with the test.
func (d *disk) reopen() store.Store {
	d.t.Helper()
	s, err := store.Reopen(d.t.Context(), d.open)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { s.Close() })
	return s
}

func (d *disk) tries() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.opens)
}

// live returns how many handles are open.
func (d *disk) live() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.handles {
		if !b.closed {
			n++
		}
	}
	return n
}

// brittle is a handle on a disk. Reads go on when it is poisoned.
type brittle struct {
	*memstore.Store
	disk     *disk
	poisoned bool // guarded by the disk's lock, like what follows
	closed   bool
}

var errSpace = errors.New("no space on this device")

// write returns the error of a write, nil if it may be made.
func (b *brittle) write() error {
	if b.disk.gate != nil {
		b.disk.gate()
	}
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	if b.closed {
		b.disk.t.Error("a write on a handle that was closed")
	}
	if b.disk.full {
		b.poisoned = true
	}
	if b.poisoned {
		return fmt.Errorf("%w: %w: %w", store.ErrPoisoned, store.ErrFull, errSpace)
	}
	return nil
}

func (b *brittle) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := b.write(); err != nil {
		return 0, err
	}
	return b.Store.Append(ctx, journal, after, entries...)
}

func (b *brittle) Drop(ctx context.Context, journal string) error {
	if err := b.write(); err != nil {
		return err
	}
	return b.Store.Drop(ctx, journal)
}

func (b *brittle) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := b.write(); err != nil {
		return "", err
	}
	return b.Store.Put(ctx, key, value, prev)
}

func (b *brittle) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := b.write(); err != nil {
		return err
	}
	return b.Store.Delete(ctx, key, prev)
}

func (b *brittle) Close() error {
	b.disk.mu.Lock()
	b.closed = true
	b.disk.mu.Unlock()
	return b.Store.Close()
}

// unavailable demands an error that says that the call is to be tried again,
// and nothing else about it.
func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("%s = %v, want ErrUnavailable", what, err)
	}
	for _, hopeless := range []error{
		store.ErrPoisoned, store.ErrConflict, store.ErrNotFound, store.ErrDropped, store.ErrTooLarge, store.ErrInvalid,
		store.ErrClosed, store.ErrUnknown, store.ErrCorrupt, store.ErrKey, store.ErrNewer,
	} {
		if errors.Is(err, hopeless) {
			t.Errorf("%s = %v, which matches %q; it must not be taken for the call's own", what, err, hopeless)
		}
	}
}
