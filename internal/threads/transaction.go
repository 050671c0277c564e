package threads

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// TxCells is a store whose Put writes in a transaction. It is for blobs, which are
// read back only to see whether they are there.
type TxCells struct {
	store.Store
	tx  store.Tx
	put map[string]store.Cell // that it wrote
}

// NewTxCells returns the cells of a transaction of s.
func NewTxCells(s store.Store, tx store.Tx) *TxCells {
	return &TxCells{Store: s, tx: tx, put: map[string]store.Cell{}}
}

// Get implements store.Store.
func (t *TxCells) Get(ctx context.Context, key string) (store.Cell, error) {
	if cell, ok := t.put[key]; ok {
		return cell, nil
	}
	return t.Store.Get(ctx, key)
}

// Put implements store.Store.
func (t *TxCells) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	version, err := t.tx.Put(ctx, key, value, prev)
	if err == nil {
		t.put[key] = store.Cell{Key: key, Value: value, Version: version}
	}
	return version, err
}

// BeginIn is Begin in a transaction that the program will commit, or not. Nothing
// of the thread is kept in memory: it may never be there.
func (c *Threads) BeginIn(ctx context.Context, tx store.Tx, name string, cells []store.Write, decide func(*journal.Thread) (lines []Line, flows []string, err error)) (*Opened, error) {
	o := Empty(name)
	if err := c.CheckMoved(ctx); err != nil {
		return nil, err
	}
	lines, flows, err := decide(o.Thread)
	if err != nil {
		return nil, err
	}
	entries, data, err := encodeLines(nil, o.Thread, lines, createdAt(name))
	if err != nil {
		return nil, err
	}
	summary, err := c.firstSummary(name, entries)
	if err != nil {
		return nil, err
	}
	hints, err := c.hints(ctx, name, 1, flows, true)
	if err != nil {
		return nil, err
	}
	cells, err = c.fit(ctx, name, slices.Concat(cells, summary), store.MaxWrites-len(hints))
	if err != nil {
		return nil, err
	}
	_, err = tx.Commit(ctx, store.Batch{Journal: JournalKey(name), Entries: data, Cells: slices.Concat(cells, hints)})
	if errors.Is(err, store.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", fault.ErrTooLarge, err)
	}
	for i := 0; err == nil && i < len(entries); i++ {
		err = c.Fold(ctx, o, entries[i])
	}
	return o, err
}
