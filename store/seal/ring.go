package seal

import (
	"context"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/store"
)

// Keyring wraps and unwraps data keys. Its methods are safe for concurrent use. A
// Keyring that lacks a key returns an error that matches store.ErrKey and names
// the key; other errors are considered temporary.
type Keyring interface {
	// Wrap encrypts a data key with the current key, bound to aad, the name of
	// the cell that holds it: Unwrap with another aad must fail. The result
	// says which key it needs.
	Wrap(ctx context.Context, dataKey, aad []byte) (wrapped []byte, err error)

	// Unwrap undoes Wrap.
	Unwrap(ctx context.Context, wrapped, aad []byte) (dataKey []byte, err error)

	// Current reports whether wrapped was made with the key that Wrap now
	// uses, so that rotation can skip it. A Keyring that cannot tell returns
	// false.
	Current(wrapped []byte) bool
}

// Ring is a [Keyring] of named keys in memory. The primary key wraps; all keys
// unwrap. A ring prints as the names of its keys.
type Ring struct {
	primary string
	keys    map[string]cipher.AEAD
}

var _ Named = (*Ring)(nil)

// maxID is the maximum length of a key's id.
const maxID = 32

// NewRing returns a ring of 32-byte keys by id. An id is 1 to 32 letters, digits,
// dots, dashes and underscores. Errors match store.ErrKey and never show a key.
func NewRing(primary string, keys map[string][]byte) (*Ring, error) {
	r := &Ring{primary: primary, keys: map[string]cipher.AEAD{}}
	byKey := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		key := keys[id]
		// An invalid id may be a key in the wrong place, so it is not shown.
		if !validID(id) {
			return nil, badRing("an id is not made of 1 to %d letters, digits, dots, dashes and underscores; use ids like 2026-11", maxID)
		}
		if len(key) != keySize {
			return nil, badRing("key %q has %d bytes; it needs %d, for example from: openssl rand -base64 %d", id, len(key), keySize, keySize)
		}
		if other, twice := byKey[string(key)]; twice {
			return nil, badRing("keys %q and %q are the same bytes; make a new key for one of them", other, id)
		}
		byKey[string(key)] = id
		r.keys[id] = newBox(key)
	}
	if r.keys[primary] == nil {
		if !validID(primary) {
			return nil, badRing("the primary key is not one of the keys; name one of: %s", r.ids())
		}
		return nil, badRing("the primary key %q is not one of the keys; name one of: %s", primary, r.ids())
	}
	return r, nil
}

// IDs returns the ids of the keys, in order.
func (r *Ring) IDs() []string { return slices.Sorted(maps.Keys(r.keys)) }

// ParseRing parses a ring from the text of a flag or variable: ids and keys in
// base64, as in "2026-11:q83v…=,2026-05:EjRW…=". The first key is the primary.
// Errors match store.ErrKey and never show a key.
func ParseRing(text string) (*Ring, error) {
	var primary string
	keys := map[string][]byte{}
	for i, part := range strings.Split(text, ",") {
		id, encoded, found := strings.Cut(strings.TrimSpace(part), ":")
		if !found || !validID(id) {
			return nil, badRing("part %d of the ring is not of the form id:base64, with an id of 1 to %d letters, digits, dots, dashes and underscores", i+1, maxID)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, badRing("key %q is not in base64 (standard alphabet, padded); make one with: openssl rand -base64 %d", id, keySize)
		}
		if _, twice := keys[id]; twice {
			return nil, badRing("two keys have the id %q; rename one", id)
		}
		keys[id] = key
		if i == 0 {
			primary = id
		}
	}
	return NewRing(primary, keys)
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

func badRing(format string, args ...any) error {
	return fmt.Errorf("%w: key ring: "+format, append([]any{store.ErrKey}, args...)...)
}

// ringFormat is the first byte of what a Ring wraps; the length of the id,
// the id and the sealed data key follow.
const ringFormat = 1

// Wrap implements Keyring.
func (r *Ring) Wrap(_ context.Context, dataKey, aad []byte) ([]byte, error) {
	head := append([]byte{ringFormat, byte(len(r.primary))}, r.primary...)
	bound := slices.Concat(head, aad)
	return r.keys[r.primary].Seal(head, nil, dataKey, bound), nil
}

// Unwrap implements Keyring.
func (r *Ring) Unwrap(_ context.Context, wrapped, aad []byte) ([]byte, error) {
	id, ok := wrappedBy(wrapped)
	if !ok {
		return nil, fmt.Errorf("%w: the stored data key was not wrapped by a ring; it was wrapped by another key service, or is damaged", store.ErrKey)
	}
	box := r.keys[id]
	if box == nil {
		return nil, fmt.Errorf("%w: the data key needs key %q, which is not in the ring (%s); add it", store.ErrKey, id, r.ids())
	}
	n := 2 + len(id)
	dataKey, err := box.Open(nil, nil, wrapped[n:], slices.Concat(wrapped[:n], aad))
	if err != nil {
		return nil, fmt.Errorf("%w: key %q of the ring does not open the data key; the ring has different bytes under that id than when it was wrapped, or the stored data key is damaged", store.ErrKey, id)
	}
	return dataKey, nil
}

// Current implements Keyring.
func (r *Ring) Current(wrapped []byte) bool {
	id, ok := wrappedBy(wrapped)
	return ok && id == r.primary
}

// Primary implements Named.
func (r *Ring) Primary() string { return r.primary }

// Holds implements Named.
func (r *Ring) Holds(id string) bool { return r.keys[id] != nil }

// KeyOf implements Named.
func (r *Ring) KeyOf(wrapped []byte) (id string, ok bool) { return wrappedBy(wrapped) }

// wrappedBy returns the id of the key that wrapped a data key.
func wrappedBy(wrapped []byte) (id string, ok bool) {
	if len(wrapped) < 2 || wrapped[0] != ringFormat {
		return "", false
	}
	end := 2 + int(wrapped[1])
	if end > len(wrapped) {
		return "", false
	}
	return string(wrapped[2:end]), true
}

func (r *Ring) ids() string {
	if len(r.keys) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(r.keys)), ", ")
}

// Format implements fmt.Formatter: whatever the verb, a ring prints as the names
// of its keys, never as the keys.
func (r *Ring) Format(f fmt.State, _ rune) {
	if r == nil {
		fmt.Fprint(f, "seal.Ring(nil)")
		return
	}
	fmt.Fprintf(f, "seal.Ring(primary %s of %s)", r.primary, r.ids())
}
