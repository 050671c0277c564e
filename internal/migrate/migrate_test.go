package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/sqlitestore"
)

var flows = []perdure.Flow{
	kit.Ledger, kit.Asking, kit.Hear,
	perdure.NewFlow("large", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "make", func(context.Context) (string, error) { return kit.Large, nil })
	}),
	kit.NamedFlow("nap", func(ctx context.Context) error { return perdure.Sleep(ctx, "nap", time.Hour) }),
	kit.NamedFlow("parent", func(ctx context.Context) error {
		child, err := perdure.Spawn(ctx, "child", "asking", "well?")
		if err != nil {
			return err
		}
		_, err = perdure.Join[string](ctx, "joined", child)
		return err
	}),
}

var allFlows = slices.Concat(flows, useFlows)

// fill creates threads of every sort in a store, with outputs of these sizes, and
// stops.
func fill(t *testing.T, s store.Store, sizes []int) {
	t.Helper()
	k := kit.New(t, s, perdure.Options{}, allFlows...)
	k.NoteInLedger("book", "one")
	_, seq := k.NoteInLedger("book", "two")
	k.MustFork(perdure.ForkRequest{Thread: "book", As: "branch", At: seq})
	k.NoteInLedger("book", "three")
	k.MustRewind("book", seq)
	k.StartOn("big", "large", "")
	k.WaitFor("big", perdure.Succeeded)
	k.StartOn("ask", "asking", "sure?")
	k.StartOn("nap", "nap", "")
	k.StartOn("hear", "hear", "")
	k.StartOn("family", "parent", "")
	k.StartOn("gone", "large", "")
	k.WaitFor("gone", perdure.Succeeded)
	kit.NoErr(t, k.Erase(t.Context(), "gone", perdure.EraseOptions{}))
	other := &kit.Kit{Runtime: k.Tenant("acme").User("ann"), T: t}
	other.StartOn("book", "asking", "and you?")
	fillMore(k, s, sizes)
	k.Rest()
	k.MustRebuild() // so that summaries are as new as their journals
	k.Stop()
}

// contents returns everything in a store that a migration copies.
func contents(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for cell, err := range s.List(t.Context(), "", "") {
		kit.NoErr(t, err)
		family, _, _ := strings.Cut(cell.Key, "/")
		switch {
		case family == "worker", family == "due", family == "alarm", cell.Key == "perdure/copy", cell.Key == "perdure/moved", cell.Key == "perdure/sweep":
		default:
			all[cell.Key] = string(cell.Value)
		}
	}
	for name, err := range s.Journals(t.Context(), "") {
		kit.NoErr(t, err)
		for line, err := range s.Read(t.Context(), name, 0) {
			kit.NoErr(t, err)
			if e, _ := journal.Peek(line.Seq, line.Data); e.Kind != journal.Moved {
				all[fmt.Sprintf("%s %d", name, line.Seq)] = string(line.Data)
			}
		}
	}
	return all
}

// left returns the same of a store that has moved, as it was before.
func left(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := contents(t, s)
	for key, value := range all {
		if strings.HasPrefix(key, "thread/") && value[0] == '{' && !strings.Contains(key, " ") {
			was, _, ok := strings.Cut(value, `,"moved":"there"}`)
			if all[key] = was + "}"; !ok {
				t.Errorf("the summary %q does not say that it moved: %s", key, value)
			}
		}
	}
	return all
}

// wantSame expects two stores to have the same contents.
func wantSame(t *testing.T, want, got map[string]string) {
	t.Helper()
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%q is %.80q, want %.80q", key, got[key], value)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("unexpected %q", key)
		}
	}
}

// clone returns a store in memory with the contents of another.
func clone(t *testing.T, s store.Store) store.Store {
	t.Helper()
	c := memstore.New()
	pour(t, s, c)
	return c
}

// pour copies the contents of a store into another.
func pour(t *testing.T, s, c store.Store) {
	t.Helper()
	for cell, err := range s.List(t.Context(), "", "") {
		kit.NoErr(t, err)
		_, err = c.Put(t.Context(), cell.Key, cell.Value, "")
		kit.NoErr(t, err)
	}
	for name, err := range s.Journals(t.Context(), "") {
		kit.NoErr(t, err)
		for line, err := range s.Read(t.Context(), name, 0) {
			kit.NoErr(t, err)
			_, err = c.Append(t.Context(), name, line.Seq-1, line.Data)
			kit.NoErr(t, err)
		}
	}
}

