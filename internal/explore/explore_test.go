package explore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

func increment(old store.Cell) ([]byte, error) {
	n, _ := strconv.Atoi(string(old.Value))
	return []byte(strconv.Itoa(n + 1)), nil
}

// correct repeats what conflicts.
func correct(ctx context.Context, s store.Store) error {
	_, err := store.Update(ctx, s, "n", increment)
	return err
}

// once reads and writes, and returns a conflict.
func once(ctx context.Context, s store.Store) error {
	old, err := s.Get(ctx, "n")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	value, _ := increment(old)
	_, err = s.Put(ctx, "n", value, old.Version)
	return err
}

// broken takes a conflict for a success.
func broken(ctx context.Context, s store.Store) error {
	if err := once(ctx, s); !errors.Is(err, store.ErrConflict) {
		return err
	}
	return nil
}

func counts(want ...string) func(context.Context, store.Store) error {
	return func(ctx context.Context, s store.Store) error {
		cell, err := s.Get(ctx, "n")
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if !slices.Contains(want, string(cell.Value)) {
			return fmt.Errorf("the counter is %q, want one of %q", cell.Value, want)
		}
		return nil
	}
}

// two explores two actors that run fn.
func two(fn func(context.Context, store.Store) error, check func(context.Context, store.Store) error) func(*explore.World) {
	return func(w *explore.World) {
		w.Actor("a", fn)
		w.Actor("b", fn)
		w.Check(check)
	}
}

func mustFail(t *testing.T, r *explore.Report, words ...string) *explore.Failure {
	t.Helper()
	if r.Failure == nil {
		t.Fatalf("no failure was found in %v", r)
	}
	for _, word := range words {
		if !strings.Contains(r.Failure.Error(), word) {
			t.Errorf("the failure does not say %q:\n%v", word, r.Failure)
		}
	}
	return r.Failure
}

func TestLostUpdateIsFoundAndReplayed(t *testing.T) {
	setup := two(broken, counts("2"))
	r := explore.Explore(t, explore.Config{}, setup)
	f := mustFail(t, r, `a: get "n"`, `b: put "n"`, "store: conflict", "Replay: []int{")
	if len(f.Steps) != 4 {
		t.Errorf("the failure has %d steps, want 4: %q", len(f.Steps), f.Steps)
	}
	again := explore.Explore(t, explore.Config{Replay: f.Choices}, setup)
	if diff := cmp.Diff(f.Error(), mustFail(t, again).Error()); diff != "" {
		t.Errorf("the replay differs:\n%s", diff)
	}
	if again.Executions != 1 {
		t.Errorf("the replay ran %d executions", again.Executions)
	}
	if other := explore.Explore(t, explore.Config{Replay: []int{}}, setup); other.Failure != nil {
		t.Errorf("the replay of the first choices fails, which run one actor behind the other:\n%v", other.Failure)
	}
	mustFail(t, explore.Explore(t, explore.Config{Replay: []int{7}}, setup), "does not fit")
}

