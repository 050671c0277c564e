//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
)

// TestMigrateIsKilled kills the command again and again. In the end every thread is
// in the target as it was, the source refuses what is new, and no password is said.
func TestMigrateIsKilled(t *testing.T) {
	for name, target := range map[string]func(t *testing.T, dir string) string{
		"file":     func(_ *testing.T, dir string) string { return "file:" + filepath.Join(dir, "target") },
		"postgres": func(t *testing.T, _ string) string { return pgtest.Schema(pgtest.URL(t), t.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			from, to := "sqlite:"+filepath.Join(dir, "source.db"), target(t, dir)
			var threads []string
			for i := range 6 {
				threads = append(threads, fmt.Sprint("thread-", i))
				launch(t, dir, []string{beHostile + "=1"}, "run", "pay", "lines", "--thread", threads[i], "--store", from).ends(4)
			}
			show := func(store, thread string) *perdure.Thread {
				t.Helper()
				shown := new(perdure.Thread)
				p := launch(t, dir, []string{beHostile + "=1"}, "show", thread, "--json", "--store", store).ends(0)
				if err := json.Unmarshal([]byte(p.said.String()), shown); err != nil {
					t.Fatal(err)
				}
				return shown
			}
			before := map[string]*perdure.Thread{}
			for _, id := range threads {
				before[id] = show(from, id)
			}

			migrate := func() *process { return launch(t, dir, nil, "migrate", "--from", from, "--to", to, "--json") }
			kills := 10
			if testing.Short() {
				kills = 3
			}
			done := false
			for range kills {
				p := migrate()
				time.Sleep(rand.N(6 * time.Second)) // for about five it waits for those who write to the source
				p.signal(syscall.SIGKILL)
				done = p.end() == 0 || done
			}
			last := migrate().ends(0)
			var report struct {
				Threads int
				Already bool
			}
			if err := json.Unmarshal([]byte(last.said.String()), &report); err != nil || !report.Already && report.Threads != len(threads) {
				t.Errorf("it reports %s (%v, done before: %v)", last.said.String(), err, done)
			}
			for _, id := range threads {
				after := show(to, id)
				if diff := cmp.Diff(before[id].Runs, after.Runs); diff != "" {
					t.Errorf("thread %s is another in the target:\n%s", id, diff)
				}
				launch(t, dir, []string{beHostile + "=1"}, "cancel", id, "--store", to).ends(0)
				launch(t, dir, []string{beHostile + "=1"}, "cancel", id, "--store", from).ends(5)
				if moved := show(from, id).Moved; moved == "" || strings.Contains(moved, "@") {
					t.Errorf("the source says of %s that it moved to %q", id, moved)
				}
			}
			if p := launch(t, dir, []string{beHostile + "=1"}, "run", "pay", "lines", "--thread", "new", "--store", from); p.end() != 5 || !strings.Contains(p.err.String(), "moved") {
				t.Errorf("a start in the source says %s", p.err.String())
			}
			if p := launch(t, dir, nil, "migrate", "--from", from, "--to", "file:"+filepath.Join(dir, "other")); p.end() == 0 || !strings.Contains(p.err.String(), "moved") {
				t.Errorf("a migration to another target says %s", p.err.String())
			}
		})
	}
}
