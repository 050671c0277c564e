package threads

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/due"
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

type Threads struct {
	Store store.Store
	Log   *slog.Logger
	lease time.Duration // how long whoever comes too late sweeps at most
	salt  []byte

	mu       sync.Mutex
	roots    map[string]Root   // of forks
	unmended map[string]string // by prefix of a tenant's summaries: the damage that could not be mended
}

// New opens the threads of a store.
func New(ctx context.Context, s store.Store, log *slog.Logger, lease time.Duration) (*Threads, error) {
	key, err := salt(ctx, s)
	return &Threads{Store: s, Log: log, lease: lease, salt: key, roots: map[string]Root{}, unmended: map[string]string{}}, err
}

// Announce writes hints that a thread has work for flows, before the entry at
// seq says so.
func (c *Threads) Announce(ctx context.Context, name string, seq uint64, flows ...string) error {
	slices.Sort(flows)
	const now = 1 // by any clock
	for _, flow := range slices.Compact(flows) {
		if err := due.Announce(ctx, c.Store, flow, name, seq, now); err != nil {
			return fmt.Errorf("perdure: announcing work: %w", err)
		}
	}
	return nil
}
