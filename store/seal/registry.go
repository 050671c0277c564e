package seal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/store"
)

// Named is the upgrade of key rings whose keys have ids. With one, a sealed store
// records which keys it needs: New refuses a ring that lacks one of them.
type Named interface {
	Keyring
	// Primary returns the id of the key that Wrap uses.
	Primary() string
	// Holds reports whether the ring has a key.
	Holds(id string) bool
	// KeyOf returns the id of the key that wrapped was made with.
	KeyOf(wrapped []byte) (id string, ok bool)
}

// registry is the content of the cell that says which keys may wrap data keys: every
// key that does is in it.
type registry struct {
	Keys map[string]string `json:"keys"` // by id
}

// The states of a key.
const (
	used    = "used"
	leaving = "leaving" // a rotation is about to remove it, unless someone uses it again
)

// A handle relies on its last look at the registry for registryFresh, so Retire waits
// for registryGrace after it has marked keys.
const registryFresh, registryGrace = 2 * time.Second, 4 * time.Second

// errUnchanged ends an update that has nothing to write.
var errUnchanged = errors.New("seal: nothing to write")

func (s *Store) registryCell() string { return s.prefix + "ring" }

// updateRegistry changes the registry. If change returns false, nothing is written. A
// registry that cannot be read counts as empty.
func updateRegistry(ctx context.Context, inner store.Store, cell string, change func(keys map[string]string) (bool, error)) error {
	_, err := store.Update(ctx, inner, cell, func(old store.Cell) ([]byte, error) {
		var r registry
		if json.Unmarshal(old.Value, &r) != nil || r.Keys == nil {
			r.Keys = map[string]string{}
		}
		changed, err := change(r.Keys)
		if err == nil && !changed {
			err = errUnchanged
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(r)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// enter checks that the ring has all keys that the store needs, and registers the
// one that it wraps with.
func (s *Store) enter(ctx context.Context) error {
	named, ok := s.keys.(Named)
	if !ok {
		return nil
	}
	began := time.Now()
	err := updateRegistry(ctx, s.inner, s.registryCell(), func(keys map[string]string) (bool, error) {
		missing := slices.Sorted(maps.Keys(keys))
		missing = slices.DeleteFunc(missing, named.Holds)
		if len(missing) > 0 {
			return false, fmt.Errorf("%w: data keys may still need %s, which the ring lacks; put it back after the new key, rotate, and remove it when Keys counts none (if it is lost, see Abandon)", store.ErrKey, strings.Join(missing, ", "))
		}
		return register(keys, named), nil
	})
	if err != nil {
		return fmt.Errorf("seal: check the keys in use: %w", err)
	}
	s.entered(began)
	return nil
}

// announce registers the key that the ring wraps with, before it wraps a data key.
func (s *Store) announce(ctx context.Context) error {
	named, ok := s.keys.(Named)
	if !ok || !s.stale() {
		return nil
	}
	began := time.Now()
	err := updateRegistry(ctx, s.inner, s.registryCell(), func(keys map[string]string) (bool, error) { return register(keys, named), nil })
	if err != nil {
		return fmt.Errorf("seal: register the key in use: %w", err)
	}
	s.entered(began)
	return nil
}

func register(keys map[string]string, ring Named) (changed bool) {
	if keys[ring.Primary()] == used {
		return false
	}
	keys[ring.Primary()] = used
	return true
}

func (s *Store) entered(at time.Time) {
	s.look.Lock()
	defer s.look.Unlock()
	s.looked = at
}

func (s *Store) stale() bool {
	s.look.Lock()
	defer s.look.Unlock()
	return time.Since(s.looked) > registryFresh
}

// Keys counts the data keys by the id of the key that wraps them. It includes registered
// keys that wrap none, since processes may be about to wrap with them. With a key ring
// that is not [Named], all ids are "".
func (s *Store) Keys(ctx context.Context) (map[string]int, error) {
	named, _ := s.keys.(Named)
	counts := map[string]int{}
	for cell, err := range s.inner.List(ctx, s.prefix, "") {
		if err != nil {
			return nil, fmt.Errorf("seal: list the data keys: %w", err)
		}
		if cell.Key == s.registryCell() {
			var r registry
			_ = json.Unmarshal(cell.Value, &r)
			for id := range r.Keys {
				counts[id] += 0
			}
			continue
		}
		id := ""
		if named != nil {
			id, _ = named.KeyOf(cell.Value)
		}
		counts[id]++
	}
	return counts, nil
}

// Ring returns the key ring of the store.
func (s *Store) Ring() Keyring { return s.keys }

// Retire ends a rotation: it makes sure that older keys wrap no data key and that no
// process is about to wrap with one, which takes some seconds. After that, New accepts
// rings without them. An error that matches store.ErrKey says which keys are still
// needed. Retire can be interrupted and repeated.
func (s *Store) Retire(ctx context.Context) error {
	named, ok := s.keys.(Named)
	if !ok {
		return nil
	}
	var old []string
	err := updateRegistry(ctx, s.inner, s.registryCell(), func(keys map[string]string) (bool, error) {
		old = nil
		changed := register(keys, named)
		for id, state := range keys {
			if id != named.Primary() {
				old = append(old, id)
				changed = changed || state != leaving
				keys[id] = leaving
			}
		}
		return changed, nil
	})
	if err != nil || len(old) == 0 {
		return err
	}
	select { // until every handle that relies on its last look has wrapped what it was about to
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(registryGrace):
	}
	if _, err := s.rotateAll(ctx); err != nil {
		return err
	}
	var again []string
	err = updateRegistry(ctx, s.inner, s.registryCell(), func(keys map[string]string) (bool, error) {
		again = nil
		changed := false
		for _, id := range old {
			if keys[id] == leaving {
				delete(keys, id)
				changed = true
			} else if keys[id] == used {
				again = append(again, id)
			}
		}
		return changed, nil
	})
	if err == nil && len(again) > 0 {
		slices.Sort(again)
		err = fmt.Errorf("%w: seal: a process still wraps new data keys with %s; give it the new ring, and rotate again", store.ErrKey, strings.Join(again, ", "))
	}
	return err
}

// Abandon lets New open a store with a ring that lacks the key of the given id, because
// the key is lost. Journals whose data keys it wraps can no longer be read.
func Abandon(ctx context.Context, inner store.Store, id string) error {
	depth := 1
	if below, ok := store.As[*Store](inner); ok {
		depth += below.depth
	}
	return updateRegistry(ctx, inner, prefixOf(depth)+"ring", func(keys map[string]string) (bool, error) {
		_, found := keys[id]
		delete(keys, id)
		return found, nil
	})
}
