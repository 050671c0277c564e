package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
)

// Opener opens the store in the folder dir. Opening the same folder again returns
// another handle on the same store.
type Opener func(ctx context.Context, dir string) (store.Store, error)

// Run runs all cases against the stores that open opens.
func Run(t *testing.T, open Opener) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.check(t, open) })
	}
	t.Run("linearizable", func(t *testing.T) { Linearize(t, open, LinearizeOptions{}) })
}

// testCase is one clause of the contract.
type testCase struct {
	name string
	why  string // the clause, and what goes wrong without it
	run  func(*kit)
}

func cases() []testCase {
	return slices.Concat(appendCases, readCases, shortCases, dropCases, cellCases, listCases, byteCases, nameCases, handleCases, watchCases, batchCases, txCases)
}

// caseTime bounds a case, so that a store that hangs fails it.
const caseTime = 2 * time.Minute

func (c testCase) check(tb testing.TB, open Opener) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), caseTime)
	defer cancel()
	k := &kit{TB: tb, ctx: ctx, opener: open, dir: tb.TempDir()}
	defer k.closeAll()
	defer func() {
		if tb.Failed() {
			tb.Logf("the clause: %s", c.why)
		}
	}()
	c.run(k)
}

// kit is what a case works with.
type kit struct {
	testing.TB
	ctx    context.Context
	opener Opener
	dir    string
	opened []store.Store
}

// open returns another handle on the case's store.
func (k *kit) open() store.Store {
	k.Helper()
	s, err := k.opener(k.ctx, k.dir)
	if err != nil {
		k.Fatalf("cannot open the store: %v", err)
	}
	k.opened = append(k.opened, s)
	return s
}

func (k *kit) closeAll() {
	for _, s := range k.opened {
		if err := s.Close(); err != nil {
			k.Errorf("Close: %v", err)
		}
	}
}

// append appends and requires success. It retries after a conflict a few times,
// since that may be spurious.
func (k *kit) append(s store.Store, journal string, after uint64, entries ...string) {
	k.Helper()
	data := make([][]byte, len(entries))
	for i, e := range entries {
		data[i] = []byte(e)
	}
	err := sure(func() error { _, err := s.Append(k.ctx, journal, after, data...); return err })
	if err != nil {
		k.Fatalf("Append(%.40q, after %d, %d entries) = %v, want success", journal, after, len(entries), err)
	}
}

// put writes a cell and demands success, like append.
func (k *kit) put(s store.Store, key, value string, prev store.Version) store.Version {
	k.Helper()
	var version store.Version
	err := sure(func() (err error) { version, err = s.Put(k.ctx, key, []byte(value), prev); return err })
	if err != nil {
		k.Fatalf("Put(%.40q, prev %q) = %v, want success", key, prev, err)
	}
	if version == "" {
		k.Fatalf("Put(%.40q) returned the empty version, which means no cell", key)
	}
	return version
}

func (k *kit) delete(s store.Store, key string, prev store.Version) {
	k.Helper()
	if err := sure(func() error { return s.Delete(k.ctx, key, prev) }); err != nil {
		k.Fatalf("Delete(%.40q, prev %q) = %v, want success", key, prev, err)
	}
}

// sure repeats a conditional write that must succeed, since one refusal may be
// spurious. Several in a row are not.
func sure(write func() error) error {
	err := write()
	for range 5 {
		if !errors.Is(err, store.ErrConflict) {
			break
		}
		err = write()
	}
	return err
}

// read returns the whole journal and demands that it is dense from 1.
func (k *kit) read(s store.Store, journal string) []string {
	k.Helper()
	var entries []string
	for e, err := range s.Read(k.ctx, journal, 0) {
		if err != nil {
			k.Fatalf("Read(%.40q) = %v, want its entries", journal, err)
		}
		if want := uint64(len(entries) + 1); e.Seq != want {
			k.Fatalf("Read(%.40q) yielded sequence %d, want %d", journal, e.Seq, want)
		}
		entries = append(entries, string(e.Data))
	}
	return entries
}

// holds demands that a journal has exactly these entries.
func (k *kit) holds(s store.Store, journal string, want ...string) {
	k.Helper()
	if got := k.read(s, journal); !slices.Equal(got, want) {
		k.Fatalf("journal %.40q holds %s, want %s", journal, brief(got), brief(want))
	}
}

// value returns what a cell holds, and demands that it is there.
func (k *kit) value(s store.Store, key string) string {
	k.Helper()
	cell, err := s.Get(k.ctx, key)
	if err != nil {
		k.Fatalf("Get(%.40q) = %v, want the cell", key, err)
	}
	if cell.Key != key {
		k.Fatalf("Get(%.40q) returned the cell %.40q", key, cell.Key)
	}
	return string(cell.Value)
}

// keys returns the keys of a List.
func (k *kit) keys(s store.Store, prefix, after string) []string {
	k.Helper()
	var keys []string
	for cell, err := range s.List(k.ctx, prefix, after) {
		if err != nil {
			k.Fatalf("List(%.40q, after %.40q) = %v", prefix, after, err)
		}
		keys = append(keys, cell.Key)
	}
	return keys
}

// names returns the names of Journals.
func (k *kit) names(s store.Store, after string) []string {
	k.Helper()
	var names []string
	for name, err := range s.Journals(k.ctx, after) {
		if err != nil {
			k.Fatalf("Journals(after %.40q) = %v", after, err)
		}
		names = append(names, name)
	}
	return names
}

// want demands that err matches target.
func (k *kit) want(err, target error, format string, args ...any) {
	k.Helper()
	if !errors.Is(err, target) {
		k.Errorf("%s = %v, want an error that matches %q", fmt.Sprintf(format, args...), err, target)
	}
}

// readErr returns the error that a Read ends with.
func (k *kit) readErr(s store.Store, journal string) (err error) {
	for _, err = range s.Read(k.ctx, journal, 0) {
	}
	return err
}

// brief prints a list of strings short enough for a message.
func brief(list []string) string {
	short := list[:min(len(list), 12)]
	text := fmt.Sprintf("%d × %.40q", len(list), short)
	if len(short) < len(list) {
		text += "…"
	}
	return text
}
