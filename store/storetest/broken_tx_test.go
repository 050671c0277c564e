package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func init() { maps.Copy(breaks, txBreaks) }

// TestTransactions runs the cases about transactions against a store that has
// them and is not broken.
func TestTransactions(t *testing.T) {
	for _, c := range txCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, breakStore(func(b *broken) { b.tx = new(txFlaw) })) })
	}
}

// txFlaw is what is wrong with the transactions of a broken store.
type txFlaw struct {
	firstPut, leavesCells, leavesPuts, staysOpen, ignoresContext, twice, afterClose, ownCommit bool
}

var txBreaks = map[string]func(*broken){
	"transaction/commits all": func(b *broken) { b.tx = &txFlaw{firstPut: true} },
	"transaction/conditions":  func(b *broken) { b.tx = &txFlaw{leavesCells: true} },
	"transaction/rollback":    func(b *broken) { b.tx = &txFlaw{leavesPuts: true} },
	"transaction/refused":     func(b *broken) { b.tx = &txFlaw{staysOpen: true} },
	"transaction/context":     func(b *broken) { b.tx = &txFlaw{ignoresContext: true} },
	"transaction/others":      func(b *broken) { b.tx = &txFlaw{twice: true} },
	"transaction/close":       func(b *broken) { b.tx = &txFlaw{afterClose: true} },
	"transaction/joined":      func(b *broken) { b.tx = &txFlaw{ownCommit: true} },
	"transaction/wakes": func(b *broken) { // forgets those who watch what Put wrote
		b.tx = new(txFlaw)
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			return func(yield func(struct{}) bool) {
				for range b.Store.Watch(ctx, prefix) {
					if !yield(struct{}{}) {
						return
					}
					if prefix == "put" {
						<-ctx.Done()
					}
				}
			}
		}
	},
}

// transacting is a broken store with transactions.
type transacting struct{ *broken }

func (s transacting) Begin(ctx context.Context, native any) (store.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	program, ok := native.(*memTx)
	if native != nil && !ok {
		return nil, store.ErrInvalid
	}
	return &memTx{txFlaw: s.tx, ctx: ctx, s: s.broken, program: program, puts: map[string]store.Write{}, versions: map[string]store.Version{}}, nil
}

// memTx keeps what it is given until it is committed.
type memTx struct {
	*txFlaw
	ctx      context.Context
	s        *broken
	mu       sync.Mutex
	puts     map[string]store.Write
	versions map[string]store.Version
	over     bool

	program *memTx        // that it has joined
	joined  []store.Batch // by others
}

func (t *memTx) Native() any { return t }

func (t *memTx) Rollback() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leavesPuts && !t.over && t.program == nil && t.joined == nil {
		for _, w := range t.puts {
			_, _ = t.s.Store.Put(t.ctx, w.Key, w.Value, w.Prev)
		}
	}
	t.over = true
	return nil
}

func (t *memTx) ended() error {
	if err := context.Cause(t.ctx); err != nil && !t.ignoresContext {
		return store.RolledBack(err)
	}
	if t.over {
		return store.RolledBack(errors.New("it is over"))
	}
	return nil
}

func (t *memTx) Put(_ context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ended(); err != nil {
		return "", err
	}
	now := cmp.Or(t.versions[key], t.s.current(key))
	if now != prev {
		return "", store.NotVersion(key, prev, now)
	}
	if w, again := t.puts[key]; !again {
		t.puts[key] = store.Write{Key: key, Value: bytes.Clone(value), Prev: prev}
	} else if !t.firstPut {
		w.Value = bytes.Clone(value)
		t.puts[key] = w
	}
	t.versions[key] = store.Version(fmt.Sprint("in the transaction ", len(t.versions), len(value)))
	return t.versions[key], nil
}

func (t *memTx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ended(); err != nil {
		return 0, err
	}
	all := b
	all.Cells = slices.Collect(maps.Values(t.puts))
	for _, w := range b.Cells {
		if version := t.versions[w.Key]; version == "" {
			all.Cells = append(all.Cells, w)
		}
	}
	s := t.s.Store
	if t.program != nil && !t.ownCommit {
		last, err := t.join(ctx, all)
		t.over = !errors.Is(err, store.ErrConflict)
		return last, err
	}
	for _, other := range t.joined {
		_, _ = s.AppendBatch(ctx, other)
	}
	if t.afterClose {
		s = memstore.Open(t.s.dir)
	}
	last, err := s.AppendBatch(ctx, all)
	if cell := (*store.CellConflict)(nil); t.leavesCells && errors.As(err, &cell) {
		for _, w := range b.Cells {
			_, _ = s.Put(ctx, w.Key, w.Value, w.Prev)
		}
	}
	if t.twice && err == nil && b.Journal == "shared" {
		_, _ = s.Append(ctx, b.Journal, last, b.Entries...)
	}
	t.over = !errors.Is(err, store.ErrConflict) && (err == nil || !t.staysOpen)
	return last, err
}

// join leaves a batch to the commit of the program's transaction.
func (t *memTx) join(ctx context.Context, b store.Batch) (uint64, error) {
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	if all, err := store.ReadAll(ctx, t.s.Store, b.Journal, 0); err != nil || uint64(len(all)) != b.After {
		return 0, errors.Join(err, store.NotAtEnd(b.Journal, b.After, uint64(len(all))))
	}
	t.program.joined = append(t.program.joined, b)
	return b.After + uint64(len(b.Entries)), nil
}
