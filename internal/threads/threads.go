// Package threads names, reads and changes threads: it folds their journals,
// including the past that forks share, and maintains the cells derived from them.
// It may import store and internal/journal, tree, due, blob, fault, exact, strict,
// scrub and clock.
package threads

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/store"
)

// Tenant gives access to the threads of one tenant.
type Tenant struct {
	All   *Threads
	Name  string
	Part  string  // the tenant's part of names
	Owner *string // the user whose threads it is limited to, nil for all
}

// Tenant returns the threads of a tenant.
func (c *Threads) Tenant(tenant string) *Tenant {
	return &Tenant{All: c, Name: tenant, Part: c.tenantPart(tenant)}
}

// Threads gives access to the threads of a store.
type Threads struct {
	Store store.Store
	Log   *slog.Logger
	Said  Said          // messages of the steps that run in this process
	lease time.Duration // limits how long a late writer sweeps
	// FinishAway removes what is left in the store of an archived thread, if it is set.
	FinishAway func(context.Context, *Archived) error
	salt       []byte

	restored string // the id of the store's last restoration, see RestoredCell

	batches bool  // the store commits entries and cells together
	folds   folds // of threads without active runs
	active  folds // of threads with active runs

	mu        sync.Mutex
	unmoved   time.Time       // when the store was last seen not to have moved
	toldMoved sync.Once       // that it has
	roots     map[string]Root // of forks
	indexed   bool            // all threads are in the index

	bare   bool // see Bare
	warden atomic.Pointer[Warden]
}

// Bare is the upgrade of stores of tests that explore every order of calls. Each call
// multiplies the orders, so threads of such a store have no index, and lists read all
// summaries; and its bulk jobs are not worked on.
type Bare interface {
	Bare()
}

// IsBare reports whether a store is Bare.
func IsBare(s store.Store) bool {
	_, bare := store.As[Bare](s)
	return bare
}

// SaltCell is the key of the cell with the secret that keys the hashes in names.
const SaltCell = "perdure/salt"

// New opens the threads of a store. It returns store.ErrUnavailable if a migration
// into the store is not complete, and store.ErrKey if it is sealed.
func New(ctx context.Context, s store.Store, log *slog.Logger, lease time.Duration) (*Threads, error) {
	err := checkComplete(ctx, s)
	if err != nil {
		return nil, explainDamage(ctx, s, err)
	}
	c, err := NewCopy(ctx, s, log, lease)
	if err == nil { // a migration that began meanwhile either saw the salt or is seen here
		err = checkComplete(ctx, s)
	}
	return c, explainDamage(ctx, s, err)
}

// NewCopy is New for the migration itself, which fills an incomplete store.
func NewCopy(ctx context.Context, s store.Store, log *slog.Logger, lease time.Duration) (*Threads, error) {
	salt, err := Secret(ctx, s, SaltCell, sha256.Size)
	if err != nil {
		return nil, err
	}
	restored, err := ReadRestored(ctx, s)
	return &Threads{Store: s, Log: log, folds: folds{most: maxFolds}, active: folds{most: maxActive}, lease: lease, salt: salt, restored: restored.ID, batches: store.BatcherOf(s) != nil, bare: IsBare(s), roots: map[string]Root{}}, err
}

// Logged reports whether err comes from a store whose failures the runtime logs
// itself: once when they begin and once when they end.
func (c *Threads) Logged(err error) bool {
	_, told := store.As[store.Notifier](c.Store)
	return told && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull))
}

// Warn logs an error of work that no caller is waiting for, unless it is Logged.
func (c *Threads) Warn(doing string, err error, args ...any) {
	if !c.Logged(err) {
		c.Log.Warn(doing, append(args, "error", err)...)
	}
}

// Remove deletes a cell. If only is not "", it leaves a cell with another value
// alone.
func (c *Threads) Remove(ctx context.Context, key, only string) error {
	for {
		cell, err := store.Derived(c.Store).Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) || err == nil && only != "" && string(cell.Value) != only {
			return nil
		}
		if err == nil {
			err = c.Store.Delete(ctx, key, cell.Version)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Ensure returns the value of a cell, which it creates with the value fresh if it
// does not exist.
func (c *Threads) Ensure(ctx context.Context, key string, fresh []byte) ([]byte, error) {
	held := fresh
	_, err := store.Update(ctx, c.Store, key, func(old store.Cell) ([]byte, error) {
		if old.Version != "" {
			held = old.Value
			return nil, ErrNothing
		}
		return fresh, nil
	})
	if err == nil || errors.Is(err, ErrNothing) {
		return held, nil
	}
	// The write may have succeeded and its answer been lost.
	if cell, getErr := c.Store.Get(ctx, key); getErr == nil {
		return cell.Value, nil
	}
	return nil, err
}

// Seam lets other packages of this module reach the threads behind a runtime. A
// *perdure.Runtime embeds one; its method is unexported, so only Behind can call
// it.
type Seam struct{ tenant *Tenant }

// NewSeam returns the seam to the threads of a tenant.
func NewSeam(t *Tenant) Seam { return Seam{t} }

func (s Seam) behind() *Tenant { return s.tenant }

// Behind returns the threads behind a *perdure.Runtime, nil for anything else.
func Behind(runtime any) *Tenant {
	if s, ok := runtime.(interface{ behind() *Tenant }); ok {
		return s.behind()
	}
	return nil
}

// Scale weighs what a caller makes the kernel hold in memory. An error from it
// ends the caller's operation.
type Scale interface {
	// Value is called for each value that is loaded, with its size, and before
	// a blob is read.
	Value(ctx context.Context, bytes int64) error
	// Fold is called while a thread is folded, with the bytes of the entries
	// so far. One fold is released before the next begins.
	Fold(ctx context.Context, bytes int64) error
}

type scaleKey struct{}

// WithScale returns a context whose reads are weighed by s.
func WithScale(ctx context.Context, s Scale) context.Context {
	return context.WithValue(ctx, scaleKey{}, s)
}

// scaleOf returns the scale of a context, one that allows everything if there is
// none.
func scaleOf(ctx context.Context) Scale {
	if s, ok := ctx.Value(scaleKey{}).(Scale); ok {
		return s
	}
	return noScale{}
}

type noScale struct{}

func (noScale) Value(context.Context, int64) error { return nil }
func (noScale) Fold(context.Context, int64) error  { return nil }
