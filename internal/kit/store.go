package kit

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Holdings returns all that a store holds but leases and hints.
func Holdings(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for cell, err := range s.List(context.Background(), "", "") {
		NoErr(t, err)
		if !strings.HasPrefix(cell.Key, "worker/") && !strings.HasPrefix(cell.Key, "due/") {
			all[cell.Key] = string(cell.Value)
		}
	}
	for name, err := range s.Journals(context.Background(), "") {
		NoErr(t, err)
		lines := must(store.ReadAll(context.Background(), s, name, 0))(t)
		all["journal "+name] = fmt.Sprint(len(lines))
	}
	return all
}

// Leftovers returns the names of all that a store holds but its keys, which archives it has used,
// that ids were used, the leases of workers, and alarms, which ring for nobody.
func Leftovers(t *testing.T, s store.Store) []string {
	t.Helper()
	var names []string
	for cell, err := range s.List(context.Background(), "", "") {
		NoErr(t, err)
		stays := func(prefix string) bool { return strings.HasPrefix(cell.Key, prefix) }
		if !slices.ContainsFunc([]string{"perdure/salt", "perdure/sign", "perdure/sweep", "perdure/index", "perdure/archive/", "used/", "worker/", "alarm/"}, stays) {
			names = append(names, "cell "+cell.Key)
		}
	}
	for name, err := range s.Journals(context.Background(), "") {
		NoErr(t, err)
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
		NoErr(t, err)
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
	lines := must(store.ReadAll(context.Background(), s, name, 0))(t)
	var prev journal.Hash
	for _, l := range lines {
		e := must(journal.Decode(prev, l.Seq, l.Data))(t)
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

// Rewritten is a store that shows a journal otherwise than it is.
type Rewritten struct {
	store.Store
	Journal string

	mu    sync.Mutex
	lines [][]byte
}

func (s *Rewritten) Unwrap() store.Store { return s.Store }

// Show makes the journal appear as lines, nil for as it is.
func (s *Rewritten) Show(lines [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = lines
}

// Lines returns the entries of the journal as they are.
func (s *Rewritten) Lines(t *testing.T) (lines [][]byte) {
	t.Helper()
	entries := must(store.ReadAll(context.Background(), s.Store, s.Journal, 0))(t)
	for _, e := range entries {
		lines = append(lines, e.Data)
	}
	return lines
}

func (s *Rewritten) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	s.mu.Lock()
	lines := s.lines
	s.mu.Unlock()
	if journal != s.Journal || lines == nil {
		return s.Store.Read(ctx, journal, after)
	}
	return func(yield func(store.Entry, error) bool) {
		for i, line := range lines {
			if seq := uint64(i + 1); seq > after && !yield(store.Entry{Seq: seq, Data: bytes.Clone(line)}, nil) {
				return
			}
		}
	}
}

// Plain hides the batches of a store, so that an entry and the cells that follow
// from it are written one after the other.
func Plain(s store.Store) store.Store { return plain{s} }

type plain struct{ store.Store }

func (p plain) Unwrap() store.Store { return p.Store }
