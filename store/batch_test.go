package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// batchForms are a store that can batch, one that cannot, and a wrapper around
// such a one.
var batchForms = map[string]func(store.Store) store.Store{
	"batch":   func(s store.Store) store.Store { return s },
	"single":  func(s store.Store) store.Store { return plain{s} },
	"wrapped": func(s store.Store) store.Store { return faulty.New(plain{s}, nil) },
}

// turn is what AppendWith is tested with: a journal with an entry, three cells
// that are required and two that are not.
type turn struct {
	*memstore.Store
	batch store.Batch
}

func newTurn(t *testing.T) *turn {
	m := &turn{Store: memstore.New()}
	must := func(v store.Version, err error) store.Version {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	_, err := m.Append(t.Context(), "j", 0, []byte("first"))
	must("", err)
	old, gone, opt := must(m.Put(t.Context(), "old", nil, "")), must(m.Put(t.Context(), "gone", nil, "")), must(m.Put(t.Context(), "opt", nil, ""))
	m.batch = store.Batch{Journal: "j", After: 1, Entries: [][]byte{[]byte("ours"), []byte("too")}, Cells: []store.Write{
		{Key: "opt", Value: []byte("ours"), Prev: opt, Optional: true},
		{Key: "new", Value: []byte("ours")},
		{Key: "old", Value: []byte("ours"), Prev: old},
		{Key: "gone", Prev: gone, Remove: true},
		{Key: "last", Value: []byte("ours"), Optional: true},
	}}
	return m
}

// state says how much of the batch is there: entries, and required cells.
func (m *turn) state(t *testing.T) (entries, cells int) {
	t.Helper()
	all, err := store.ReadAll(t.Context(), m.Store, "j", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if string(e.Data) == "ours" || string(e.Data) == "too" {
			entries++
		}
	}
	for _, key := range []string{"new", "old"} {
		if cell, _ := m.Get(t.Context(), key); string(cell.Value) == "ours" {
			cells++
		}
	}
	if _, err := m.Get(t.Context(), "gone"); errors.Is(err, store.ErrNotFound) {
		cells++
	}
	return entries, cells
}

// TestAppendWithOrder compares the calls that reach the store inside.
func TestAppendWithOrder(t *testing.T) {
	for name, want := range map[string][]string{
		"batch":   {"append j"},
		"single":  {"put new", "put old", "delete gone", "append j", "put opt", "put last"},
		"wrapped": {"put new", "put old", "delete gone", "append j", "put opt", "put last"},
	} {
		m := newTurn(t)
		var calls []string
		inside := faulty.New(m.Store, func(c faulty.Call) faulty.Fault {
			calls = append(calls, fmt.Sprint(c.Op, " ", c.Name))
			return faulty.None
		})
		if last, err := store.AppendWith(t.Context(), batchForms[name](inside), m.batch); last != 3 || err != nil {
			t.Errorf("%s: AppendWith = %d, %v", name, last, err)
		}
		if !slices.Equal(calls, want) {
			t.Errorf("%s: the calls are %q, want %q", name, calls, want)
		}
		if entries, cells := m.state(t); entries != 2 || cells != 3 {
			t.Errorf("%s: %d entries and %d cells are there", name, entries, cells)
		}
	}
	m := newTurn(t)
	m.batch.Cells = nil
	if last, err := store.AppendWith(t.Context(), m.Store, m.batch); last != 3 || err != nil {
		t.Errorf("without cells: AppendWith = %d, %v", last, err)
	}
}

// rivals write before AppendWith does, and say how it has to end.
var rivals = []struct {
	name  string
	write func(ctx context.Context, m *turn) error
	want  error
	cell  string // of the CellConflict
}{
	{name: "nobody", write: func(context.Context, *turn) error { return nil }},
	{name: "another entry", want: store.ErrConflict, write: func(ctx context.Context, m *turn) error {
		_, err := m.Append(ctx, "j", 1, []byte("rival"))
		return err
	}},
	{name: "another cell", want: store.ErrConflict, cell: "old", write: func(ctx context.Context, m *turn) error {
		_, err := m.Put(ctx, "old", []byte("rival"), m.batch.Cells[2].Prev)
		return err
	}},
	{name: "an optional cell", write: func(ctx context.Context, m *turn) error {
		_, err := m.Put(ctx, "opt", []byte("rival"), m.batch.Cells[0].Prev)
		return err
	}},
	{name: "a drop", want: store.ErrDropped, write: func(ctx context.Context, m *turn) error { return m.Drop(ctx, "j") }},
}

// TestAppendWithFaults lets single calls fail, and many, beside each rival.
func TestAppendWithFaults(t *testing.T) {
	for form, wrap := range batchForms {
		for _, rival := range rivals {
			t.Run(form+"/"+rival.name, func(t *testing.T) {
				for cut, plan := range faulty.SweepCalls(faulty.CrashBefore, faulty.CrashAfter, faulty.FailBefore, faulty.FailAfter, faulty.FailAmid(0), faulty.Conflict) {
					appendWithFault(t, cut, form, wrap, plan, rival.write, rival.want, rival.cell)
				}
				for seed := range uint64(300) {
					plan := faulty.Random(seed, faulty.Rate{Fault: faulty.FailBefore, P: 0.15}, faulty.Rate{Fault: faulty.FailAfter, P: 0.15},
						faulty.Rate{Fault: faulty.Conflict, P: 0.15}, faulty.Rate{Fault: faulty.CrashAfter, P: 0.02})
					appendWithFault(t, fmt.Sprint("seed ", seed), form, wrap, plan, rival.write, rival.want, rival.cell)
				}
			})
		}
	}
}

func appendWithFault(t *testing.T, cut, form string, wrap func(store.Store) store.Store, plan faulty.Plan, rival func(context.Context, *turn) error, want error, cell string) {
	synctest.Test(t, func(t *testing.T) {
		m := newTurn(t)
		if err := rival(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		inside := faulty.New(m.Store, plan)
		last, err := store.AppendWith(t.Context(), wrap(inside), m.batch)
		entries, cells := 0, 0
		if want != store.ErrDropped {
			entries, cells = m.state(t)
		}
		stale := (*store.CellConflict)(nil)
		switch {
		case want == nil && err == nil:
			if last != 3 || entries != 2 || cells != 3 {
				t.Errorf("%s: AppendWith = %d, with %d entries and %d cells", cut, last, entries, cells)
			}
		case errors.Is(err, store.ErrUnknown):
			if !inside.Crashed() {
				t.Errorf("%s: AppendWith = %v, though the store goes on", cut, err)
			}
		case want == nil || !errors.Is(err, want):
			t.Errorf("%s: AppendWith = %v, want %v or ErrUnknown", cut, err, want)
		case cell != "" && (!errors.As(err, &stale) || stale.Key != cell):
			t.Errorf("%s: AppendWith = %v (%T), want a *CellConflict of %q", cut, err, err, cell)
		case entries != 0:
			t.Errorf("%s: AppendWith = %v, and %d entries are there", cut, err, entries)
		}
		if entries != 0 && (entries != 2 || cells != 3) || entries == 0 && cells != 0 && form == "batch" && want != store.ErrDropped {
			t.Errorf("%s: %d entries and %d cells are there", cut, entries, cells)
		}
	})
}

// TestAppendWithGivesUp has a store that fails for ever, and a context that ends.
func TestAppendWithGivesUp(t *testing.T) {
	for form, wrap := range batchForms {
		synctest.Test(t, func(t *testing.T) {
			m := newTurn(t)
			broken := wrap(faulty.New(m.Store, func(faulty.Call) faulty.Fault { return faulty.FailBefore }))
			if _, err := store.AppendWith(t.Context(), broken, m.batch); !errors.Is(err, store.ErrUnknown) {
				t.Errorf("%s: AppendWith on a store that fails = %v, want ErrUnknown", form, err)
			}
			ctx, cancel := context.WithTimeout(store.Patient(t.Context()), 1<<40)
			defer cancel()
			if _, err := store.AppendWith(ctx, broken, m.batch); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: AppendWith until its context ends = %v, want ErrUnknown and why", form, err)
			}
			if _, err := store.AppendWith(ctx, m.Store, m.batch); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: AppendWith with a context that has ended = %v", form, err)
			}
			if entries, cells := m.state(t); entries != 0 || cells != 0 {
				t.Errorf("%s: %d entries and %d cells are there", form, entries, cells)
			}
		})
	}
}

// TestBatcherOf looks through wrappers that forward batches, and not through others.
func TestBatcherOf(t *testing.T) {
	m := memstore.New()
	for _, tt := range []struct {
		s    store.Store
		want bool
	}{
		{m, true}, {plain{m}, false}, {wrapped{plain{m}}, false}, {faulty.New(m, nil), true}, {faulty.New(faulty.New(plain{m}, nil), nil), false},
	} {
		if got := store.BatcherOf(tt.s); (got != nil) != tt.want {
			t.Errorf("BatcherOf(%T) = %v", tt.s, got)
		}
	}
}
