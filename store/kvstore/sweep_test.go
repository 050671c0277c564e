package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

// client runs a script on a shaky engine and keeps a model of what must be
// there. It does what a careful user does: repeats drops, and resolves
// appends of unknown outcome by store.AppendOnce, after a crash on a new
// handle.
type client struct {
	t       *testing.T
	e       *engine
	kv      *shaky
	s       *kvstore.Store
	what    string // the faults, for messages
	model   map[string][]string
	dropped map[string]bool
	cut     context.CancelFunc // ends the calls of a life when the engine dies
	ids     int
}

func newClient(t *testing.T, k kind, plan map[int]fault) *client {
	c := &client{t: t, e: k.engine(), what: fmt.Sprint(k, plan), model: map[string][]string{}, dropped: map[string]bool{}}
	c.kv = shake(c.e, nil)
	c.kv.plan = func(n int) fault {
		if f := plan[n]; f == dies || f == diesOn {
			c.cut()
			return f
		}
		return plan[n]
	}
	c.s = kvstore.New(c.kv, c.e.options())
	return c
}

// life returns the context of the calls to come. A client that died comes back
// with a new handle.
func (c *client) life() context.Context {
	if c.kv.dead {
		c.kv.dead = false
		c.s = kvstore.New(c.kv, c.e.options())
	}
	ctx, cut := context.WithCancel(context.Background())
	c.cut = cut
	return ctx
}

func (c *client) failf(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s: %s\ncalls: %s", c.what, fmt.Sprintf(format, args...), strings.Join(c.kv.ops, " "))
}

// truth is a journal as a new handle without faults reads it.
func (c *client) truth(journal string) ([]string, bool) {
	c.t.Helper()
	entries, err := store.ReadAll(context.Background(), kvstore.New(c.e, kvstore.Options{}), journal, 0)
	if errors.Is(err, store.ErrDropped) {
		return nil, true
	}
	if err != nil {
		c.failf("journal %s cannot be read: %v", journal, err)
	}
	var all []string
	for i, e := range entries {
		if e.Seq != uint64(i)+1 {
			c.failf("entry %d of %s has sequence %d", i+1, journal, e.Seq)
		}
		all = append(all, string(e.Data))
	}
	return all, false
}

func (c *client) append(journal string, count int) {
	c.t.Helper()
	have := c.model[journal]
	batch := make([][]byte, count)
	want := slices.Clone(have)
	for i := range batch {
		c.ids++
		want = append(want, fmt.Sprintf("canary <%s>, entry %d", journal, c.ids))
		batch[i] = []byte(want[len(want)-1])
	}
	ctx := c.life()
	_, err := c.s.Append(ctx, journal, uint64(len(have)), batch...)
	now, gone := c.truth(journal)
	switch {
	case gone != c.dropped[journal]:
		c.failf("append to %s: dropped is now %v", journal, gone)
	case gone && !errors.Is(err, store.ErrDropped) && !errors.Is(err, errShaky):
		c.failf("append to dropped %s: %v", journal, err)
	case gone:
		return
	case err == nil && !slices.Equal(now, want):
		c.failf("%s was acknowledged as %q but is %q", journal, want, now)
	case errors.Is(err, store.ErrConflict) && !slices.Equal(now, have):
		c.failf("append to %s conflicts (%v) but left %q", journal, err, now)
	case err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, errShaky):
		c.failf("append to %s: %v", journal, err)
	case !slices.Equal(now, want) && !slices.Equal(now, have):
		c.failf("append to %s (%v) left %q, want %q or %q", journal, err, now, have, want)
	}
	for err != nil {
		_, err = store.AppendOnce(c.life(), c.s, journal, uint64(len(have)), batch...)
		if err != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, context.Canceled) {
			c.failf("AppendOnce to %s: %v", journal, err)
		}
	}
	if now, _ := c.truth(journal); !slices.Equal(now, want) {
		c.failf("after AppendOnce %s is %q, want %q", journal, now, want)
	}
	c.model[journal] = want
}

func (c *client) drop(journal string) {
	c.t.Helper()
	for err := errShaky; err != nil; {
		err = c.s.Drop(c.life(), journal)
		now, gone := c.truth(journal)
		switch {
		case err != nil && !errors.Is(err, errShaky) && !errors.Is(err, context.Canceled):
			c.failf("drop of %s: %v", journal, err)
		case err == nil && !gone:
			c.failf("drop of %s is acknowledged but it is %q", journal, now)
		case c.dropped[journal] && !gone:
			c.failf("%s was dropped and is back with %q", journal, now)
		case !gone && !slices.Equal(now, c.model[journal]):
			c.failf("drop of %s (%v) left %q, want all or nothing of %q", journal, err, now, c.model[journal])
		}
		c.dropped[journal] = gone
	}
	delete(c.model, journal)
	if key, ok := c.e.holds("canary <" + journal + ">"); ok {
		c.failf("%s is dropped but key %s holds bytes of it", journal, key)
	}
}

