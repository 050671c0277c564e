// Package threads names, reads and changes threads: it folds their journals,
// with the past that forks share, and keeps the cells that follow from them. It
// may import internal/journal, tree, due, blob, fault, exact and clock, and store.
package threads

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

// Tenant holds the threads of one tenant.
type Tenant struct {
	All   *Threads
	Name  string
	Part  string  // the tenant's part of names
	Owner *string // whose threads it is limited to; nil: all
}

// Tenant returns the threads of a tenant.
func (c *Threads) Tenant(tenant string) *Tenant {
	return &Tenant{All: c, Name: tenant, Part: c.tenantPart(tenant)}
}

// Threads holds the threads of a store.
type Threads struct {
	Store store.Store
	Log   *slog.Logger
	Said  Said          // by the steps that run in this process
	lease time.Duration // how long whoever comes too late sweeps at most
	salt  []byte

	batches bool  // the store has them: what follows from an entry goes with it
	folds   folds // without active runs
	active  folds // with some

	mu       sync.Mutex
	unmoved  time.Time         // when the store was last seen not to have moved
	roots    map[string]Root   // of forks
	unmended map[string]string // by prefix of a tenant's summaries: the damage that could not be mended
}

// SaltCell is the key of the secret with which names are hashed.
const SaltCell = "perdure/salt"

// New opens the threads of a store. It refuses one into which a migration is
// under way.
func New(ctx context.Context, s store.Store, log *slog.Logger, lease time.Duration) (*Threads, error) {
	if err := checkComplete(ctx, s); err != nil {
		return nil, err
	}
	c, err := NewCopy(ctx, s, log, lease)
	if err == nil { // a migration that has begun since sees the salt, or is seen here
		err = checkComplete(ctx, s)
	}
	return c, err
}

// NewCopy is New for the migration itself.
func NewCopy(ctx context.Context, s store.Store, log *slog.Logger, lease time.Duration) (*Threads, error) {
	salt, err := Secret(ctx, s, SaltCell, sha256.Size)
	return &Threads{Store: s, Log: log, folds: folds{most: maxFolds}, active: folds{most: maxActive}, lease: lease, salt: salt, batches: store.BatcherOf(s) != nil, roots: map[string]Root{}, unmended: map[string]string{}}, err
}

// Remove deletes a cell, if it holds only what is given, where that is not "".
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

// Ensure returns what a cell holds, which is fresh if it was not there.
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
	// The answer may have been lost.
	if cell, getErr := c.Store.Get(ctx, key); getErr == nil {
		return cell.Value, nil
	}
	return nil, err
}

// Seam lets packages of this module that build on the kernel reach the threads
// behind a runtime. A *perdure.Runtime embeds one; its method has a name that no
// other package can call.
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

// Scale weighs what a caller makes the kernel keep in memory. Its errors end
// what the caller asked for.
type Scale interface {
	// Value is asked before a value of so many bytes is read.
	Value(ctx context.Context, bytes int64) error
	// Fold is asked while a thread is folded from entries that have so many
	// bytes so far. A fold does not outlive the next one.
	Fold(ctx context.Context, bytes int64) error
}

type scaleKey struct{}

// WithScale returns a context whose reads are weighed.
func WithScale(ctx context.Context, s Scale) context.Context {
	return context.WithValue(ctx, scaleKey{}, s)
}

// scaleOf returns the scale of a context; without one everything passes.
func scaleOf(ctx context.Context) Scale {
	if s, ok := ctx.Value(scaleKey{}).(Scale); ok {
		return s
	}
	return noScale{}
}

type noScale struct{}

func (noScale) Value(context.Context, int64) error { return nil }
func (noScale) Fold(context.Context, int64) error  { return nil }
