package threads_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// counted is a store that counts the entries read from it, and may change them.
type counted struct {
	store.Store
	entries atomic.Int64
	change  func(store.Entry) store.Entry
}

func (c *counted) Unwrap() store.Store { return c.Store }

func (c *counted) Read(ctx context.Context, name string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range c.Store.Read(ctx, name, after) {
			c.entries.Add(1)
			if c.change != nil && err == nil {
				e = c.change(e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// The flow say appends a long text to a list, and look checks as many of its
// newest values as its input says.
var (
	say = perdure.NewFlow("say", func(ctx context.Context, in string) (string, error) {
		return perdure.Step(ctx, "say", func(ctx context.Context) (string, error) {
			return long(in), kit.Items.AppendResult(ctx)
		})
	})
	look = perdure.NewFlow("look", func(ctx context.Context, in int) (n int, err error) {
		for text, err := range kit.Items.Backward(ctx) {
			if err != nil || n == in {
				return n, err
			}
			if text != long(fmt.Sprint("text ", 99-n)) {
				return n, perdure.Permanent(fmt.Errorf("the %dth from the end is %q", n, text))
			}
			n++
		}
		return n, nil
	})
)

// talked returns a store with a thread of a hundred runs.
func talked(t *testing.T) *memstore.Store {
	t.Helper()
	s := memstore.New()
	k := kit.New(t, s, perdure.Options{}, say)
	for i := range 100 {
		k.StartOn("t", "say", fmt.Sprint("text ", i))
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
	}
	k.Stop()
	return s
}

// TestSnapshotsLeaveLongValuesInTheJournal: a snapshot holds no long values, a
// reader of a list reads no more of the journal than the values it needs, and
// nothing is read twice.
func TestSnapshotsLeaveLongValuesInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := talked(t)
		if cell := snapshotCell(t, inner); len(cell.Value) == 0 || bytes.Contains(cell.Value, []byte("----")) {
			t.Fatalf("the snapshot is %.200q", cell.Value)
		}
		s := &counted{Store: inner}
		k := kit.New(t, s, perdure.Options{}, look)
		entries := func(n int) int64 {
			t.Helper()
			before := s.entries.Load()
			k.StartOn("t", "look", n)
			if run := k.WaitFor("t", perdure.Succeeded); string(run.Output) != fmt.Sprint(n) {
				t.Fatalf("it saw %s", run.Output)
			}
			synctest.Wait()
			return s.entries.Load() - before
		}
		begin := entries(0)
		few := entries(5)
		all := entries(100)
		again := entries(100)
		t.Logf("entries read: %d to begin with, %d for the last values, %d for all values, %d again", begin, few, all, again)
		if last := k.MustStateAt("t", 0).Seq; begin > int64(last)/2 || all < 200 || again > 20 {
			t.Errorf("of %d entries, %d were read to begin with, %d for all values, %d again", last, begin, all, again)
		}
	})
}

// TestThreadsTooHeavyToKeep: a thread whose values are too large for a kept fold is
// restored from its snapshot, which is small, and a run reads no more entries than
// before.
func TestThreadsTooHeavyToKeep(t *testing.T) {
	fill := perdure.NewFlow("fill", func(ctx context.Context, in string) (bool, error) {
		_, err := perdure.Step(ctx, "fill", func(ctx context.Context) (string, error) {
			return strings.Repeat("x", 60<<10), kit.Items.AppendResult(ctx)
		})
		return true, err
	})
	synctest.Test(t, func(t *testing.T) {
		s := &counted{Store: memstore.New()}
		k := kit.New(t, s, perdure.Options{}, fill)
		most := int64(0)
		for i := range 450 { // of 27 MB
			before := s.entries.Load()
			k.StartOn("t", "fill", fmt.Sprint(i))
			k.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			most = max(most, s.entries.Load()-before)
		}
		t.Logf("a run read at most %d entries", most)
		if most > 300 {
			t.Errorf("a run read %d entries", most)
		}
	})
}

// TestValuesThatAreNotWhereASnapshotSays: a snapshot with a wrong place is detected
// and dropped, and a damaged entry is reported.
func TestValuesThatAreNotWhereASnapshotSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := talked(t)
		want := reader(t, inner, blind).MustStateAt("t", 0)
		restored, err := journal.Restore(snapshotCell(t, inner).Value[1:])
		kit.NoErr(t, err)
		for what, place := range map[string]journal.Place{"the first entry": 1, "a claim": 3, "no entry": 1 << 40, "no such value": 4 | 7<<48} {
			lie := restored.Clone()
			lie.State["list"].Tail.Value = journal.Value{At: place}
			data, err := lie.Snapshot()
			kit.NoErr(t, err)
			value := append([]byte("h"), data...)
			s := memstore.New()
			for cell, err := range inner.List(t.Context(), "", "") {
				kit.NoErr(t, err)
				if strings.HasPrefix(cell.Key, "snapshot/") {
					cell.Value = value
				}
				_, err = s.Put(t.Context(), cell.Key, cell.Value, "")
				kit.NoErr(t, err)
			}
			name := kit.Journals(t, inner)[0]
			lines, err := store.ReadAll(t.Context(), inner, name, 0)
			kit.NoErr(t, err)
			for i := range lines {
				_, err := s.Append(t.Context(), name, uint64(i), lines[i].Data)
				kit.NoErr(t, err)
			}
			r := reader(t, s, nil)
			_, err = r.StateAt(t.Context(), "t", 0)
			kit.WantErr(t, what, err, perdure.ErrCorrupt)
			if cell := snapshotCell(t, s); len(cell.Value) != 0 {
				t.Errorf("%s: the snapshot is still there", what)
			}
			got, err := r.StateAt(t.Context(), "t", 0)
			if err != nil || !bytes.Equal(got.State["list"], want.State["list"]) {
				t.Errorf("%s: after it the state is %v, %v", what, got, err)
			}
		}

		damaged := &counted{Store: inner, change: func(e store.Entry) store.Entry {
			e.Data = bytes.Replace(e.Data, []byte("text 7-"), []byte("text 8-"), 1)
			return e
		}}
		r := reader(t, damaged, nil)
		_, err = r.StateAt(t.Context(), "t", 0)
		kit.WantErr(t, "a damaged entry", err, perdure.ErrCorrupt)
		if _, err := r.Get(t.Context(), "t"); err != nil {
			t.Errorf("what needs no damaged entry: %v", err)
		}
	})
}
