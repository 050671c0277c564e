package kvstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

// engine is a key-value engine in a map, as strict as a KV may be: it refuses
// keys and values beyond what the package says it needs.
type engine struct {
	kind

	mu    sync.Mutex
	cells map[string]store.Cell
	count int
}

// kind is how an engine works, and how its stores use it.
type kind struct {
	hashes bool // versions are hashes of the value, not a counter
	pack   int  // see kvstore.Options
}

// kinds are those that the sweeps go through. The entries of a sweep have about 20
// bytes, so that some appends join a batch and some move it.
var kinds = []kind{{}, {hashes: true}, {hashes: true, pack: 50}}

func (k kind) options() kvstore.Options { return kvstore.Options{Pack: k.pack} }

func newEngine(hashes bool) *engine { return kind{hashes: hashes}.engine() }

func (k kind) engine() *engine { return &engine{kind: k, cells: map[string]store.Cell{}} }

// plain is what a key may consist of, and z what may stand in a List besides.
const plain = "0123456789abcdefghijklmnopqrstuv-"

func checkKey(key string) {
	if key == "" || len(key) > kvstore.MaxKey || strings.Trim(key, plain) != "" {
		panic(fmt.Sprintf("key %q is outside of what KV says", key))
	}
}

func (e *engine) Get(_ context.Context, key string) (store.Cell, error) {
	checkKey(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	cell, ok := e.cells[key]
	if !ok {
		return store.Cell{}, store.ErrNotFound
	}
	return copied(cell), nil
}

func (e *engine) Put(_ context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	checkKey(key)
	if len(value) == 0 || len(value) > kvstore.MaxValue+e.pack {
		panic(fmt.Sprintf("a value of %d bytes is outside of what KV says", len(value)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cells[key].Version != prev {
		return "", store.ErrConflict
	}
	e.count++
	version := store.Version(strconv.Itoa(e.count))
	if e.hashes {
		sum := sha256.Sum256(value)
		version = store.Version(hex.EncodeToString(sum[:]))
	}
	e.cells[key] = copied(store.Cell{Key: key, Value: value, Version: version})
	return version, nil
}

func (e *engine) Delete(_ context.Context, key string, prev store.Version) error {
	checkKey(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if prev == "" || e.cells[key].Version != prev {
		return store.ErrConflict
	}
	delete(e.cells, key)
	return nil
}

func (e *engine) List(_ context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	if len(prefix) > kvstore.MaxKey || len(after) > kvstore.MaxKey || strings.Trim(prefix+after, plain+"z") != "" {
		panic(fmt.Sprintf("List(%q, %q) is outside of what KV says", prefix, after))
	}
	return func(yield func(store.Cell, error) bool) {
		e.mu.Lock()
		keys := slices.Sorted(maps.Keys(e.cells))
		e.mu.Unlock()
		for _, key := range keys {
			if key <= after || !strings.HasPrefix(key, prefix) {
				continue
			}
			e.mu.Lock()
			cell, ok := e.cells[key]
			e.mu.Unlock()
			if ok && !yield(copied(cell), nil) {
				return
			}
		}
	}
}

func copied(c store.Cell) store.Cell {
	c.Value = bytes.Clone(c.Value)
	return c
}

// telling is an engine that tells when something changed, and carries messages.
type telling struct {
	*engine
	*store.Hub
}

func (e *telling) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	defer e.Wake(key)
	return e.engine.Put(ctx, key, value, prev)
}

func (e *telling) Delete(ctx context.Context, key string, prev store.Version) error {
	defer e.Wake(key)
	return e.engine.Delete(ctx, key, prev)
}

// snapshot returns a copy of all that the engine holds.
func (e *engine) snapshot() map[string]store.Cell {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.cells)
}

// holds reports a key whose value contains the canary.
func (e *engine) holds(canary string) (string, bool) {
	for key, cell := range e.snapshot() {
		if bytes.Contains(cell.Value, []byte(canary)) {
			return key, true
		}
	}
	return "", false
}

// fault is what happens to one call of a shaky engine.
type fault int

const (
	well     fault = iota
	before         // fails and does nothing
	after          // does it, but the answer is lost
	spurious       // a write answers ErrConflict and does nothing
	dies           // fails before, and so do all later calls
	diesOn         // does it, loses the answer, and all later calls fail
)

var faults = []fault{before, after, spurious, dies, diesOn}

func (f fault) String() string {
	return [...]string{"well", "fails before", "fails after", "conflicts for nothing", "dies before", "dies after"}[f]
}

var errShaky = errors.New("the engine fails")

// shaky is one client's connection to an engine, on which the n-th call can go
// wrong. Lists count once when they begin and once for each key.
type shaky struct {
	*engine
	plan func(n int) fault // may itself use the engine

	mu    sync.Mutex
	calls int
	ops   []string
	dead  bool
}

// shake returns a connection whose calls go wrong as the plan says.
func shake(e *engine, plan map[int]fault) *shaky {
	return &shaky{engine: e, plan: func(n int) fault { return plan[n] }}
}

// begin decides over the next call.
func (s *shaky) begin(op string, write bool) (fault, error) {
	s.mu.Lock()
	s.calls++
	s.ops = append(s.ops, op)
	n := s.calls
	s.mu.Unlock()
	f := s.plan(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return well, errShaky
	}
	s.dead = f == dies || f == diesOn
	switch {
	case f == before, f == dies:
		return f, errShaky
	case f == spurious && write:
		return f, store.ErrConflict
	}
	return f, nil
}

func (f fault) end() error {
	if f == after || f == diesOn {
		return errShaky
	}
	return nil
}

func (s *shaky) Get(ctx context.Context, key string) (store.Cell, error) {
	f, err := s.begin("get", false)
	if err != nil {
		return store.Cell{}, err
	}
	cell, err := s.engine.Get(ctx, key)
	return cell, errors.Join(err, f.end())
}

func (s *shaky) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	f, err := s.begin("put", true)
	if err != nil {
		return "", err
	}
	version, err := s.engine.Put(ctx, key, value, prev)
	if f.end() != nil {
		return "", errShaky
	}
	return version, err
}

func (s *shaky) Delete(ctx context.Context, key string, prev store.Version) error {
	f, err := s.begin("delete", true)
	if err != nil {
		return err
	}
	err = s.engine.Delete(ctx, key, prev)
	if f.end() != nil {
		return errShaky
	}
	return err
}

func (s *shaky) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		f, err := s.begin("list", false)
		if err = errors.Join(err, f.end()); err != nil {
			yield(store.Cell{}, err)
			return
		}
		for cell, err := range s.engine.List(ctx, prefix, after) {
			f, failed := s.begin("next", false)
			if err = errors.Join(err, failed, f.end()); err != nil {
				yield(store.Cell{}, err)
				return
			}
			if !yield(cell, nil) {
				return
			}
		}
	}
}
