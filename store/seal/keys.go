package seal

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/perdure/perdure/store"
)

// errNoKey means that a data key has no cell. It never leaves the package.
var errNoKey = errors.New("seal: no data key")

// rootCell is the key of the cell with the data key of all cells.
func (s *Store) rootCell() string { return s.prefix + "cells" }

// keyCell is the key of the cell with a journal's data key. The name is
// hashed, since a journal's name may already be as long as a cell's may be.
func (s *Store) keyCell(journal string) string {
	hash := sha256.Sum256([]byte(journal))
	return s.prefix + "j/" + hex.EncodeToString(hash[:])
}

// loadKey returns the data key in a cell, or errNoKey.
func (s *Store) loadKey(ctx context.Context, cell string) ([]byte, error) {
	c, err := s.inner.Get(ctx, cell)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errNoKey
	}
	if err != nil {
		return nil, fmt.Errorf("seal: get the data key in cell %q: %w", cell, err)
	}
	return s.unwrap(ctx, cell, c.Value)
}

func (s *Store) unwrap(ctx context.Context, cell string, wrapped []byte) ([]byte, error) {
	key, err := s.keys.Unwrap(ctx, wrapped, []byte(cell))
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%w: the key ring returned a data key of %d bytes, want %d", store.ErrKey, len(key), keySize)
	}
	if err != nil {
		return nil, fmt.Errorf("seal: unwrap the data key in cell %q: %w", cell, err)
	}
	return key, nil
}

// makeKey returns the data key in a cell, and creates it if there is none.
// Concurrent callers get the same key.
func (s *Store) makeKey(ctx context.Context, cell string) ([]byte, error) {
	fresh := make([]byte, keySize)
	rand.Read(fresh)
	var there []byte
	errThere := errors.New("made by another")
	_, err := store.Update(ctx, s.inner, cell, func(old store.Cell) ([]byte, error) {
		if old.Version != "" {
			there = old.Value
			return nil, errThere
		}
		return s.keys.Wrap(ctx, fresh, []byte(cell))
	})
	switch {
	case err == nil:
		return fresh, nil
	case errors.Is(err, errThere):
		return s.unwrap(ctx, cell, there)
	}
	return nil, fmt.Errorf("seal: create the data key in cell %q: %w", cell, err)
}

// writeBox returns the box for an append to a journal, and creates the journal's
// data key before its first entry.
func (s *Store) writeBox(ctx context.Context, journal string, after uint64) (cipher.AEAD, error) {
	box, err := s.findBox(ctx, journal, after)
	if err != nil || box != nil {
		return box, err
	}
	if err := s.announce(ctx); err != nil {
		return nil, err
	}
	key, err := s.makeKey(ctx, s.keyCell(journal))
	if err != nil {
		return nil, err
	}
	return s.boxes.put(journal, newBox(key)), nil
}

// findBox is writeBox for a journal that has a data key. If the append is its
// first and there is no key, the box is nil.
func (s *Store) findBox(ctx context.Context, journal string, after uint64) (cipher.AEAD, error) {
	if box := s.boxes.get(journal); box != nil {
		return box, nil
	}
	cell := s.keyCell(journal)
	// A data key is never younger than its journal's first entry, even to
	// readers, and is only removed after a drop. So if the key is missing, then
	// an entry is seen, and then both again, no writer interfered: the key is lost.
	for seen := false; ; seen = true {
		key, err := s.loadKey(ctx, cell)
		if err == nil {
			return s.boxes.put(journal, newBox(key)), nil
		}
		if !errors.Is(err, errNoKey) {
			return nil, err
		}
		first, found, err := s.first(ctx, journal)
		switch {
		case err != nil:
			return nil, err
		case found && seen:
			return nil, lostKey(journal, first)
		case found:
		case after > 0:
			return nil, store.NotAtEnd(journal, after, 0)
		default:
			return nil, nil
		}
	}
}

// readBox returns the box of a journal in which entry e was found.
func (s *Store) readBox(ctx context.Context, journal string, e store.Entry) (cipher.AEAD, error) {
	if box := s.boxes.get(journal); box != nil {
		return box, nil
	}
	key, err := s.loadKey(ctx, s.keyCell(journal))
	if err == nil {
		return s.boxes.put(journal, newBox(key)), nil
	}
	if !errors.Is(err, errNoKey) {
		return nil, err
	}
	// If the journal was dropped since e was read, that is the reason.
	if _, _, err := s.first(ctx, journal); err != nil {
		return nil, err
	}
	return nil, lostKey(journal, e)
}

// first returns a journal's first entry as stored, if it has one.
func (s *Store) first(ctx context.Context, journal string) (e store.Entry, found bool, err error) {
	for e, err := range s.inner.Read(ctx, journal, 0) {
		return e, err == nil, err
	}
	return store.Entry{}, false, nil
}

// lostKey returns the error for a journal that has entry e but no data key.
func lostKey(journal string, e store.Entry) error {
	if !isSealed(e.Data) {
		return corruptEntry(journal, e.Seq, notSealed)
	}
	return fmt.Errorf("%w: the data key of journal %q is gone, so the entries are shredded; drop the journal, or restore the store from a backup that includes its cells", store.ErrKey, journal)
}

// shred removes the data key of a dropped journal. It can be repeated.
func (s *Store) shred(ctx context.Context, journal string) error {
	s.boxes.forget(journal)
	cell := s.keyCell(journal)
	for {
		c, err := s.inner.Get(ctx, cell)
		if err == nil {
			err = s.inner.Delete(ctx, cell, c.Version)
		}
		switch {
		case err == nil, errors.Is(err, store.ErrNotFound):
			return nil
		case !errors.Is(err, store.ErrConflict): // a rotation may have written it
			return fmt.Errorf("seal: delete the data key of dropped journal %q; drop it again: %w", journal, err)
		}
	}
}

// maxBoxes bounds how many journals' data keys are kept in memory.
const maxBoxes = 4096

// boxes keeps the boxes of recently used journals.
type boxes struct {
	mu sync.Mutex
	m  map[string]cipher.AEAD
}

func (b *boxes) get(journal string) cipher.AEAD {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.m[journal]
}

func (b *boxes) put(journal string, box cipher.AEAD) cipher.AEAD {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m == nil {
		b.m = map[string]cipher.AEAD{}
	}
	for other := range b.m { // any one
		if len(b.m) < maxBoxes {
			break
		}
		delete(b.m, other)
	}
	b.m[journal] = box
	return box
}

func (b *boxes) forget(journal string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.m, journal)
}

func (b *boxes) forgetAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.m)
}
