package shelf

import (
	"context"
	"errors"
	"iter"

	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// page is how many cells are read before any is yielded, so that no loop over the
// store is open while the caller works.
const page = 64

// List yields the values of a namespace and of all below it whose places come
// after the given one, in the order of their places. An error is the last thing
// yielded; damaged records are reported after all intact ones.
func (s *Shelf) List(ctx context.Context, ns []string, after string) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		if err := checkNamespace(ns); err != nil {
			yield(nil, err)
			return
		}
		prefix := s.root + s.prefix(ns)
		behind := ""
		if after != "" {
			behind = s.root + after
		}
		var damaged error
		for {
			cells, err := s.cells(ctx, prefix, behind)
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				yield(nil, err)
				return
			}
			damaged = errors.Join(damaged, err)
			for _, cell := range cells {
				behind = cell.Key
				item, _, err := s.parse(cell)
				switch {
				case err != nil:
					damaged = errors.Join(damaged, err)
				case item.expired():
					s.sweep(ctx, cell)
				case !yield(item, nil):
					return
				}
			}
			if len(cells) < page {
				break
			}
		}
		if damaged != nil {
			yield(nil, damaged)
		}
	}
}

func (s *Shelf) cells(ctx context.Context, prefix, behind string) ([]store.Cell, error) {
	var all []store.Cell
	for cell, err := range s.host.Store.List(ctx, prefix, behind) {
		if err != nil {
			return all, err
		}
		if all = append(all, cell); len(all) == page {
			break
		}
	}
	return all, nil
}

// UserRoots returns what the names of the cells begin with that hold what agents keep
// for a user of a tenant.
func UserRoots(t *threads.Tenant, user string) map[Kind]string {
	roots := map[Kind]string{}
	for kind, ns := range map[Kind][]string{Memory: {"user", user}, Rule: {user}, Credential: {user}} {
		s := New(hostOf(t), kind)
		roots[kind] = s.root + s.prefix(ns)
	}
	return roots
}

// Clear removes the values of a namespace and of all below it, also damaged
// ones. What is written meanwhile may stay.
func (s *Shelf) Clear(ctx context.Context, ns []string) error {
	if err := checkNamespace(ns); err != nil {
		return err
	}
	if err := s.checkMoved(ctx); err != nil {
		return err
	}
	if err := store.DeletePrefix(ctx, s.host.Store, s.root+s.prefix(ns)); err != nil {
		return err
	}
	return s.checkKept(ctx)
}
