package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/bulk"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Proof is what a store knows about the erases of a user.
type Proof struct {
	Record
	User    string // keyed hash
	Counts  map[Kind]int
	Digests []string // of threads, in the order of their creation; those in the archive last
}

// Proof returns what is known about the erases of a user. It is ErrNothingToDo if there
// was none, and ErrBusy if one has not ended.
func (e *Eraser) Proof(ctx context.Context, user string) (*Proof, error) {
	hash := e.tenant.UserHash(user)
	if _, err := e.threads.Store.Get(ctx, e.key(underWay, hash)); err == nil {
		return nil, fmt.Errorf("%w: the user's data is being erased, or that was interrupted; erase the user again to complete it", fault.ErrBusy)
	} else if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	cell, err := e.threads.Store.Get(ctx, e.key(done, hash))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: nothing of this user was erased as a whole", fault.ErrNothingToDo)
	}
	p := &Proof{User: hash, Counts: map[Kind]int{}}
	if err == nil {
		err = json.Unmarshal(cell.Value, &p.Record)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the receipt of a user: %w", fault.ErrCorrupt, err)
	}
	var archived []string
	prefix := cell.Key + "/"
	for c, err := range e.threads.Store.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(c.Key, prefix), "/")
		p.Counts[Kind(kind)]++
		switch Kind(kind) {
		case Threads:
			p.Digests = append(p.Digests, string(c.Value))
		case Archived:
			archived = append(archived, string(c.Value))
		}
	}
	p.Digests = append(p.Digests, archived...)
	return p, nil
}

// Count returns how much there is of a user now.
func (e *Eraser) Count(ctx context.Context, user string) (map[Kind]int, error) {
	o := e.orderOf(user)
	of := func(user string) bool { return o.Mine.Is(e.tenant, user) }
	counts := map[Kind]int{}
	names, err := e.tenant.Names(ctx, o.Mine)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, name := range names {
		self := threads.Self(name)
		if seen[self] {
			continue
		}
		seen[self] = true
		a, _, err := e.threads.ReadArchived(ctx, name)
		if err != nil {
			return nil, err
		}
		if a != nil && a.Live() == "" {
			counts[Archived]++
			continue
		}
		if begun, _ := e.threads.Begun(ctx, threads.JournalKey(name)); begun {
			counts[Threads]++
		}
	}
	for kind, root := range o.Roots {
		keys, err := e.cells(ctx, root)
		if err != nil {
			return nil, err
		}
		counts[kindOf(kind)] = len(keys)
	}
	exports, err := e.exports(ctx, o.Mine)
	if err != nil {
		return nil, err
	}
	counts[Exports] = len(exports)
	if counts[Uploads], err = e.tenant.CountUploads(ctx, of); err != nil {
		return nil, err
	}
	if counts[Jobs], err = bulk.Count(ctx, e.tenant, of); err != nil {
		return nil, err
	}
	counts[Schedules], err = schedule.Count(ctx, e.tenant, of)
	return counts, err
}

// FinishAll completes the erases of users, of all tenants, that were interrupted. The function
// eraser returns the eraser of a tenant.
func FinishAll(ctx context.Context, t *threads.Threads, eraser func(tenant string) *Eraser) (n int, err error) {
	var orders []*order
	for cell, err := range t.Store.List(ctx, underWay, "") {
		if err != nil {
			return 0, err
		}
		o, err := parse(cell.Value)
		if err != nil {
			return 0, err
		}
		orders = append(orders, o)
	}
	var failed []error
	for _, o := range orders {
		if err := eraser(o.Tenant).finish(ctx, o, lifecycle.Note{}, false); err != nil {
			failed = append(failed, fmt.Errorf("completing the erase of a user: %w", err))
			continue
		}
		n++
	}
	return n, errors.Join(failed...)
}