func (c *client) read(journal string, after int) {
	c.t.Helper()
	entries, err := store.ReadAll(c.life(), c.s, journal, uint64(after))
	if err != nil && !errors.Is(err, errShaky) && !(c.dropped[journal] && errors.Is(err, store.ErrDropped)) {
		c.failf("read of %s behind %d: %v", journal, after, err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, string(e.Data))
	}
	if want := c.model[journal][min(after, len(c.model[journal])):]; err == nil && !slices.Equal(got, want) || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
		c.failf("read of %s behind %d: %q (%v), want %q", journal, after, got, err, want)
	}
}

func (c *client) put(value string) {
	c.t.Helper()
	ctx := context.Background()
	clean := kvstore.New(c.e, kvstore.Options{})
	old, err := clean.Get(ctx, "cell")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		c.failf("get: %v", err)
	}
	version, err := c.s.Put(c.life(), "cell", []byte(value), old.Version)
	now, getErr := clean.Get(ctx, "cell")
	switch {
	case err == nil && (string(now.Value) != value || now.Version != version):
		c.failf("put %q is acknowledged but the cell is %q (%v)", value, now.Value, getErr)
	case errors.Is(err, store.ErrConflict) && now.Version != old.Version:
		c.failf("put %q conflicts, but the cell is %q", value, now.Value)
	case err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, errShaky):
		c.failf("put: %v", err)
	case now.Version != old.Version && string(now.Value) != value:
		c.failf("put %q left the cell at %q", value, now.Value)
	}
}

// verify compares all that is left with the model.
func (c *client) verify() {
	c.t.Helper()
	for journal := range c.dropped {
		c.drop(journal)
	}
	var names []string
	for name, err := range kvstore.New(c.e, kvstore.Options{}).Journals(context.Background(), "") {
		if err != nil {
			c.failf("Journals: %v", err)
		}
		names = append(names, name)
		if now, _ := c.truth(name); !slices.Equal(now, c.model[name]) {
			c.failf("%s ends as %q, want %q", name, now, c.model[name])
		}
	}
	if want := slices.Sorted(maps.Keys(c.model)); !slices.Equal(names, want) {
		c.failf("the journals are %q, want %q", names, want)
	}
}

// script is what a client does. The names of some journals are prefixes of
// others, so that batches of the wrong journal would be seen.
type script struct {
	name string
	run  func(*client)
}

var scripts = []script{
	{"append", func(c *client) {
		c.append("j", 1)
		c.append("j", 3)
		c.append("j", 1)
		c.read("j", 2)
	}},
	{"drop", func(c *client) {
		c.append("j", 2)
		c.append("j", 1)
		c.append("j", 1)
		c.drop("j")
		c.append("j", 1)
	}},
	{"cells", func(c *client) {
		c.put("one")
		c.put("two")
	}},
}

var longScript = script{"long", func(c *client) {
	for round := range 3 {
		c.append("j", 1+round)
		c.append("jj", 2)
		c.append("j\x00", 1)
		c.put(fmt.Sprint("round ", round))
		c.read("j", round)
		c.read("jj", 0)
	}
	c.drop("j")
	c.append("j", 1)
	c.drop("never")
	c.append("never", 1)
	c.append("jj", 2)
	c.drop("j")
	c.read("j", 0)
	c.read("j\x00", 1)
	c.drop("jj")
	c.append("j\x00", 64)
	c.append("j\x00", 1)
}}

func (s script) sweep(t *testing.T, k kind, plan map[int]fault) int {
	c := newClient(t, k, plan)
	s.run(c)
	c.verify()
	return c.kv.calls
}

// Each call in turn goes wrong, in each way.
func TestEachCallFails(t *testing.T) {
	for _, s := range append(scripts, longScript) {
		for _, k := range kinds {
			t.Run(fmt.Sprintf("%s/%+v", s.name, k), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					calls := s.sweep(t, k, nil)
					for n := 1; n <= calls; n++ {
						for _, f := range faults {
							s.sweep(t, k, map[int]fault{n: f})
						}
					}
					t.Logf("%d calls, each with %d faults", calls, len(faults))
				})
			})
		}
	}
}

// Two calls go wrong, the second also while the first is being repaired. The short form
// does a seventh of the pairs.
func TestEachTwoCallsFail(t *testing.T) {
	const behind = 8 // a repair makes some calls more
	for _, s := range scripts {
		for _, k := range kinds[1:] {
			t.Run(fmt.Sprintf("%s/%+v", s.name, k), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					calls, runs := s.sweep(t, k, nil), 0
					for n := 1; n <= calls; n++ {
						for m := n + 1; m <= calls+behind; m++ {
							for _, f := range faults {
								for _, g := range faults {
									if runs++; !testing.Short() || runs%7 == 0 {
										s.sweep(t, k, map[int]fault{n: f, m: g})
									}
								}
							}
						}
					}
					t.Logf("%d calls, %d pairs of faults", calls, runs)
				})
			})
		}
	}
}
