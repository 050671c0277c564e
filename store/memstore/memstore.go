// Package memstore keeps a store in memory. It is for tests, and for runs that
// need not outlive their process.
//
//	s := memstore.New()                          // its own
//	s, err := store.Open(ctx, "memory:")         // the same, by URL
//	s, err := store.Open(ctx, "memory:shared")   // shared by all who open this name
//
// A named memory lives until its last handle is closed.
package memstore

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/store"
)

func init() {
	store.Register("memory", func(_ context.Context, url string) (store.Store, error) {
		if name := strings.TrimPrefix(url, "memory:"); name != "" {
			return Open(name), nil
		}
		return New(), nil
	})
}

// Store is a handle on a store in memory.
type Store struct {
	*store.Hub
	m      *memory
	closed atomic.Bool
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Caster  = (*Store)(nil)
	_ store.Durable = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
)

// memory is what the handles on one name share.
type memory struct {
	hub *store.Hub

	mu       sync.RWMutex
	journals map[string][][]byte
	dropped  map[string]bool
	cells    map[string]store.Cell
	keys     keys // of cells
	versions uint64

	name    string // "" if not shared
	handles int    // guarded by named's lock
}

var named = struct {
	sync.Mutex
	memories map[string]*memory
}{memories: map[string]*memory{}}

func newMemory(name string) *memory {
	return &memory{
		hub:      store.NewHub(),
		journals: map[string][][]byte{},
		dropped:  map[string]bool{},
		cells:    map[string]store.Cell{},
		name:     name,
	}
}

// New returns a store that is not shared.
func New() *Store {
	m := newMemory("")
	return &Store{m: m, Hub: m.hub}
}

// Open returns a handle on the memory called name, and creates the memory if no
// handle on it is open.
func Open(name string) *Store {
	named.Lock()
	defer named.Unlock()
	m := named.memories[name]
	if m == nil {
		m = newMemory(name)
		named.memories[name] = m
	}
	m.handles++
	return &Store{m: m, Hub: m.hub.Share()}
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.Stop()
	named.Lock()
	defer named.Unlock()
	if s.m.handles--; s.m.handles == 0 && s.m.name != "" {
		delete(named.memories, s.m.name)
	}
	return nil
}

// Durability implements store.Durable.
func (s *Store) Durability() store.Durability { return store.None }

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := store.CheckAppend(journal, entries); err != nil {
		return 0, err
	}
	return s.append(store.Batch{Journal: journal, After: after, Entries: entries})
}

// AppendBatch implements store.Batcher.
func (s *Store) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	return s.append(b)
}

func (s *Store) append(b store.Batch) (uint64, error) {
	last, written, err := s.m.append(b)
	if err != nil {
		return 0, err
	}
	s.Wake(b.Journal)
	for _, key := range written {
		s.Wake(key)
	}
	return last, nil
}

// append appends a batch and returns the keys of the cells
// that it wrote and whose watchers are to be woken.
func (m *memory) append(b store.Batch) (last uint64, written []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dropped[b.Journal] {
		return 0, nil, store.WasDropped(b.Journal)
	}
	have := m.journals[b.Journal]
	if last := uint64(len(have)); last != b.After {
		return 0, nil, store.NotAtEnd(b.Journal, b.After, last)
	}
	for _, w := range b.Cells {
		if err := m.expect(w.Key, w.Prev); err != nil && !w.Optional {
			return 0, nil, &store.CellConflict{Key: w.Key, Err: err}
		}
	}
	for _, e := range b.Entries {
		have = append(have, bytes.Clone(e))
	}
	m.journals[b.Journal] = have
	skip := false // the optional writes from here on
	for _, w := range b.Cells {
		if m.expect(w.Key, w.Prev) != nil {
			skip = true
		}
		if w.Optional && skip {
			continue
		}
		if w.Remove {
			m.remove(w.Key)
		} else {
			version := m.put(w.Key, w.Value)
			if w.Made != nil {
				*w.Made = version
			}
		}
		if !w.Quiet {
			written = append(written, w.Key)
		}
	}
	return uint64(len(have)), written, nil
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		entries, err := s.read(ctx, journal)
		if err != nil {
			yield(store.Entry{}, err)
			return
		}
		for i := after; i < uint64(len(entries)); i++ {
			if err := s.usable(ctx); err != nil {
				yield(store.Entry{}, err)
				return
			}
			if !yield(store.Entry{Seq: i + 1, Data: bytes.Clone(entries[i])}, nil) {
				return
			}
		}
	}
}

