//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/pgstore/pgtx"
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
			for i := range kit.Sized(2, 6, 6) {
				threads = append(threads, fmt.Sprint("thread-", i))
				launch(t, dir, []string{beHostile + "=1"}, "run", "pay", "lines", "--thread", threads[i], "--store", from).ends(4)
			}
			var made struct{ Secret string }
			out := launch(t, dir, nil, "token", "create", "me", "--store", from, "--json").ends(0).said.String()
			if err := json.Unmarshal([]byte(out), &made); err != nil || made.Secret == "" {
				t.Fatalf("no token: %v in %s", err, out)
			}
			launch(t, dir, nil, "memory", "put", "user/ann/likes", "tea", "--store", from).ends(0)
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
				if moved := show(from, id).Moved; moved != location(t, to) {
					t.Errorf("the source says of %s that it moved to %q, want %s", id, moved, location(t, to))
				}
			}
			server, address := serve(t, dir, "--store", to)
			if status, body := get(t, address+"/v1/threads", made.Secret); status != 200 || !strings.Contains(body, threads[0]) {
				t.Errorf("in the target the token gets %d: %s", status, body)
			}
			server.signal(syscall.SIGTERM).ends(0)
			if said := launch(t, dir, nil, "memory", "get", "user/ann/likes", "--store", to).ends(0).said.String(); !strings.Contains(said, "tea") {
				t.Errorf("the memory in the target is %s", said)
			}
			if p := launch(t, dir, nil, "threads", "--store", from).ends(0); strings.Count(p.said.String(), "moved") != len(threads) || !strings.Contains(p.err.String(), "connect to that store") {
				t.Errorf("the list of the source says %s%s", p.said.String(), p.err.String())
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

// location is the URL of a store without its user and options, which are nothing for
// those who may see its threads.
func location(t *testing.T, store string) string {
	u, err := url.Parse(store)
	kit.NoErr(t, err)
	if u.User == nil && u.RawQuery == "" {
		return store
	}
	kept := url.Values{}
	if schema := u.Query().Get("schema"); schema != "" {
		kept.Set("schema", schema)
	}
	u.User, u.RawQuery = nil, kept.Encode()
	return u.String()
}

// TestMigrateIsKilledWaiting kills the command while it waits for a transaction in
// which a program has started a run. Run again, it moves what was committed.
func TestMigrateIsKilledWaiting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := pgtest.URL(t)
	from, to := pgtest.Schema(base, dir), "file:"+filepath.Join(dir, "target")
	s, err := pgstore.Open(t.Context(), from, pgstore.Options{})
	kit.NoErr(t, err)
	defer s.Close()
	rt := kit.Runtime(t, s, perdure.Options{}, perdure.NewFlow("pay", func(context.Context, string) (string, error) { return "", nil }))
	conn, err := pgx.Connect(t.Context(), base)
	kit.NoErr(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	kit.NoErr(t, err)
	_, err = pgtx.Start(t.Context(), rt, tx, perdure.StartRequest{Flow: "pay", Thread: "late", Input: "x"})
	kit.NoErr(t, err)
	migrate := func() *process { return launch(t, dir, nil, "migrate", "--from", from, "--to", to) }
	p := migrate()
	if pid := p.err.find(t, regexp.MustCompile(`waiting for open transactions on the old store: process (\d+)`)); pid != fmt.Sprint(conn.PgConn().PID()) {
		t.Errorf("it waits for %s, want %d", pid, conn.PgConn().PID())
	}
	p.signal(syscall.SIGKILL)
	p.ends(-1)
	kit.NoErr(t, tx.Commit(t.Context()))
	migrate().ends(0)
	launch(t, dir, []string{beHostile + "=1"}, "show", "late", "--store", to).ends(0)
}
