package kit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Holdings returns all that a store holds but leases and hints.
func Holdings(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for cell, err := range s.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(cell.Key, "worker/") && !strings.HasPrefix(cell.Key, "due/") {
			all[cell.Key] = string(cell.Value)
		}
	}
	for name, err := range s.Journals(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		lines, err := store.ReadAll(context.Background(), s, name, 0)
		if err != nil {
			t.Fatal(err)
		}
		all["journal "+name] = fmt.Sprint(len(lines))
	}
	return all
}

// Leftovers returns the names of all that a store holds but its keys, that ids were used, the leases
// of workers, and alarms, which ring for nobody.
func Leftovers(t *testing.T, s store.Store) []string {
	t.Helper()
	var names []string
	for cell, err := range s.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if cell.Key != "perdure/salt" && cell.Key != "perdure/sign" && cell.Key != "perdure/sweep" && !strings.HasPrefix(cell.Key, "used/") && !strings.HasPrefix(cell.Key, "worker/") && !strings.HasPrefix(cell.Key, "alarm/") {
			names = append(names, "cell "+cell.Key)
		}
	}
	for name, err := range s.Journals(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, "journal "+name)
	}
	return names
}

// WantNothing expects that a store holds nothing of any thread.
func WantNothing(t *testing.T, s store.Store) {
	t.Helper()
	if left := Leftovers(t, s); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// Journals returns the names of the threads' journals, oldest first.
func Journals(t *testing.T, s store.Store) []string {
	t.Helper()
	var names []string
	for name, err := range s.Journals(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "thread/") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		_, a, _ = strings.Cut(a, ".")
		_, b, _ = strings.Cut(b, ".")
		return strings.Compare(a, b)
	})
	return names
}

// JournalEnd returns the last sequence of a journal and the hash there.
func JournalEnd(t *testing.T, s store.Store, name string) (uint64, journal.Hash) {
	t.Helper()
	lines, err := store.ReadAll(context.Background(), s, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	var prev journal.Hash
	for _, l := range lines {
		e, err := journal.Decode(prev, l.Seq, l.Data)
		if err != nil {
			t.Fatal(err)
		}
		prev = e.Hash
	}
	return uint64(len(lines)), prev
}

// AppendHook is a store that calls before ahead of an append, with its bytes.
type AppendHook struct {
	store.Store
	Before func(journal string, lines string)
}

func (h *AppendHook) Unwrap() store.Store { return h.Store }

func (h *AppendHook) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	var b strings.Builder
	for _, e := range entries {
		b.Write(e)
	}
	h.Before(journal, b.String())
	return h.Store.Append(ctx, journal, after, entries...)
}
