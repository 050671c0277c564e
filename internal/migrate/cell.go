package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// pageBytes is the approximate number of bytes of cells in memory at a time.
const pageBytes = 8 << 20

// cells returns a page of the cells of a store after a key, and whether there may be
// more.
func cells(ctx context.Context, s store.Store, after string) (some []store.Cell, more bool, err error) {
	size := 0
	for cell, err := range s.List(ctx, "", after) {
		if err != nil {
			return nil, false, err
		}
		some = append(some, cell)
		if size += len(cell.Value); len(some) == page || size > pageBytes {
			return some, true, nil
		}
	}
	return some, false, nil
}

// copyCells makes the cells of the target equal to those of the source: it writes
// those that differ, and removes those that the source does not have. It ends after
// about so many cells at the latest: a source in use may grow faster than it is
// copied.
func (m *migration) copyCells(ctx context.Context, most int) error {
	m.left = 0
	seen := 0
	for after := ""; ; {
		ours, more, err := cells(ctx, m.from, after)
		if err != nil {
			return err
		}
		if err := m.held(ctx); err != nil {
			return err
		}
		upto := ""
		if more {
			upto = ours[len(ours)-1].Key
		}
		if err := m.copyPage(ctx, ours, after, upto); err != nil {
			return err
		}
		seen += len(ours)
		m.progress.Cells += len(ours)
		m.tell()
		if !more || seen >= most {
			return nil
		}
		after = upto
	}
}

// copyPage makes the cells of the target after one key and up to another equal to
// those of the source. If upto is "", it goes to the end.
func (m *migration) copyPage(ctx context.Context, ours []store.Cell, after, upto string) error {
	want, seen := map[string][]byte{}, map[string]store.Version{}
	for _, c := range ours {
		switch {
		case treat(c.Key) != copied:
		case m.onlySealed(c):
			m.left++
		default:
			want[c.Key] = c.Value
		}
	}
	var extra []store.Cell
	for c, err := range m.to.List(ctx, "", after) {
		if err != nil {
			return err
		}
		if upto != "" && c.Key > upto {
			break
		}
		value, ok := want[c.Key]
		delete(want, c.Key)
		if ok && bytes.Equal(value, c.Value) || treat(c.Key) != copied {
			continue
		}
		if ok {
			want[c.Key], seen[c.Key] = value, c.Version
		} else {
			extra = append(extra, c)
		}
	}
	for _, c := range extra {
		if err := m.to.Delete(ctx, c.Key, c.Version); err != nil {
			return fmt.Errorf("cell %q: %w", c.Key, err)
		}
	}
	return atOnce(ctx, want, func(ctx context.Context, key string, value []byte) error {
		_, err := store.Update(ctx, m.to, key, func(old store.Cell) ([]byte, error) {
			switch {
			case old.Version == seen[key]:
				return value, nil
			case bytes.Equal(old.Value, value):
				return nil, threads.ErrNothing
			}
			return nil, fmt.Errorf("%w: another process writes to the target; run the migration again", fault.ErrInvalid)
		})
		if err != nil && !errors.Is(err, threads.ErrNothing) {
			return fmt.Errorf("cell %q: %w", key, err)
		}
		return nil
	})
}

// writers is the number of cells that are written at the same time: stores commit
// what comes together at once.
const writers = 32

// atOnce calls write for several cells at a time, and returns the first error.
func atOnce(ctx context.Context, cells map[string][]byte, write func(ctx context.Context, key string, value []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := make(chan string)
	var all sync.WaitGroup
	for range min(writers, len(cells)) {
		all.Go(func() {
			for key := range keys {
				if ctx.Err() != nil {
					continue
				}
				if err := write(ctx, key, cells[key]); err != nil {
					cancel(err)
				}
			}
		})
	}
	for key := range cells {
		keys <- key
	}
	close(keys)
	all.Wait()
	return context.Cause(ctx)
}

// dropDropped drops the journals of the target that were dropped in the source: those
// that were copied earlier, and those that cells still name because their erase was
// interrupted.
func (m *migration) dropDropped(ctx context.Context) error {
	var names []string
	for name, err := range m.to.Journals(ctx, "") {
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	for _, prefix := range []string{threads.GateKey(""), archive.ImportKey("")} {
		for cell, err := range m.from.List(ctx, prefix, "") {
			if err != nil {
				return err
			}
			names = append(names, threads.JournalKey(strings.TrimPrefix(cell.Key, prefix)))
		}
	}
	for cell, err := range m.from.List(ctx, "id/", "") {
		if err != nil {
			return err
		}
		names = append(names, threads.JournalKey(string(cell.Value)))
	}
	for _, name := range names {
		for _, err := range m.from.Read(ctx, name, 0) {
			if errors.Is(err, store.ErrDropped) {
				err = m.to.Drop(ctx, name)
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}