// read returns the journal as it is now. A journal is only ever appended to, so
// the slice stays valid without the lock.
func (s *Store) read(ctx context.Context, journal string) ([][]byte, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return nil, err
	}
	s.m.mu.RLock()
	defer s.m.mu.RUnlock()
	if s.m.dropped[journal] {
		return nil, store.WasDropped(journal)
	}
	return s.m.journals[journal], nil
}

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield("", err)
			return
		}
		s.m.mu.RLock()
		names := slices.Sorted(maps.Keys(s.m.journals))
		s.m.mu.RUnlock()
		for _, name := range names {
			if name <= after {
				continue
			}
			if err := s.usable(ctx); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Drop implements store.Store.
func (s *Store) Drop(ctx context.Context, journal string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return err
	}
	s.m.mu.Lock()
	delete(s.m.journals, journal)
	s.m.dropped[journal] = true
	s.m.mu.Unlock()
	s.Wake(journal)
	return nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := s.usable(ctx); err != nil {
		return store.Cell{}, err
	}
	if err := store.CheckName("cell", key); err != nil {
		return store.Cell{}, err
	}
	s.m.mu.RLock()
	defer s.m.mu.RUnlock()
	cell, ok := s.m.cells[key]
	if !ok {
		return store.Cell{}, store.NoCell(key)
	}
	return clone(cell), nil
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if err := store.CheckPut(key, value); err != nil {
		return "", err
	}
	s.m.mu.Lock()
	if err := s.m.expect(key, prev); err != nil {
		s.m.mu.Unlock()
		return "", err
	}
	version := s.m.put(key, value)
	s.m.mu.Unlock()
	s.Wake(key)
	return version, nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckDelete(key, prev); err != nil {
		return err
	}
	s.m.mu.Lock()
	if err := s.m.expect(key, prev); err != nil {
		s.m.mu.Unlock()
		return err
	}
	s.m.remove(key)
	s.m.mu.Unlock()
	s.Wake(key)
	return nil
}

func (m *memory) put(key string, value []byte) store.Version {
	m.versions++
	version := store.Version(strconv.FormatUint(m.versions, 36))
	m.keys.add(key)
	m.cells[key] = store.Cell{Key: key, Value: bytes.Clone(value), Version: version}
	return version
}

func (m *memory) remove(key string) {
	m.keys.remove(key)
	delete(m.cells, key)
}

// expect returns ErrConflict unless the cell's version is prev; "" means no cell.
func (m *memory) expect(key string, prev store.Version) error {
	if now := m.cells[key].Version; now != prev {
		return store.NotVersion(key, prev, now)
	}
	return nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(store.Cell{}, err)
			return
		}
		for most := shortestPage; ; most = min(4*most, longestPage) {
			page := s.m.page(prefix, after, most)
			for _, cell := range page {
				if err := s.usable(ctx); err != nil {
					yield(store.Cell{}, err)
					return
				}
				if !yield(cell, nil) {
					return
				}
				after = cell.Key
			}
			if len(page) < most {
				return
			}
		}
	}
}

// Pages grow, since many callers want the first cell only.
const shortestPage, longestPage = 8, 128

// page returns copies of the next cells with a prefix.
func (m *memory) page(prefix, after string, most int) (cells []store.Cell) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for key := range m.keys.from(max(prefix, after)) {
		if key == after {
			continue
		}
		if len(cells) == most || !strings.HasPrefix(key, prefix) {
			break
		}
		cells = append(cells, clone(m.cells[key]))
	}
	return cells
}

// Count implements store.Counter.
func (s *Store) Count(ctx context.Context, prefix string) (n int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.m.mu.RLock()
	defer s.m.mu.RUnlock()
	for key := range s.m.keys.from(prefix) {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		n++
	}
	return n, nil
}

func clone(c store.Cell) store.Cell {
	c.Value = append([]byte{}, c.Value...)
	return c
}