// TestCounts compares with numbers found by hand.
func TestCounts(t *testing.T) {
	put := func(key string) func(context.Context, store.Store) error {
		return func(ctx context.Context, s store.Store) error {
			_, err := s.Put(ctx, key, nil, "")
			return err
		}
	}
	get := func(ctx context.Context, s store.Store) error {
		if _, err := s.Get(ctx, "n"); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return nil
	}
	batch := func(journal, key string) func(context.Context, store.Store) error {
		return func(ctx context.Context, s store.Store) error {
			_, err := s.(store.Batcher).AppendBatch(ctx, store.Batch{Journal: journal, Entries: [][]byte{nil}, Cells: []store.Write{{Key: key}}})
			return err
		}
	}
	for _, tc := range []struct {
		name           string
		actors         []func(context.Context, store.Store) error
		cfg            explore.Config
		every, reduced int
	}{
		// Two of four places for the calls of a: 6. With both reads first
		// their order does not matter, which leaves 2 of 4 such orders.
		{"get and put", []func(context.Context, store.Store) error{once, once}, explore.Config{}, 6, 4},
		{"three reads", []func(context.Context, store.Store) error{get, get, get}, explore.Config{}, 6, 1},
		{"other cells", []func(context.Context, store.Store) error{put("x"), put("y")}, explore.Config{}, 2, 1},
		{"the same cell", []func(context.Context, store.Store) error{put("x"), put("x")}, explore.Config{}, 2, 2},
		// A reader before or behind the writer.
		{"read and write", []func(context.Context, store.Store) error{get, put("n")}, explore.Config{}, 2, 2},
		{"batches of others", []func(context.Context, store.Store) error{batch("j", "x"), batch("x", "j"), put("y")}, explore.Config{}, 6, 1},
		{"batches of the same journal", []func(context.Context, store.Store) error{batch("j", "x"), batch("j", "y")}, explore.Config{}, 2, 2},
		{"batches of the same cell", []func(context.Context, store.Store) error{batch("j", "x"), batch("k", "x")}, explore.Config{}, 2, 2},
		{"a batch and its cell", []func(context.Context, store.Store) error{batch("j", "x"), put("x")}, explore.Config{}, 2, 2},
		{"a batch is killed whole", []func(context.Context, store.Store) error{batch("j", "x")}, explore.Config{Crashes: 1}, 3, 3},
		// Done, killed before, killed after.
		{"one crash", []func(context.Context, store.Store) error{put("x")}, explore.Config{Crashes: 1}, 3, 3},
		// Done, done but unknown, not done and unknown.
		{"one unknown", []func(context.Context, store.Store) error{put("x")}, explore.Config{Unknowns: 1}, 3, 3},
		{"one conflict", []func(context.Context, store.Store) error{put("x")}, explore.Config{Conflicts: 1}, 2, 2},
		// 9 pairs of fates without those 4 with two crashes, in 2 orders;
		// the order of different cells does not matter.
		{"one crash of two", []func(context.Context, store.Store) error{put("x"), put("y")}, explore.Config{Crashes: 1}, 10, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			setup := func(w *explore.World) {
				for i, fn := range tc.actors {
					w.Actor(strconv.Itoa(i), fn)
				}
				w.Check(func(context.Context, store.Store) error { return nil })
			}
			if r := explore.Run(t, tc.cfg, setup); r.Executions != tc.reduced {
				t.Errorf("reduced: %v, want %d", r, tc.reduced)
			}
			tc.cfg.Every = true
			if r := explore.Run(t, tc.cfg, setup); r.Executions != tc.every || r.Cut != 0 {
				t.Errorf("every: %v, want %d", r, tc.every)
			}
		})
	}
}