// goesOn expects everything that fill has left waiting to end in a store.
func goesOn(t *testing.T, s store.Store) {
	t.Helper()
	k := kit.New(t, s, perdure.Options{}, allFlows...)
	for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		if s.Moved != "" {
			t.Errorf("in the target, thread %s is %+v", s.ID, s)
		}
	}
	k.MustSignal("hear", "go", "ahead", "")
	k.WaitFor("hear", perdure.Succeeded)
	for _, tenant := range []string{"", "acme"} {
		rt := k.Tenant(tenant)
		for found, err := range rt.List(t.Context(), perdure.ListOptions{Asks: true}) {
			kit.NoErr(t, err)
			info, err := rt.Get(t.Context(), found.ID)
			kit.NoErr(t, err)
			for _, a := range info.Runs[0].Asks {
				kit.NoErr(t, rt.Answer(t.Context(), perdure.AskAnswer{Ask: a.ID, Answer: perdure.Answer{Value: "yes"}}))
			}
		}
	}
	time.Sleep(2 * time.Hour) // of virtual time, for the nap
	for _, thread := range []string{"ask", "nap", "family"} {
		k.EndsAs(thread, perdure.Succeeded)
	}
	_, err := k.Get(t.Context(), "branch")
	kit.NoErr(t, err)
	k.NoteInLedger("book", "four")
	for _, thread := range []string{"book", "branch", "big", "ask", "nap", "hear", "family"} {
		k.MustVerify(thread)
	}
	if run, err := k.GetRun(t.Context(), "big", ""); err != nil || len(run.Output) < len(kit.Large) {
		t.Errorf("the large output: %v", err)
	}
	_, err = k.Get(t.Context(), "gone")
	kit.WantErr(t, "the erased thread", err, perdure.ErrNoThread)
	other := &kit.Kit{Runtime: k.Tenant("acme").User("ann"), T: t}
	other.EndsAs("book", perdure.Succeeded)
	worksOn(k, s)
	k.Stop()
}

// wantMoved expects the source to be readable but not writable.
func wantMoved(t *testing.T, s store.Store) {
	t.Helper()
	k := kit.New(t, s, perdure.Options{}, allFlows...)
	k.Rest()
	for _, thread := range []string{"book", "branch", "big", "ask", "nap", "hear", "family"} {
		info, err := k.Get(t.Context(), thread)
		if err != nil || info.Moved != "there" {
			t.Fatalf("thread %s: %+v, %v", thread, info, err)
		}
		k.MustVerify(thread)
		if file := kit.VerifyFile(t, k.MustExport(thread, perdure.ExportOptions{})); !file.OK() || bytes.Contains([]byte(k.Trace(thread)), []byte("error:")) || k.KindsOf(thread)["moved"] != 1 {
			t.Errorf("thread %s: its export is %+v, its events %s", thread, file, k.Trace(thread))
		}
	}
	listed := 0
	for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		if listed++; s.Moved != "there" {
			t.Errorf("in a list, thread %s is %+v", s.ID, s)
		}
	}
	for s, err := range k.List(t.Context(), perdure.ListOptions{Asks: true}) {
		kit.NoErr(t, err)
		t.Errorf("thread %s is to be answered here", s.ID)
	}
	k.MustRebuild()
	for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		if listed--; s.Moved != "there" {
			t.Errorf("after a rebuild, thread %s is %+v", s.ID, s)
		}
	}
	if listed != 0 {
		t.Errorf("a rebuild leaves out %d threads", listed)
	}
	n, ctx := perdure.Note{}, t.Context()
	_, start := k.Start(ctx, perdure.StartRequest{Thread: "new", Flow: "ledger", Input: "x"})
	_, again := k.Start(ctx, perdure.StartRequest{Thread: "book", Flow: "ledger", Input: "x"})
	_, fork := k.Fork(ctx, perdure.ForkRequest{Thread: "book", As: "other", At: 3})
	_, rewind := k.Rewind(ctx, "book", 1, n)
	_, imported := k.Import(ctx, bytes.NewReader(k.MustExport("book", perdure.ExportOptions{})), perdure.ImportOptions{As: "copy"})
	_, wait := k.Wait(ctx, "nap", "")
	run, err := k.GetRun(ctx, "ask", "")
	kit.NoErr(t, err)
	for what, err := range map[string]error{
		"start": start, "start on a thread": again, "fork": fork, "rewind": rewind, "import": imported, "wait": wait,
		"signal": k.Signal(ctx, "hear", "go", "x", perdure.SignalOptions{}), "cancel": k.Cancel(ctx, "nap", "", n),
		"answer": k.AnswerAsk(k.AskAt(run, "/ask").ID, perdure.Answer{Value: "x"}), "erase": k.Erase(ctx, "big", perdure.EraseOptions{}),
	} {
		moved := (*perdure.MovedError)(nil)
		if !errors.As(err, &moved) && what != "fork" || !errors.Is(err, perdure.ErrMoved) || moved != nil && moved.To != "there" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for cell, err := range s.List(ctx, "due/", "") {
		kit.NoErr(t, err)
		t.Errorf("the source has work: %s", cell.Key)
	}
	k.Stop()
}

