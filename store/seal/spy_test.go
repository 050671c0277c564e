package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// spy keeps all bytes that are given to a store.
type spy struct {
	*memstore.Store
	mu  sync.Mutex
	saw [][]byte
}

func (s *spy) note(data ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range data {
		s.saw = append(s.saw, bytes.Clone(d))
	}
}

func (s *spy) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	s.note(entries...)
	return s.Store.Append(ctx, journal, after, entries...)
}

func (s *spy) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	s.note(b.Entries...)
	for _, w := range b.Cells {
		s.note(w.Value)
	}
	return s.Store.AppendBatch(ctx, b)
}

func (s *spy) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	s.note(value)
	return s.Store.Put(ctx, key, value, prev)
}

func (s *spy) Cast(ctx context.Context, topic string, message []byte) error {
	s.note(message)
	return s.Store.Cast(ctx, topic, message)
}

// keeper is a key ring that remembers the data keys it has seen.
type keeper struct {
	seal.Keyring
	dataKeys [][]byte
}

func (k *keeper) Wrap(ctx context.Context, dataKey, aad []byte) ([]byte, error) {
	k.dataKeys = append(k.dataKeys, bytes.Clone(dataKey))
	return k.Keyring.Wrap(ctx, dataKey, aad)
}

// Nothing that is given to a sealed store, nor a data key, reaches the store
// inside in clear.
func TestNothingPassesInClear(t *testing.T) {
	const canary = "CANARY"
	inner := &spy{Store: memstore.New()}
	keys := &keeper{Keyring: ring(t, "a")}
	s := sealed(t, inner, keys)
	ctx := t.Context()

	add(t, s, "j", 0, canary, "x"+canary, strings.Repeat(canary, 1000))
	add(t, s, "k", 0, canary)
	_, _ = s.Append(ctx, "j", 1, []byte(canary)) // a conflict
	v := put(t, s, "c", canary)
	if _, err := s.Put(ctx, "c", []byte(canary+canary), v); err != nil {
		t.Fatal(err)
	}
	_, _ = s.Put(ctx, "c", []byte(canary), v) // a conflict
	for range 2 {                             // the second is a conflict
		_, _ = s.AppendBatch(ctx, store.Batch{Journal: "b", Entries: [][]byte{[]byte(canary)}, Cells: []store.Write{
			{Key: "d", Value: []byte(canary)}, {Key: "e", Value: []byte(canary), Optional: true}, {Key: "c", Value: []byte(canary), Prev: v, Remove: true, Optional: true},
		}})
	}
	if err := store.Cast(ctx, s, "topic", []byte(canary)); err != nil {
		t.Fatal(err)
	}
	rotating := sealed(t, inner, &keeper{Keyring: ring(t, "b", "a")})
	if n, err := rotating.Rotate(ctx); n != 4 || err != nil {
		t.Fatalf("Rotate = %d, %v", n, err)
	}
	if err := s.Drop(ctx, "k"); err != nil {
		t.Fatal(err)
	}

	inner.saw = slices.DeleteFunc(inner.saw, func(data []byte) bool { return len(data) == 0 }) // of removals
	if len(keys.dataKeys) != 4 || len(inner.saw) != 23 {
		t.Errorf("saw %d data keys and %d writes; want 4 and 23, so that the search means something", len(keys.dataKeys), len(inner.saw))
	}
	for _, data := range inner.saw {
		for _, clear := range append(keys.dataKeys, []byte(canary)) {
			if bytes.Contains(data, clear) {
				t.Errorf("%q passed in clear, in %.60q", clear, data)
			}
		}
	}
	seen := map[string]bool{}
	for _, data := range inner.saw {
		if seen[string(data)] {
			t.Error("the same sealed bytes were written twice; equal contents can be told")
		}
		seen[string(data)] = true
	}
}

// A store that ends up in a log does not show its data keys.
func TestPrintedStore(t *testing.T) {
	keys := &keeper{Keyring: ring(t, "a")}
	s := sealed(t, memstore.New(), keys)
	add(t, s, "j", 0, "x")
	for _, printed := range []any{s, s.Unwrap()} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
			text := fmt.Sprintf(verb, printed)
			for _, key := range keys.dataKeys {
				if strings.Contains(text, strings.Trim(fmt.Sprintf(verb, key), "[]")) {
					t.Errorf("%s of %T shows a data key: %.200s", verb, printed, text)
				}
			}
		}
	}
	if len(keys.dataKeys) != 2 {
		t.Errorf("there are %d data keys, want 2", len(keys.dataKeys))
	}
}