// TestReductionKeepsEndings compares the endings of all orders with those of
// the reduced ones. An ending is what the store holds and what each actor saw.
func TestReductionKeepsEndings(t *testing.T) {
	type actor func(ctx context.Context, s store.Store, saw func(any))
	put := func(key, value string) actor {
		return func(ctx context.Context, s store.Store, saw func(any)) {
			_, err := s.Put(ctx, key, []byte(value), "")
			saw(err == nil)
		}
	}
	get := func(key string) actor {
		return func(ctx context.Context, s store.Store, saw func(any)) {
			c, err := s.Get(ctx, key)
			saw(string(c.Value))
			_, err2 := s.Put(ctx, "z"+key, c.Value, "")
			saw(err == nil && err2 == nil)
		}
	}
	list := func(ctx context.Context, s store.Store, saw func(any)) {
		for c := range s.List(ctx, "x", "x/1") {
			saw(c.Key)
		}
	}
	add := func(journal string) actor {
		return func(ctx context.Context, s store.Store, saw func(any)) {
			last, err := s.Append(ctx, journal, 0, []byte("e"))
			saw(fmt.Sprint(last, err == nil))
		}
	}
	read := func(ctx context.Context, s store.Store, saw func(any)) {
		for e, err := range s.Read(ctx, "j", 0) {
			saw(fmt.Sprint(e.Seq, err))
		}
		for j := range s.Journals(ctx, "i") {
			saw(j)
		}
	}
	batch := func(journal string, keys ...string) actor {
		return func(ctx context.Context, s store.Store, saw func(any)) {
			b := store.Batch{Journal: journal, Entries: [][]byte{[]byte("e")}}
			for i, key := range keys {
				b.Cells = append(b.Cells, store.Write{Key: key, Value: []byte(journal), Optional: i > 0})
			}
			last, err := s.(store.Batcher).AppendBatch(ctx, b)
			saw(fmt.Sprint(last, err == nil))
		}
	}
	drop := func(ctx context.Context, s store.Store, saw func(any)) { saw(s.Drop(ctx, "j")) }
	watch := func(ctx context.Context, s store.Store, saw func(any)) {
		n := 0
		for range store.Watch(ctx, s, "x") {
			_, err := s.Get(ctx, "x/2")
			saw(err == nil)
			if n++; err == nil || n > 3 {
				return
			}
		}
	}
	all := func(actors ...actor) actor {
		return func(ctx context.Context, s store.Store, saw func(any)) {
			for _, a := range actors {
				a(ctx, s, saw)
			}
		}
	}
	endings := func(cfg explore.Config, actors []actor) (map[string]bool, *explore.Report) {
		seen := map[string]bool{}
		r := explore.Run(t, cfg, func(w *explore.World) {
			saw := make([]string, len(actors))
			for i, fn := range actors {
				w.Actor(strconv.Itoa(i), func(ctx context.Context, s store.Store) error {
					fn(ctx, s, func(what any) { saw[i] += fmt.Sprint(" ", what) })
					return nil
				})
			}
			w.Check(func(ctx context.Context, s store.Store) error {
				end := fmt.Sprintf("%q", saw)
				for c := range s.List(ctx, "", "") {
					end += " " + c.Key + string(c.Value)
				}
				for j := range s.Journals(ctx, "") {
					end += " " + j
				}
				seen[end] = true
				return nil
			})
		})
		return seen, r
	}
	for name, tc := range map[string]struct {
		cfg    explore.Config
		actors []actor
	}{
		"cells":         {explore.Config{}, []actor{all(put("x", "a"), get("y")), all(put("y", "b"), get("x")), put("zx", "c")}},
		"list":          {explore.Config{}, []actor{all(list, put("u", "")), all(put("x/1", ""), put("x/2", "")), all(put("x/3", ""), put("v", ""))}},
		"journals":      {explore.Config{}, []actor{all(read, add("h")), all(add("j"), add("k")), all(add("h"), drop)}},
		"watch":         {explore.Config{}, []actor{watch, all(put("x/1", ""), put("x/2", "")), put("w", "")}},
		"watch journal": {explore.Config{}, []actor{watch, all(add("x/1"), put("x/2", "")), add("w")}},
		"batch":         {explore.Config{}, []actor{batch("j", "x", "y"), all(batch("k", "y", "u"), get("x")), all(put("u", ""), add("j"))}},
		"batch listed":  {explore.Config{}, []actor{all(read, list), batch("j", "x/2"), batch("k", "x/1", "x/3")}},
		"batch watched": {explore.Config{}, []actor{watch, all(batch("j", "x/1"), batch("k", "x/2")), put("w", "")}},
		"batch crash":   {explore.Config{Crashes: 1}, []actor{batch("j", "y", "x"), get("y"), put("u", "")}},
		"crash":         {explore.Config{Crashes: 1}, []actor{get("y"), put("y", "b"), all(put("u", ""), list)}},
		"unknown":       {explore.Config{Unknowns: 1, Conflicts: 1}, []actor{get("y"), put("y", "b"), put("u", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			reduced, short := endings(tc.cfg, tc.actors)
			tc.cfg.Every = true
			every, long := endings(tc.cfg, tc.actors)
			if diff := cmp.Diff(every, reduced); diff != "" {
				t.Errorf("the reduction changes the endings:\n%s", diff)
			}
			if short.Executions >= long.Executions || len(every) < 3 {
				t.Errorf("nothing is reduced, or there is nothing to compare: %v of %v, %d endings", short, long, len(every))
			}
		})
	}
}