// TestMigrate moves threads of every sort between all kinds of stores.
func TestMigrate(t *testing.T) {
	ring, err := seal.ParseRing("k:" + strings.Repeat("A", 43) + "=")
	kit.NoErr(t, err)
	open := map[string]func(*testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memstore.New() },
		"sqlite": func(t *testing.T) store.Store {
			s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlitestore.Options{})
			kit.NoErr(t, err)
			return s
		},
		"file": func(t *testing.T) store.Store {
			s, err := filestore.Open(t.Context(), t.TempDir(), filestore.Options{})
			kit.NoErr(t, err)
			return s
		},
		"postgres": func(t *testing.T) store.Store {
			s, err := pgstore.Open(t.Context(), pgtest.Schema(pgtest.URL(t), t.TempDir()), pgstore.Options{})
			kit.NoErr(t, err)
			return s
		},
		"sealed": func(t *testing.T) store.Store {
			s, err := seal.New(t.Context(), memstore.New(), ring)
			kit.NoErr(t, err)
			return s
		},
	}
	open["sealed postgres"] = func(t *testing.T) store.Store {
		s, err := seal.New(t.Context(), open["postgres"](t), ring)
		kit.NoErr(t, err)
		return s
	}
	full := filled(t, sizes...)
	want := contents(t, full)
	for _, way := range [][]string{{"memory", "memory"}, {"sqlite", "file"}, {"file", "sqlite"}, {"sealed", "memory"}, {"sqlite", "sealed"}, {"sealed", "sealed"},
		{"sqlite", "postgres", "sqlite"}, {"file", "postgres"}, {"sqlite", "sealed postgres", "sealed"}, {"sealed", "sealed postgres"}} {
		t.Run(strings.Join(way, " to "), func(t *testing.T) {
			from, opts := open[way[0]](t), migrate.Options{To: "there", Grace: 1}
			t.Cleanup(func() { from.Close() })
			pour(t, full, from)
			for _, kind := range way[1:] {
				to := open[kind](t)
				t.Cleanup(func() { to.Close() })
				report, err := migrate.Run(t.Context(), from, to, opts)
				kit.NoErr(t, err)
				if report.Threads < 8+len(sizes) || report.Entries == 0 || report.Cells == 0 || report.Hints == 0 || report.Left != 0 {
					t.Errorf("the report is %+v", report)
				}
				wantSame(t, want, contents(t, to))
				wantSame(t, want, left(t, from))
				again, err := migrate.Run(t.Context(), from, to, opts)
				if err != nil || !again.Already {
					t.Errorf("again: %+v, %v", again, err)
				}
				_, err = migrate.Run(t.Context(), from, memstore.New(), opts)
				kit.WantErr(t, "to another store", err, perdure.ErrMoved)
				kit.Bubble(t, "source", func(t *testing.T) { wantMoved(t, clone(t, from)) })
				now := time.Now()
				kit.Bubble(t, "target", func(t *testing.T) {
					time.Sleep(time.Until(now)) // virtual time starts before the migration
					goesOn(t, clone(t, to))
				})
				from = to
			}
		})
	}
}

// filled returns a store in memory with what fill creates.
func filled(t *testing.T, sizes ...int) store.Store {
	t.Helper()
	t.Setenv("PERDURE_KEYS", keys)
	s := memstore.New()
	kit.Bubble(t, "fill", func(t *testing.T) {
		inside := memstore.New()
		fill(t, inside, sizes)
		pour(t, inside, s)
	})
	return s
}

// TestKilledAnywhere kills a migration at every call of either store and runs it
// again. Until it is complete no runtime opens the target.
func TestKilledAnywhere(t *testing.T) {
	full := filled(t)
	want := contents(t, full)
	kit.Bubble(t, "all", func(t *testing.T) {
		opts := migrate.Options{To: "there", Grace: 1}
		for side := range 2 {
			cuts := 0
			for cut, plan := range kit.SweepCalls(kit.Sized(9, 1, 1), faulty.CrashBefore, faulty.CrashAfter) {
				cuts++
				stores := [2]store.Store{clone(t, full), memstore.New()}
				broken := stores
				broken[side] = faulty.New(stores[side], plan)
				_, err := migrate.Run(t.Context(), broken[0], broken[1], opts)
				if !broken[side].(*faulty.Store).Crashed() {
					kit.NoErr(t, err)
				} else if _, err := perdure.New(t.Context(), stores[1], perdure.Options{}); err == nil {
					// It may open only a target that is complete, or that is not marked
					// yet: the migration then finds that one in use.
					done, err := migrate.Run(t.Context(), stores[0], stores[1], opts)
					if err == nil && !done.Already {
						t.Fatalf("side %d, %s: a runtime opens a target that is not complete", side, cut)
					} else if err != nil {
						continue
					}
				}
				_, err = migrate.Run(t.Context(), stores[0], stores[1], opts)
				if err != nil {
					t.Fatalf("side %d, %s: %v", side, cut, err)
				}
				wantSame(t, want, contents(t, stores[1]))
				wantSame(t, want, left(t, stores[0]))
				if t.Failed() {
					t.Fatalf("side %d, %s", side, cut)
				}
				if cuts%50 == 0 {
					goesOn(t, stores[1])
				}
			}
			if cuts < kit.Sized(20, 100, 100) {
				t.Errorf("only %d cuts", cuts)
			}
		}
	})
}
