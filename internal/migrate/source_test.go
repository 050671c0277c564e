package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// TestWorkersInTheSource migrates while workers execute runs and others are
// started. Every run that was started ends in the target, no step is recorded twice,
// and nothing is recorded in the source any more.
func TestWorkersInTheSource(t *testing.T) {
	steps := perdure.NewFlow("steps", func(ctx context.Context, _ string) (string, error) {
		for i := range 20 {
			if err := kit.NamedStep(ctx, fmt.Sprint("s", i), 300*time.Millisecond); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	kit.Bubble(t, "all", func(t *testing.T) {
		from, to := store.Store(memstore.New()), store.Store(memstore.New())
		k := kit.New(t, from, perdure.Options{Lease: 3 * time.Second}, steps)
		var started []string
		begin := func(i int) error {
			id := fmt.Sprint("t", i)
			_, err := k.Start(t.Context(), perdure.StartRequest{Thread: id, Flow: "steps", Input: ""})
			if err == nil {
				started = append(started, id)
			}
			return err
		}
		for i := range 10 {
			kit.NoErr(t, begin(i))
			time.Sleep(100 * time.Millisecond)
		}
		done := make(chan error, 1)
		go func() {
			_, err := migrate.Run(t.Context(), from, to, migrate.Options{To: "there"})
			done <- err
		}()
		refused := false
		for i := 10; i < 60; i++ {
			err := begin(i)
			if err != nil && !errors.Is(err, perdure.ErrMoved) {
				t.Fatal(err)
			}
			refused = refused || err != nil
			time.Sleep(100 * time.Millisecond)
		}
		kit.NoErr(t, <-done)
		if !refused || len(started) < 11 {
			t.Errorf("%d threads were started, and one was refused: %v", len(started), refused)
		}
		k.Rest()
		k.Stop()
		there := kit.New(t, to, perdure.Options{}, steps)
		for _, id := range started {
			if events := k.EventsOf(id); events[len(events)-1].Kind != "moved" {
				t.Errorf("%s goes on in the source: its last event is %s", id, events[len(events)-1].Kind)
			}
			there.EndsAs(id, perdure.Succeeded)
			paths := map[string]int{}
			for _, e := range there.EventsOf(id) {
				if e.Kind == "step" {
					paths[e.Path]++
				}
			}
			for path, n := range paths {
				if n != 1 {
					t.Errorf("step %s of %s is recorded %d times", path, id, n)
				}
			}
			if len(paths) != 20 {
				t.Errorf("%s has %d steps", id, len(paths))
			}
		}
		there.Stop()
	})
}

// TestRefusedTargets: a target that holds anything else is not changed.
func TestRefusedTargets(t *testing.T) {
	full, used := filled(t), memstore.New()
	opts := migrate.Options{To: "there", Grace: 1}
	_, err := perdure.New(t.Context(), used, perdure.Options{})
	kit.NoErr(t, err)
	before := contents(t, used)
	for what, s := range map[string]store.Store{"in use": used, "the source itself": full} {
		_, err := migrate.Run(t.Context(), full, s, opts)
		kit.WantErr(t, what, err, perdure.ErrInvalid)
	}
	wantSame(t, before, contents(t, used))
	_, err = perdure.New(t.Context(), used, perdure.Options{})
	kit.NoErr(t, err)
	target := memstore.New()
	_, err = migrate.Run(t.Context(), full, target, opts)
	kit.NoErr(t, err)
	_, err = migrate.Run(t.Context(), used, target, opts)
	kit.WantErr(t, "a copy of another store", err, perdure.ErrInvalid)
}

// TestRuntimesRefuse a target that is not complete, and one that is sealed without
// its keys, for what they are.
func TestRuntimesRefuse(t *testing.T) {
	full, opts := filled(t), migrate.Options{To: "there", Grace: 1}
	begun, sealed, used := memstore.New(), memstore.New(), memstore.New()
	if _, err := migrate.Run(t.Context(), full, faulty.New(begun, faulty.AtWrite(3, faulty.CrashAfter)), opts); err == nil {
		t.Fatal("the migration was not cut off")
	}
	ring, err := seal.NewRing("k", map[string][]byte{"k": make([]byte, 32)})
	kit.NoErr(t, err)
	for _, inner := range []store.Store{sealed, used} {
		s, err := seal.New(t.Context(), inner, ring)
		kit.NoErr(t, err)
		if inner == used {
			_, err = perdure.New(t.Context(), s, perdure.Options{})
		} else {
			_, err = migrate.Run(t.Context(), full, s, opts)
		}
		kit.NoErr(t, err)
		_, err = perdure.New(t.Context(), inner, perdure.Options{})
		kit.WantErr(t, "without keys", err, store.ErrKey)
	}
	_, err = perdure.New(t.Context(), begun, perdure.Options{})
	kit.WantErr(t, "not complete", err, store.ErrUnavailable)
}

// TestEveryFamilyIsDecided looks for texts in the source code that look like prefixes
// of keys, and expects a migration to know each of them.
func TestEveryFamilyIsDecided(t *testing.T) {
	families, err := os.ReadFile("family.go")
	kit.NoErr(t, err)
	known := map[string]bool{
		"c/": true, "m/": true, // within blob/
		"delta/": true, // topics of live data
		"fact/":  true, // keys of the state
	}
	for _, m := range regexp.MustCompile(`\{"([^"]+)", (copied|rebuilt|left)\}`).FindAllStringSubmatch(string(families), -1) {
		known[m[1]] = true
	}
	key := regexp.MustCompile(`^([a-z-]+/|(perdure|server)/[a-z]+)$`)
	found := 0
	for _, root := range []string{"blob", "due", "lease", "threads", "lifecycle", "archive", "upkeep", "worker", "engine", "shelf", "schedule", "../server", "../agent"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "adk" || d.Name() == "agentkit" || d.Name() == "foreign" || d.Name() == "mcpface") {
				return fs.SkipDir
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if _, ok := n.(*ast.ImportSpec); ok {
					return false
				}
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, _ := strconv.Unquote(lit.Value)
					if key.MatchString(text) {
						if found++; !known[text] {
							t.Errorf("%s has %q: if cells are called so, decide in family.go what a migration does with them", name, text)
						}
					}
				}
				return true
			})
			return nil
		})
		kit.NoErr(t, err)
	}
	if found < 15 {
		t.Errorf("only %d families were found", found)
	}
}
