// Package erasure erases everything that a store and its archive have of a user, and
// keeps the proof of it. It may import store and archive, and internal/threads,
// lifecycle, archive, shelf, bulk and schedule, and what those import.
//
// While it goes on, a cell erasing/TENANT/USER says so, where USER is a keyed hash. It
// holds all that is needed to find what belongs to the user, as keyed hashes too: any
// process can finish the erase without knowing whose it is.
//
// Before something goes, a cell erased/TENANT/USER/KIND/NAME is written, once for each
// thing; the one of a thread holds a hash of the thread's last hash. The cell
// erased/TENANT/USER says from when to when it took. These cells stay: they are the
// receipt. An erase has ended when it has looked everywhere and found nothing.
package erasure

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	public "github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/bulk"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/vault"
	"github.com/perdure/perdure/store"
)

// Kind is a kind of things that a user has.
type Kind string

// The kinds.
const (
	Threads     Kind = threads.NotedThread
	Archived    Kind = threads.NotedArchived
	Memory      Kind = "memory"
	Rules       Kind = "rules"
	Credentials Kind = "credentials"
	Uploads     Kind = "uploads"
	Jobs        Kind = "jobs"
	Exports     Kind = "exports"
	Schedules   Kind = "schedules"
)

const underWay, done = threads.ErasingUser, threads.ErasedUser

// scrubbed is a journal that was never written. Dropping it lets a store remove the
// bytes of all cells that were deleted before.
const scrubbed = "erased/users"

// mostPasses bounds how often an erase looks for more while others keep adding.
const mostPasses = 50

// Eraser erases the users of a tenant.
type Eraser struct {
	threads *threads.Threads
	tenant  *threads.Tenant
	life    *lifecycle.Control
	place   public.Place
}

// New returns the eraser of a tenant's users. The control must not be limited to a
// user. The place is the archive, nil if there is none.
func New(t *threads.Tenant, life *lifecycle.Control, place public.Place) *Eraser {
	all := *t
	all.Owner = nil
	return &Eraser{threads: t.All, tenant: &all, life: life, place: place}
}

// order is the content of the cell of an erase that is under way.
type order struct {
	ID     string                `json:"id"`
	Tenant string                `json:"tenant"`
	Begun  int64                 `json:"begun"`
	Mine   threads.Mine          `json:"mine"`
	Roots  map[shelf.Kind]string `json:"roots"` // of what agents keep
}

// Record is the content of the cell of an erase that has ended.
type Record struct {
	Begun int64 `json:"begun"` // of the first erase of this user
	Ended int64 `json:"ended"` // of the last one
}

func (e *Eraser) orderOf(user string) *order {
	return &order{ID: threads.NewRunID(), Tenant: e.tenant.Name, Begun: clock.Micros(), Mine: e.tenant.Of(user), Roots: shelf.UserRoots(e.tenant, user)}
}

// key returns the key of the cell of a user.
func (e *Eraser) key(prefix, hash string) string { return prefix + e.tenant.Part + "/" + hash }

// Erase erases everything of a user: see perdure.Runtime.EraseUser.
func (e *Eraser) Erase(ctx context.Context, user string, n lifecycle.Note) error {
	if err := errors.Join(n.Check(), e.threads.CheckMoved(ctx)); err != nil {
		return err
	}
	fresh := e.orderOf(user)
	value, err := json.Marshal(fresh)
	if err != nil {
		return err
	}
	held, err := e.threads.Ensure(ctx, e.key(underWay, fresh.Mine.Hash), value)
	if err != nil {
		return err
	}
	o, err := parse(held)
	if err != nil {
		return err
	}
	return e.finish(ctx, o, n, o.ID == fresh.ID)
}

func parse(value []byte) (*order, error) {
	o := new(order)
	if err := json.Unmarshal(value, o); err != nil || o.Mine.Hash == "" {
		return nil, fmt.Errorf("%w: the erase of a user that is under way: %w", fault.ErrCorrupt, err)
	}
	return o, nil
}

