package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync/atomic"

	"github.com/perdure/perdure/store"
)

func init() {
	store.Register("file", func(ctx context.Context, url string) (store.Store, error) {
		url, shared := strings.CutSuffix(url, store.SharedFolder)
		dir, err := dirOf(url)
		if err != nil {
			return nil, err
		}
		return Open(ctx, dir, Options{SharedFolder: shared})
	})
}

// dirOf returns the folder of a URL: everything after "file:", verbatim, or an
// absolute path after "file://".
func dirOf(url string) (string, error) {
	dir := strings.TrimPrefix(url, "file:")
	path, slashes := strings.CutPrefix(dir, "//")
	switch {
	case !slashes:
		return dir, nil
	case !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("%w: filestore: %q names a host; write file:DIR, or file:///DIR for an absolute path", store.ErrInvalid, url)
	case os.PathSeparator == '\\':
		return strings.TrimPrefix(path, "/"), nil // file:///C:/data
	}
	return path, nil
}

// Options changes how a folder is opened.
type Options struct {
	// NoSync leaves it to the operating system when bytes reach the disk.
	// Writes are faster, and survive the death of the process but not a power
	// failure, which may also damage journals: the store's durability is
	// store.Process.
	NoSync bool

	// SharedFolder allows a new store to be created in a folder to which every
	// user of the machine may write: see [store.CheckFolder].
	SharedFolder bool
}

// Store is a handle on a folder.
type Store struct {
	*store.Hub
	folder *folder
	engine *engine // used by this handle to write
	closed atomic.Bool
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Caster  = (*Store)(nil)
	_ store.Durable = (*Store)(nil)
)

// Open opens the store in folder dir, and creates it if it does not exist; its
// parent must exist. It returns store.ErrLocked if another process has the store
// open, store.ErrForeign if dir holds something else, and store.ErrNewer if the
// store was created by a later version of this package.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	return openFolder(ctx, dir, o, osDisk{noSync: o.NoSync})
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.Stop()
	return s.folder.release()
}

// Durability implements store.Durable.
func (s *Store) Durability() store.Durability { return s.folder.class }

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// change runs a call that writes, unless the check of its arguments failed.
func (s *Store) change(ctx context.Context, check error, call func(e *engine) error) error {
	s.folder.gate.RLock()
	defer s.folder.gate.RUnlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	if check != nil {
		return check
	}
	if err := s.engine.poisoned(); err != nil {
		return err
	}
	return call(s.engine)
}

// reading runs a call that reads, although it may write to recover.
func (s *Store) reading(ctx context.Context, check error, call func(e *engine) error) error {
	s.folder.gate.RLock()
	defer s.folder.gate.RUnlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	if check != nil {
		return check
	}
	return call(s.folder.engine)
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (last uint64, err error) {
	err = s.change(ctx, store.CheckAppend(journal, entries), func(e *engine) (err error) {
		last, err = e.append(ctx, journal, after, entries)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.Wake(journal)
	return last, nil
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journalName string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		var j *journal
		var t tail
		err := s.reading(ctx, store.CheckName("journal", journalName), func(e *engine) (err error) {
			j, t, err = e.view(journalName)
			return err
		})
		switch {
		case err != nil:
			yield(store.Entry{}, err)
		case j != nil: // not under look: the loop's body may call the store, or pause
			j.read(t, after, func() error { return s.usable(ctx) }, yield)
		}
	}
}

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return s.names(ctx, after, func(e *engine, after string) ([]string, error, error) {
		return e.names(after, page)
	})
}

// page is how many names Journals and List take from an index at a time.
const page = 256

// names yields what next returns, page by page, and finally the damage.
func (s *Store) names(ctx context.Context, after string, next func(e *engine, after string) (names []string, damage, err error)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for more, after := true, after; more; {
			var names []string
			var damage error
			err := s.reading(ctx, nil, func(e *engine) (err error) {
				names, damage, err = next(e, after)
				return err
			})
			for _, name := range names {
				if err = s.usable(ctx); err != nil {
					break
				}
				if !yield(name, nil) {
					return
				}
				after = name
			}
			more = err == nil && len(names) == page
			if err = cmp.Or(err, damage); err != nil && !more {
				yield("", err)
			}
		}
	}
}

// Drop implements store.Store.
func (s *Store) Drop(ctx context.Context, journal string) error {
	err := s.change(ctx, store.CheckName("journal", journal), func(e *engine) error { return e.drop(ctx, journal) })
	if err == nil {
		s.Wake(journal)
	}
	return err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (c store.Cell, err error) {
	err = s.reading(ctx, store.CheckName("cell", key), func(e *engine) (err error) {
		c, err = e.get(key)
		return err
	})
	return c, err
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (version store.Version, err error) {
	err = s.change(ctx, store.CheckPut(key, value), func(e *engine) (err error) {
		version, err = e.put(ctx, key, value, prev)
		return err
	})
	if err == nil {
		s.Wake(key)
	}
	return version, err
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	err := s.change(ctx, store.CheckDelete(key, prev), func(e *engine) error { return e.delete(ctx, key, prev) })
	if err == nil {
		s.Wake(key)
	}
	return err
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	keys := s.names(ctx, after, func(e *engine, after string) ([]string, error, error) {
		return e.keys(prefix, after, page)
	})
	return func(yield func(store.Cell, error) bool) {
		var damage error // reported after all intact cells
		for key, err := range keys {
			var c store.Cell
			if err == nil {
				c, err = s.Get(ctx, key)
			}
			switch {
			case err == nil:
				if !yield(c, nil) {
					return
				}
			case errors.Is(err, store.ErrNotFound): // deleted meanwhile
			case s.usable(ctx) != nil:
				yield(store.Cell{}, err)
				return
			default: // of this cell alone
				damage = cmp.Or(damage, err)
			}
		}
		if damage != nil {
			yield(store.Cell{}, damage)
		}
	}
}