func TestCast(t *testing.T) {
	inner := memstore.New()
	s, other := sealed(t, inner, ring(t, "a")), sealed(t, inner, ring(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil { // the listener may come late
			_ = store.Cast(ctx, inner, "topic", []byte("forged"))
			_ = store.Cast(ctx, inner, "topic", nil)
			_ = store.Cast(ctx, s, "topic", []byte("news"))
		}
	}()
	heard := 0
	for m := range store.Listen(ctx, other, "topic") {
		if string(m) != "news" {
			t.Fatalf("heard %q", m)
		}
		if heard++; heard == 10 {
			break
		}
	}
	if heard != 10 {
		t.Errorf("heard %d messages", heard)
	}
}

// A message of one topic is refused in another.
func TestCastIsBoundToItsTopic(t *testing.T) {
	inner := &spy{Store: memstore.New()}
	s := sealed(t, inner, ring(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := store.Cast(ctx, s, "there", []byte("moved")); err != nil {
		t.Fatal(err)
	}
	moved := inner.saw[len(inner.saw)-1]
	go func() {
		for ctx.Err() == nil {
			_ = inner.Store.Cast(ctx, "here", moved)
			_ = store.Cast(ctx, s, "here", []byte("news"))
		}
	}()
	heard := 0
	for m := range store.Listen(ctx, s, "here") {
		if string(m) != "news" {
			t.Fatalf("heard %q", m)
		}
		if heard++; heard == 10 {
			return
		}
	}
	t.Errorf("heard %d messages", heard)
}

// silent hides the upgrades of a store.
type silent struct{ store.Store }

func TestNoCasterWhereThereIsNone(t *testing.T) {
	s := sealed(t, silent{memstore.New()}, ring(t, "a"))
	if _, ok := store.As[store.Caster](s); ok {
		t.Error("a sealed store claims to carry messages that the one inside cannot carry")
	}
	if s.Unwrap() == nil {
		t.Error("the store inside is not reached")
	}
}

// remote is a key service that can be away.
type remote struct {
	seal.Keyring
	away bool
}

var errAway = errors.New("key service: no route to host")

func (r *remote) Unwrap(ctx context.Context, wrapped, aad []byte) ([]byte, error) {
	if r.away {
		return nil, errAway
	}
	return r.Keyring.Unwrap(ctx, wrapped, aad)
}

func (r *remote) Wrap(ctx context.Context, dataKey, aad []byte) ([]byte, error) {
	if r.away {
		return nil, errAway
	}
	return r.Keyring.Wrap(ctx, dataKey, aad)
}

// A key service that is away is not a wrong key, and nothing is written.
func TestKeyServiceAway(t *testing.T) {
	inner := memstore.New()
	add(t, sealed(t, inner, ring(t, "a")), "j", 0, "x")
	keys := &remote{Keyring: ring(t, "b", "a")}
	s := sealed(t, inner, keys)
	keys.away = true
	_, readErr := text(t.Context(), s, "j")
	_, appendErr := s.Append(t.Context(), "j", 1, []byte("y"))
	_, beginErr := s.Append(t.Context(), "new", 0, []byte("y"))
	_, rotateErr := s.Rotate(t.Context())
	for call, err := range map[string]error{"Read": readErr, "Append": appendErr, "first Append": beginErr, "Rotate": rotateErr} {
		if !errors.Is(err, errAway) || errors.Is(err, store.ErrKey) {
			t.Errorf("%s = %v", call, err)
		}
	}
	keys.away = false
	add(t, s, "j", 1, "y")
	wantText(t, s, "j", "x y")
	wantText(t, s, "new", "")
}

// short is a key service that returns something else than the data key.
type short struct{ seal.Keyring }

func (short) Unwrap(context.Context, []byte, []byte) ([]byte, error) { return []byte("short"), nil }

func TestKeyServiceReturnsGarbage(t *testing.T) {
	inner := memstore.New()
	sealed(t, inner, ring(t, "a"))
	if _, err := seal.New(t.Context(), inner, short{ring(t, "a")}); !errors.Is(err, store.ErrKey) {
		t.Errorf("New = %v", err)
	}
}