// finish carries out an order. A new one that finds nothing leaves the record of an
// earlier erase as it is.
func (e *Eraser) finish(ctx context.Context, o *order, n lifecycle.Note, isNew bool) error {
	total := 0
	for pass := 0; ; pass++ {
		found, err := e.pass(ctx, o, n)
		if err != nil {
			return err
		}
		if total += found; found == 0 {
			break
		}
		if pass == mostPasses {
			return fmt.Errorf("%w: the user keeps adding threads; revoke their tokens, and erase again", fault.ErrBusy)
		}
	}
	if err := e.threads.Store.Drop(ctx, scrubbed); err != nil {
		return err
	}
	_, err := store.Update(ctx, e.threads.Store, e.key(done, o.Mine.Hash), func(old store.Cell) ([]byte, error) {
		r := Record{Begun: o.Begun, Ended: clock.Micros()}
		if old.Version != "" {
			var was Record
			if json.Unmarshal(old.Value, &was) == nil {
				if isNew && total == 0 {
					return nil, threads.ErrNothing
				}
				r.Begun = min(r.Begun, was.Begun)
			}
		}
		return json.Marshal(r)
	})
	if err != nil && !errors.Is(err, threads.ErrNothing) {
		return err
	}
	return e.threads.Remove(ctx, e.key(underWay, o.Mine.Hash), "")
}

// pass erases all that it finds, and returns how much that was. What cannot be erased
// does not keep the rest from it.
func (e *Eraser) pass(ctx context.Context, o *order, n lifecycle.Note) (found int, err error) {
	note := func(k Kind) func(name string) error {
		return func(name string) error {
			found++
			_, err := e.threads.Ensure(ctx, e.key(done, o.Mine.Hash)+"/"+string(k)+"/"+name, []byte("1"))
			return err
		}
	}
	names, err := e.tenant.Names(ctx, o.Mine)
	if err != nil {
		return found, err
	}
	found += len(names)
	of := func(user string) bool { return o.Mine.Is(e.tenant, user) }
	failed := []error{schedule.Forget(ctx, e.tenant, of, note(Schedules))} // first, since they start threads
	for _, name := range names {
		err := e.life.EraseNamed(ctx, name, n)
		if err == nil {
			err = e.tenant.Unlist(ctx, o.Mine, name)
		}
		if ctx.Err() != nil {
			return found, err
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("thread %s: %w", name, err))
		}
	}
	for kind, root := range o.Roots {
		failed = append(failed, e.dropCells(ctx, root, note(kindOf(kind))))
	}
	failed = append(failed,
		e.tenant.DropUploads(ctx, of, note(Uploads)),
		bulk.Forget(ctx, e.tenant, of, note(Jobs)),
		e.dropExports(ctx, o, note(Exports)))
	return found, errors.Join(failed...)
}

func kindOf(k shelf.Kind) Kind {
	switch k {
	case shelf.Rule:
		return Rules
	case shelf.Credential:
		return Credentials
	}
	return Memory
}

// dropCells removes the cells below a root, also damaged ones.
func (e *Eraser) dropCells(ctx context.Context, root string, note func(name string) error) error {
	keys, err := e.cells(ctx, root)
	for _, key := range keys {
		if err == nil { // the place of a value has no text of it; its hash is shorter
			sum := sha256.Sum256([]byte(key))
			err = note(threads.Base32.EncodeToString(sum[:15]))
		}
		if err == nil {
			err = e.threads.Remove(ctx, key, "")
		}
	}
	if err != nil {
		return err
	}
	return store.DeletePrefix(ctx, e.threads.Store, root) // those that List does not yield
}

func (e *Eraser) cells(ctx context.Context, prefix string) (keys []string, err error) {
	for cell, err := range e.threads.Store.List(ctx, prefix, "") {
		if errors.Is(err, store.ErrCorrupt) {
			break
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, cell.Key)
	}
	return keys, nil
}

// dropExports deletes the exports of the user's threads that bulk jobs have written.
func (e *Eraser) dropExports(ctx context.Context, o *order, note func(name string) error) error {
	names, err := e.exports(ctx, o.Mine)
	for _, name := range names {
		if err == nil {
			err = note(strings.ReplaceAll(strings.TrimPrefix(name, "exports/"), "/", "."))
		}
		if err == nil {
			err = e.place.Delete(ctx, name)
		}
	}
	return err
}

func (e *Eraser) exports(ctx context.Context, m threads.Mine) (names []string, err error) {
	if e.place == nil {
		return nil, nil
	}
	if err := vault.New(e.tenant, e.life, e.place).Mounted(ctx); err != nil {
		return nil, err
	}
	for name, err := range e.place.List(ctx, "exports/", "") {
		if err != nil {
			return nil, err
		}
		thread := strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".jsonl.gz")
		if !strings.HasPrefix(thread, e.tenant.Part+".") || !strings.HasSuffix(thread, m.Part) {
			continue
		}
		if mine, err := e.tenant.IsOf(ctx, m, thread); err != nil {
			return nil, err
		} else if mine {
			names = append(names, name)
		}
	}
	return names, nil
}
