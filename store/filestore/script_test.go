package filestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/store"
)

// script is a fixed series of writes, and a record of what must and what may
// be found after it was cut short: what was acknowledged must, and the one
// write whose outcome is open may.
type script struct {
	t        *testing.T
	s        store.Store
	journals map[string]*journalModel
	cells    map[string]*cellModel
	acked    int
	failed   error // of the first write that failed
}

type journalModel struct {
	entries []string
	maybe   []string // entries of an append whose outcome is open
	dropped bool
	dropTry bool // a drop whose outcome is open
}

type cellModel struct {
	value, maybe  string // "" for no cell
	version       store.Version
	open          bool
	everyVersions []store.Version
}

func newScript(t *testing.T) *script {
	return &script{t: t, journals: map[string]*journalModel{}, cells: map[string]*cellModel{}}
}

func (sc *script) journal(name string) *journalModel {
	if sc.journals[name] == nil {
		sc.journals[name] = &journalModel{}
	}
	return sc.journals[name]
}

func (sc *script) cell(key string) *cellModel {
	if sc.cells[key] == nil {
		sc.cells[key] = &cellModel{}
	}
	return sc.cells[key]
}

// settled notes the outcome of a write and reports whether it was
// acknowledged. After the first failure every write must fail as poisoned.
func (sc *script) settled(what string, err error) bool {
	sc.t.Helper()
	switch {
	case err == nil && sc.failed != nil:
		sc.t.Fatalf("%s succeeded after an earlier failure: %v", what, sc.failed)
	case err == nil:
		sc.acked++
		return true
	case !errors.Is(err, store.ErrPoisoned):
		sc.t.Fatalf("%s = %v, want ErrPoisoned", what, err)
	}
	return false
}

func (sc *script) append(name string, entries ...string) {
	sc.t.Helper()
	m := sc.journal(name)
	data := make([][]byte, len(entries))
	for i, e := range entries {
		data[i] = []byte(e)
	}
	last, err := sc.s.Append(sc.t.Context(), name, uint64(len(m.entries)), data...)
	switch {
	case sc.settled("Append to "+name, err):
		m.entries = append(m.entries, entries...)
		if last != uint64(len(m.entries)) {
			sc.t.Fatalf("Append to %s = %d, want %d", name, last, len(m.entries))
		}
	case sc.failed == nil:
		m.maybe, sc.failed = entries, err
	}
}

func (sc *script) drop(name string) {
	sc.t.Helper()
	err := sc.s.Drop(sc.t.Context(), name)
	switch {
	case sc.settled("Drop of "+name, err):
		sc.journal(name).dropped = true
	case sc.failed == nil:
		sc.journal(name).dropTry, sc.failed = true, err
	}
}

func (sc *script) put(key, value string) {
	sc.t.Helper()
	m := sc.cell(key)
	version, err := sc.s.Put(sc.t.Context(), key, []byte(value), m.version)
	switch {
	case sc.settled("Put of "+key, err):
		if slices.Contains(m.everyVersions, version) {
			sc.t.Fatalf("Put of %s returned the version %s a second time", key, version)
		}
		m.value, m.version = value, version
		m.everyVersions = append(m.everyVersions, version)
	case sc.failed == nil:
		m.maybe, m.open, sc.failed = value, true, err
	}
}

func (sc *script) delete(key string) {
	sc.t.Helper()
	m := sc.cell(key)
	if m.version == "" {
		return // its Put failed
	}
	err := sc.s.Delete(sc.t.Context(), key, m.version)
	switch {
	case sc.settled("Delete of "+key, err):
		m.value, m.version = "", ""
	case sc.failed == nil:
		m.maybe, m.open, sc.failed = "", true, err
	}
}

// play makes all writes of the script.
func (sc *script) play() {
	sc.append("single", `{"n":1}`)
	sc.append("batch", `{"n":1}`, `{"n":2}`, "three\n")
	sc.put("a", `{"v":1}`)
	sc.append("single", `{"n":2}`)
	sc.put("b", "\x00\xff")
	sc.append("batch", `{"n":4}`, "\xff five")
	sc.append("gone", `"secret"`)
	sc.append("gone", `"secret two"`)
	sc.put("a", `{"v":2}`)
	sc.delete("b")
	sc.drop("gone")
	sc.append("single", `{"n":3}`)
	sc.put("b", `"again"`)
	sc.append("batch", `{"n":6}`)
	sc.drop("never was")
}

// extend makes further writes to all that is there.
func (sc *script) extend() {
	sc.append("single", `{"more":1}`)
	sc.append("batch", `{"more":1}`, `{"more":2}`)
	sc.put("a", `{"more":1}`)
	sc.put("b", `{"more":1}`)
}

// check compares the store with the record, and settles what was open.
func (sc *script) check() {
	sc.t.Helper()
	ctx := sc.t.Context()
	sc.failed = nil
	var names []string
	for name, m := range sc.journals {
		got, err := contents(ctx, sc.s, name)
		switch {
		case errors.Is(err, store.ErrDropped):
			if !m.dropped && !m.dropTry {
				sc.t.Fatalf("journal %s is dropped, but nobody asked for it", name)
			}
			m.dropped = true
			continue
		case err != nil:
			sc.t.Fatalf("Read of %s = %v", name, err)
		case m.dropped:
			sc.t.Fatalf("journal %s came back after its drop", name)
		case slices.Equal(got, m.entries):
		case m.maybe != nil && slices.Equal(got, slices.Concat(m.entries, m.maybe)):
			m.entries = got
		default:
			sc.t.Fatalf("journal %s holds %q, want %q and perhaps %q", name, got, m.entries, m.maybe)
		}
		m.maybe, m.dropTry = nil, false
		if len(m.entries) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var listed []string
	for name, err := range sc.s.Journals(ctx, "") {
		if err != nil {
			sc.t.Fatalf("Journals = %v", err)
		}
		listed = append(listed, name)
	}
	if !slices.Equal(listed, names) {
		sc.t.Fatalf("Journals = %q, want %q", listed, names)
	}
	sc.checkCells(ctx)
}

func (sc *script) checkCells(ctx context.Context) {
	sc.t.Helper()
	listed := map[string]store.Cell{}
	for c, err := range sc.s.List(ctx, "", "") {
		if err != nil {
			sc.t.Fatalf("List = %v", err)
		}
		listed[c.Key] = c
	}
	for key, m := range sc.cells {
		c, err := sc.s.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			sc.t.Fatalf("Get of %s = %v", key, err)
		}
		got := string(c.Value)
		switch {
		case got == m.value && c.Version == m.version:
		case m.open && got == m.maybe && !slices.Contains(m.everyVersions, c.Version):
		default:
			sc.t.Fatalf("cell %s holds %q, want %q (version %s)", key, got, m.value, m.version)
		}
		if in := listed[key]; string(in.Value) != got || in.Version != c.Version {
			sc.t.Fatalf("List has %v for %s, Get has %v", in, key, c)
		}
		m.value, m.version, m.open = got, c.Version, false
	}
}

func contents(ctx context.Context, s store.Store, name string) ([]string, error) {
	all, err := store.ReadAll(ctx, s, name, 0)
	var got []string
	for i, e := range all {
		if e.Seq != uint64(i)+1 {
			return nil, fmt.Errorf("entry %d has sequence %d", i+1, e.Seq)
		}
		got = append(got, string(e.Data))
	}
	return got, err
}
