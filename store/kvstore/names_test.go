package kvstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

// awkward returns names that try to be each other's prefixes, neighbours and
// separators, of all lengths.
func awkward() []string {
	names := []string{"-", "--", "h-", "c-edkm6qo", strings.Repeat("\xff", store.MaxName), strings.Repeat("\x00", store.MaxName)}
	for length := range 8 {
		for range 40 {
			name := []byte("/")
			for range length {
				name = append(name, []byte("\x00\x01\x07\x08-/0a\x7f\x80\xfe\xff")[rand.IntN(12)])
			}
			names = append(names, string(name[rand.IntN(2)*min(length, 1):]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Lists of every prefix, behind every name, agree with sorting the names.
func TestNamesKeepTheirOrder(t *testing.T) {
	ctx := t.Context()
	s := kvstore.New(newEngine(false), kvstore.Options{})
	names := awkward()
	for _, name := range names {
		_, err := s.Put(ctx, name, []byte(name), "")
		must(t, err)
		must(t, appended(s, name, 0, name))
		must(t, appended(s, name, 1, name))
	}
	bounds := append(slices.Clone(names), "", "b", strings.Repeat("\xff", store.MaxName+1), strings.Repeat("\x00", store.MaxName+1))
	for _, after := range bounds {
		var want, got []string
		for _, name := range names {
			if name > after {
				want = append(want, name)
			}
		}
		for name, err := range s.Journals(ctx, after) {
			must(t, err)
			got = append(got, name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("Journals(%.40q) yields %.40q, want %.40q", after, got, want)
		}
	}
	for range 800 {
		prefix, after := bounds[rand.IntN(len(bounds))], bounds[rand.IntN(len(bounds))]
		prefix = prefix[:rand.IntN(len(prefix)+1)]
		var want, got []string
		for _, name := range names {
			if name > after && strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		for cell, err := range s.List(ctx, prefix, after) {
			must(t, err)
			if string(cell.Value) != cell.Key {
				t.Fatalf("cell %q holds what belongs to %q", cell.Key, cell.Value)
			}
			got = append(got, cell.Key)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("List(%.40q, %.40q) yields %.40q, want %.40q", prefix, after, got, want)
		}
	}
	for _, name := range names {
		entries, err := store.ReadAll(ctx, s, name, 0)
		if err != nil || len(entries) != 2 || string(entries[0].Data) != name || string(entries[1].Data) != name {
			t.Fatalf("journal %.40q has %d entries: %v", name, len(entries), err)
		}
	}
}

// A list of a prefix does not make the engine go through its neighbours.
func TestListReadsOnlyItsPrefix(t *testing.T) {
	e := newEngine(false)
	kv := shake(e, nil)
	s := kvstore.New(kv, kvstore.Options{})
	for c := range 256 {
		for n := range 3 {
			_, err := s.Put(t.Context(), fmt.Sprintf("due/%c%c/%d", c, c, n), nil, "")
			must(t, err)
		}
	}
	for _, prefix := range []string{"due/aa", "due/aa/", "due/aa/2", "due/00", "due/zz"} {
		kv.ops = nil
		found := 0
		for _, err := range s.List(t.Context(), prefix, "") {
			must(t, err)
			found++
		}
		if calls := len(kv.ops); found == 0 || calls > found+2 {
			t.Errorf("a list of %q finds %d cells and takes %d steps of the engine", prefix, found, calls)
		}
	}
}
