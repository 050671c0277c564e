package seal

import (
	"cmp"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

// Store is a store whose contents are sealed in the store inside.
type Store struct {
	inner   store.Store
	batcher store.Batcher // the store inside; nil if it cannot batch
	keys    Keyring
	depth   int    // how many times the store is sealed, including this one
	prefix  string // of the cells with the data keys
	root    root   // makes the boxes of the cells
	boxes   boxes
	outlet  store.Store // the store inside, with its messages sealed

	look   sync.Mutex
	looked time.Time // at the registry
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Wrapper = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)

	_ store.Unsynced = (*Store)(nil)

	_ store.Transactor = (*Store)(nil)
)

// maxDepth is how many times a store can be sealed so that a full batch still fits
// into the slack of drivers.
const maxDepth = store.Slack / (store.MaxBatch * overhead)

// New seals the store inner with a key ring. It creates or unwraps the data key of
// the cells at once, so that a wrong ring is detected here: the error then matches
// store.ErrKey, as it does if inner has been used without sealing.
//
// A store may be sealed twice, with two rings. After an error inner remains open.
func New(ctx context.Context, inner store.Store, keys Keyring) (*Store, error) {
	if keys == nil {
		return nil, fmt.Errorf("%w: seal: no key ring; make one with ParseRing or NewRing", store.ErrKey)
	}
	s := &Store{inner: inner, batcher: store.BatcherOf(inner), keys: keys, depth: 1, outlet: inner}
	if below, ok := store.As[*Store](inner); ok {
		s.depth += below.depth
	}
	if s.depth > maxDepth {
		return nil, fmt.Errorf("%w: seal: the store is already sealed %d times, and full appends would no longer fit; seal it once", store.ErrInvalid, maxDepth)
	}
	s.prefix = prefixOf(s.depth)
	key, err := s.openRoot(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.root = rootOf(key)
	if caster, ok := store.As[store.Caster](inner); ok {
		s.outlet = &casts{Store: inner, caster: caster, root: s.root}
	}
	return s, nil
}

// prefixOf returns what the keys of the cells with data keys begin with.
func prefixOf(depth int) string { return strings.Repeat("~", depth) + "seal/" }

// openRoot returns the data key of the cells, and creates it in a new store.
func (s *Store) openRoot(ctx context.Context) ([]byte, error) {
	root, err := s.loadKey(ctx, s.rootCell())
	if !errors.Is(err, errNoKey) {
		return root, err
	}
	found, err := s.holds(ctx)
	if err != nil {
		return nil, fmt.Errorf("seal: check whether the store is new: %w", err)
	}
	if found == "" {
		return s.makeKey(ctx, s.rootCell())
	}
	// Another writer may have created the key, and written, since the first look.
	root, err = s.loadKey(ctx, s.rootCell())
	if errors.Is(err, errNoKey) {
		return nil, fmt.Errorf("%w: seal: the store holds %s but no data key in cell %q: it was written without encryption, or that cell is lost; seal a new store and copy into it, or restore a backup", store.ErrKey, found, s.rootCell())
	}
	return root, err
}

// holds names something that the store inside holds, or returns "" if it is empty.
func (s *Store) holds(ctx context.Context) (string, error) {
	for name, err := range s.inner.Journals(ctx, "") {
		return fmt.Sprintf("journal %q", name), err
	}
	for cell, err := range s.inner.List(ctx, "", "") {
		return fmt.Sprintf("cell %q", cell.Key), err
	}
	return "", nil
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := s.checkAppend(journal, entries); err != nil {
		return 0, err
	}
	box, err := s.writeBox(ctx, journal, after)
	if err != nil {
		return 0, err
	}
	last, err := s.inner.Append(ctx, journal, after, lockEntries(box, journal, after, entries)...)
	if errors.Is(err, store.ErrDropped) {
		// The data key may have been created after the drop removed it. If this
		// fails, a repeated Drop removes it.
		_ = s.shred(ctx, journal)
	}
	return last, err
}

func lockEntries(box cipher.AEAD, journal string, after uint64, entries [][]byte) [][]byte {
	sealed := make([][]byte, len(entries))
	for i, e := range entries {
		sealed[i] = lock(box, e, bound(entryKind, journal, after+1+uint64(i)))
	}
	return sealed
}

// checkAppend refuses an append that is invalid or would not fit, before a data
// key is created for it.
func (s *Store) checkAppend(journal string, entries [][]byte) error {
	if err := store.CheckAppend(journal, entries); err != nil {
		return err
	}
	size := 0
	for _, e := range entries {
		size += len(e) + s.depth*overhead
	}
	return s.fits(size, fmt.Sprintf("append to %q", journal))
}

func (s *Store) fits(size int, what string) error {
	if size > store.MaxEntry+store.Slack {
		return fmt.Errorf("%w: %s has %d bytes when sealed; use at most %d before sealing, and put larger values into a blob", store.ErrTooLarge, what, size, store.MaxEntry)
	}
	return nil
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		var box cipher.AEAD
		for e, err := range s.inner.Read(ctx, journal, after) {
			if err == nil && box == nil {
				box, err = s.readBox(ctx, journal, e)
			}
			if err == nil {
				e, err = openEntry(box, journal, e)
			}
			if err != nil {
				if errors.Is(err, store.ErrDropped) {
					s.boxes.forget(journal)
				}
				yield(store.Entry{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func openEntry(box cipher.AEAD, journal string, e store.Entry) (store.Entry, error) {
	plain, reason := unlock(box, e.Data, bound(entryKind, journal, e.Seq))
	if reason != "" {
		return e, corruptEntry(journal, e.Seq, reason)
	}
	return store.Entry{Seq: e.Seq, Data: plain}, nil
}

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return s.inner.Journals(ctx, after)
}

// Drop implements store.Store. It removes the journal and then its data key, so
// that copies of its entries cannot be read.
func (s *Store) Drop(ctx context.Context, journal string) error {
	if err := s.inner.Drop(ctx, journal); err != nil {
		return err
	}
	return s.shred(ctx, journal)
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := s.checkKey(key); err != nil {
		return store.Cell{}, err
	}
	cell, err := s.inner.Get(ctx, key)
	if err != nil {
		return store.Cell{}, err
	}
	return s.openCell(cell)
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	sealed, err := s.lockCell(key, value)
	if err != nil {
		return "", err
	}
	return s.inner.Put(ctx, key, sealed, prev)
}

// PutUnsynced implements store.Unsynced.
func (s *Store) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	sealed, err := s.lockCell(key, value)
	if err != nil {
		return "", err
	}
	return store.PutUnsynced(ctx, s.inner, key, sealed, prev)
}

// lockCell returns the value of a cell as stored.
func (s *Store) lockCell(key string, value []byte) ([]byte, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	if err := store.CheckPut(key, value); err != nil {
		return nil, err
	}
	if err := s.fits(len(value)+s.depth*overhead, fmt.Sprintf("the value of cell %q", key)); err != nil {
		return nil, err
	}
	return lock(s.root(cellKind, key), value, bound(cellKind, key, 0)), nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := s.checkKey(key); err != nil {
		return err
	}
	return s.inner.Delete(ctx, key, prev)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		var damage error // reported after all intact cells
		for cell, err := range s.inner.List(ctx, prefix, after) {
			if err != nil {
				yield(store.Cell{}, err)
				return
			}
			if strings.HasPrefix(cell.Key, s.prefix) {
				continue
			}
			if cell, err = s.openCell(cell); err != nil {
				damage = cmp.Or(damage, err)
			} else if !yield(cell, nil) {
				return
			}
		}
		if damage != nil {
			yield(store.Cell{}, damage)
		}
	}
}

// Count implements store.Counter.
func (s *Store) Count(ctx context.Context, prefix string) (int, error) {
	n, err := store.Count(ctx, s.inner, prefix)
	if err != nil || !strings.HasPrefix(s.prefix, prefix) && !strings.HasPrefix(prefix, s.prefix) {
		return n, err
	}
	own, err := store.Count(ctx, s.inner, max(prefix, s.prefix))
	return n - own, err
}

func (s *Store) openCell(c store.Cell) (store.Cell, error) {
	plain, reason := unlock(s.root(cellKind, c.Key), c.Value, bound(cellKind, c.Key, 0))
	if reason != "" {
		return store.Cell{}, corruptCell(c, reason)
	}
	c.Value = plain
	return c, nil
}

func (s *Store) checkKey(key string) error {
	if strings.HasPrefix(key, s.prefix) {
		return fmt.Errorf("%w: cell %q: keys that begin with %q are reserved for data keys; use another", store.ErrInvalid, key, s.prefix)
	}
	return nil
}

// Close implements store.Store. It also closes the store inside.
func (s *Store) Close() error {
	s.boxes.forgetAll()
	return s.inner.Close()
}

// Unwrap implements store.Wrapper.
func (s *Store) Unwrap() store.Store { return s.outlet }
