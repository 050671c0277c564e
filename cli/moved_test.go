package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// classed is an empty store of a durability class.
type classed struct {
	store.Store
	class store.Durability
}

func (c classed) Durability() store.Durability { return c.class }

func (c classed) Weakness() string { return "turn its syncing on" }

func init() {
	store.Register("brittle", func(context.Context, string) (store.Store, error) { return classed{memstore.New(), store.None}, nil })
}

// TestMigrateKeepsWhatLasts: a store that is gone with a process, or may lose what it
// acknowledges, is no target, and the source is not changed.
func TestMigrateKeepsWhatLasts(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "x", "--thread", "t").want(exit.OK)
	from, flags := p.flags[1], p.flags
	p.flags = nil
	p.run("", "migrate", "--from", from, "--to", "memory:").want(exit.BadUsage, "gone with this command")
	p.run("", "migrate", "--from", from, "--to", "brittle:").want(exit.Failed, "nothing has moved; turn its syncing on; if that is meant, add --weaker")
	p.flags = flags
	p.run("", "run", "echo", "x", "--thread", "t").want(exit.OK)
}

// TestMigrateMakesNoSecondTarget of a store that has moved, and finds the first one.
func TestMigrateMakesNoSecondTarget(t *testing.T) {
	dir := t.TempDir()
	from, to, other := "sqlite:"+filepath.Join(dir, "from.db"), "file:"+filepath.Join(dir, "to"), filepath.Join(dir, "other")
	p := &place{t: t, flows: testFlows(), flags: []string{"--store", from}}
	p.run("", "run", "echo", "x").want(exit.OK)
	source, err := store.Open(t.Context(), from)
	kit.NoErr(t, err)
	target, err := store.Open(t.Context(), to)
	kit.NoErr(t, err)
	_, err = migrate.Run(t.Context(), source, target, migrate.Options{To: to, Grace: 1})
	kit.NoErr(t, errors.Join(err, source.Close(), target.Close()))
	p.flags = nil
	for _, url := range []string{"file:" + other, "sqlite:" + other} {
		p.run("", "migrate", "--from", from, "--to", url).want(exit.Conflict, "continues in "+to)
		if _, err := os.Stat(other); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a migration to %s that was refused has left it behind: %v", url, err)
		}
	}
	p.run("", "migrate", "--from", from, "--to", to).want(exit.OK, "was completed before")
}

// TestMigrateWarnsOfLess durable targets, and refuses those without any durability.
func TestMigrateWarnsOfLess(t *testing.T) {
	for _, test := range []struct {
		from, to             store.Durability
		weaker, refuse, warn bool
	}{
		{store.Power, store.Power, false, false, false},
		{store.Process, store.Power, false, false, false},
		{store.None, store.None, false, false, false},
		{store.Power, store.Process, false, false, true},
		{store.Process, store.None, false, true, false},
		{store.Power, store.None, false, true, false},
		{store.Power, store.None, true, false, true},
	} {
		var said buffer
		a := testApp(terminal.Terminal{Err: &said})
		err := a.checkDurability(classed{memstore.New(), test.from}, classed{memstore.New(), test.to}, test.weaker)
		if errors.Is(err, store.ErrWeak) != test.refuse || strings.Contains(said.String(), "turn its syncing on") != test.warn {
			t.Errorf("from %v to %v: %v, and it says %q", test.from, test.to, err, said.String())
		}
	}
}

// TestMovedStore has commands wait for runs while the store is migrated. They end and
// say where the thread continues.
func TestMovedStore(t *testing.T) {
	p := served(t)
	p.run("", "run", "order", "tea", "--thread", "t").want(exit.Waiting)
	waiting := [][]string{{"run", "echo", "x", "--thread", "t"}, {"run", "echo", "x", "--thread", "t", "--watch"}, {"run", "echo", "x", "--thread", "t", "--json"}}
	results := make([]*result, len(waiting)+1)
	var all sync.WaitGroup
	for i, args := range waiting {
		all.Go(func() { results[i] = p.run("", args...) })
	}
	all.Go(func() { results[len(waiting)] = p.run("", "events", "-f", "t") })
	queued := 0
	for ev, err := range p.rt.Events(t.Context(), "t", perdure.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == "queued" {
			queued++
		}
		if queued == 1+len(waiting) {
			break
		}
	}
	if _, err := migrate.Run(t.Context(), threads.Behind(p.rt).All.Store, memstore.New(), migrate.Options{To: "there", Grace: 1}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for _, r := range results {
		r.want(exit.Conflict, "continues in there")
	}
	if r := p.run("", "show", "t").want(exit.OK, "continues in there"); strings.Contains(r.out, "perdure answer") {
		t.Errorf("show suggests to answer: %s", r.out)
	}
	p.run("", "doctor").want(exit.OK, "the store has moved: 1 of 1 threads continue in there", "0 open asks")
}

// TestTargetInUse migrates to a store that was only opened: the refusal says how to
// empty it, and then it is accepted.
func TestTargetInUse(t *testing.T) {
	from, to := stored(t), stored(t)
	from.run("", "run", "echo", "hello").want(exit.OK)
	to.run("", "run", "nope").want(exit.NotFound) // it was opened, and has no thread
	migrate := func() *result {
		return (&place{t: t, flows: from.flows}).run("", "migrate", "--from", from.flags[1], "--to", to.flags[1])
	}
	file := strings.TrimPrefix(to.flags[1], "sqlite:")
	migrate().wantWords(exit.BadUsage, "it holds the cell", "remove the file "+file)
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(file + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	migrate().want(exit.OK, "1 thread")
	for url, want := range map[string]string{
		"postgres://app@db.example/app":                `DROP SCHEMA "perdure" CASCADE`,
		"postgresql://app:x@db.example/app?schema=own": `DROP SCHEMA "own" CASCADE`,
		"file:data":                     "the folder data",
		"redis://db.example/0?prefix=x": "the tools of its engine",
	} {
		if got := emptying(url); !strings.Contains(got, want) {
			t.Errorf("emptying %s: %s", url, got)
		}
	}
}
