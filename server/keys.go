package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/seal"
)

func (s *Server) keyRoutes() {
	handle(s, api.KeysList, s.listKeys)
	handle(s, api.KeysRotate, s.rotateKeys)
}

// sealedStore returns the sealed store of the runtime, nil if it is not sealed.
func (s *Server) sealedStore() *seal.Store {
	sealed, _ := store.As[*seal.Store](threads.Behind(s.rt).All.Store)
	return sealed
}

// The kinds of what keys seal.
const (
	ofStore       = "store"
	ofCredentials = "credentials"
)

func (s *Server) listKeys(ctx context.Context, c *Call, _ *api.Nothing) (*api.KeyList, error) {
	if err := s.wholeStore(c, "keys seal the data of"); err != nil {
		return nil, err
	}
	out := &api.KeyList{Keys: []api.KeyUse{}}
	if sealed := s.sealedStore(); sealed != nil {
		counts, err := sealed.Keys(ctx)
		if err != nil {
			return nil, err
		}
		ring, _ := sealed.Ring().(seal.Named)
		out.Keys = append(out.Keys, usesOf(ofStore, ring, counts, true)...)
	}
	counts, err := credentials.Keys(ctx, s.rt)
	if err != nil {
		return nil, err
	}
	var named seal.Named
	var wrong map[string]int
	switch ring, err := credentials.Ring(); {
	case err == nil:
		named = ring
		if wrong, err = credentials.Mismatched(ctx, s.rt); err != nil {
			return nil, err
		}
	case errors.Is(err, store.ErrKey): // it cannot be read: no key is missing
		return nil, err
	}
	for _, k := range usesOf(ofCredentials, named, counts, false) {
		k.Wrong = wrong[k.ID]
		out.Keys = append(out.Keys, k)
	}
	return out, nil
}

// usesOf returns the keys of a ring, and those that are missing in it, by what needs
// them. Every key in counts is needed if it is registered, even where nothing uses it.
func usesOf(of string, ring seal.Named, counts map[string]int, registered bool) (all []api.KeyUse) {
	current, spare := "", map[string]bool{} // spare are those of the ring that nothing needs
	if ring != nil {
		current = ring.Primary()
		counts[current] += 0
	}
	if all, ok := ring.(interface{ IDs() []string }); ok && ring != nil {
		for _, id := range all.IDs() {
			if _, needed := counts[id]; !needed {
				counts[id], spare[id] = 0, true
			}
		}
	}
	for id, n := range counts {
		all = append(all, api.KeyUse{Of: of, ID: id, Current: id == current && ring != nil, Missing: ring != nil && !ring.Holds(id) || ring == nil && id != "",
			Uses: n, Needed: n > 0 || registered && !spare[id] || id == current})
	}
	slices.SortFunc(all, func(a, b api.KeyUse) int {
		if a.Current != b.Current {
			return map[bool]int{true: -1, false: 1}[a.Current]
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return all
}

// Limits of a part of a rotation.
const partKeys, mostKeys = 500, 5000

// rotateKeys rotates the data keys of a sealed store, and then the credentials. The
// position is the kind and the name of the last cell.
func (s *Server) rotateKeys(ctx context.Context, c *Call, in *api.RotateKeys) (*api.Rotation, error) {
	if err := s.wholeStore(c, "keys seal the data of"); err != nil {
		return nil, err
	}
	if in.Limit < 0 || in.Limit > mostKeys {
		return nil, api.Invalid("limit is 1 to %d", mostKeys)
	}
	of, after, _ := strings.Cut(cmp.Or(in.After, ofStore), " ")
	limit := cmp.Or(in.Limit, partKeys)
	out := new(api.Rotation)
	next, err := "", error(nil)
	switch sealed := s.sealedStore(); {
	case of == ofStore && sealed != nil:
		next, out.Rotated, err = sealed.RotateAfter(ctx, after, limit)
		if err == nil && next == "" {
			err = sealed.Retire(ctx)
		}
	case of == ofStore:
	case of == ofCredentials:
		next, out.Rotated, err = credentials.Rotate(ctx, s.rt, after, limit, in.Tenants...)
		if errors.Is(err, credentials.ErrUnsealed) && s.sealedStore() != nil {
			err = nil // the store seals them
		}
	default:
		return nil, api.Invalid("after is not the next of an earlier part")
	}
	if errors.Is(err, store.ErrKey) && !errors.Is(err, credentials.ErrUnsealed) { // the others go on
		out.Problem, err = err.Error(), nil
	}
	switch {
	case err != nil:
		return nil, err
	case next != "":
		out.Next = of + " " + next
	case of == ofStore:
		out.Next = ofCredentials
	}
	return out, nil
}
