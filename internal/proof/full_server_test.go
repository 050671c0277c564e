//go:build linux

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore/pgtx"
)

// The runs of TestFullDiskOfTheServer, and the steps in which they wait until the
// disk is full.
const (
	serverThreads = 4
	serverSteps   = 24
)

var serverGates = []int{6, 16}

// gateFile is the name of a file that says that a run has come to a gate, or that
// the gate is open if thread is "".
func gateFile(dir, thread string, step int) string {
	return filepath.Join(dir, fmt.Sprintf("gate-%s-%d", thread, step))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// waitAtGate says that a run has come to a gate, and waits until that is open.
func waitAtGate(ctx context.Context, dir, thread string, step int) error {
	if err := os.WriteFile(gateFile(dir, thread, step), nil, 0o600); err != nil {
		return err
	}
	for !exists(gateFile(dir, "", step)) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond): // it is another process
		}
	}
	return nil
}

// fullServerFlows are runs of steps that write much. Every third step also writes a
// row, in a transaction with its outcome.
func fullServerFlows(order crewOrder) []perdure.Flow {
	// A statement of the step's own may fail, which is its error.
	patient := perdure.Retry(perdure.RetryPolicy{Attempts: 100, MaxWait: time.Second})
	return []perdure.Flow{perdure.NewFlow("much", func(ctx context.Context, thread string) (int, error) {
		total := 0
		for i := range serverSteps {
			step := func(ctx context.Context) (string, error) {
				if slices.Contains(serverGates, i) {
					if err := waitAtGate(ctx, order.Dir, thread, i); err != nil {
						return "", err
					}
				}
				return fullValue(i), nil
			}
			var v string
			var err error
			if i%3 == 0 {
				v, err = pgtx.Step(ctx, fullName(i), func(ctx context.Context, tx pgx.Tx) (string, error) {
					if _, err := tx.Exec(ctx, "INSERT INTO public.effects VALUES ($1, $2)", thread, i); err != nil {
						return "", err
					}
					return step(ctx)
				}, patient)
			} else {
				v, err = perdure.Step(ctx, fullName(i), step)
			}
			if err != nil {
				return 0, err
			}
			if v != fullValue(i) {
				return 0, fmt.Errorf("step %d has another value", i)
			}
			total += len(v)
		}
		return total, nil
	})}
}

// TestFullDiskOfTheServer fills the disk of a PostgreSQL server, with its tables,
// its WAL or both, under a writer and under runs of worker processes. Nothing that
// was acknowledged is lost, and nothing is half done; once there is space and the
// server is up, everything goes on in the same processes.
func TestFullDiskOfTheServer(t *testing.T) {
	for _, what := range []string{"tables", "wal", "all"} {
		t.Run(what, func(t *testing.T) { fullServer(t, what) })
	}
}

func fullServer(t *testing.T, what string) {
	d := &mountedDisk{size: 64 << 20}
	var server *pgtest.Server
	c := newCrewAfter(t, "file", fullServerFlows, func(c *crew) {
		open, err := os.MkdirTemp("", "perdure-full-") // the server's user does not get into t.TempDir
		kit.NoErr(t, errors.Join(err, os.Chmod(open, 0o755)))
		t.Cleanup(func() { kit.NoErr(t, os.RemoveAll(open)) })
		d.dir = filepath.Join(open, "mount")
		if err := d.mount("tmpfs"); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skipf("no small disk can be mounted here: %v", err)
		}
		t.Cleanup(func() { kit.Unmount(t, d.dir) })
		small, roomy := filepath.Join(d.dir, "pg"), filepath.Join(open, "pg")
		kit.NoErr(t, errors.Join(os.Mkdir(small, 0o700), os.Mkdir(roomy, 0o700)))
		switch what {
		case "tables":
			server = pgtest.StartOn(t, small, roomy)
		case "wal":
			server = pgtest.StartOn(t, roomy, small)
		default:
			server = pgtest.StartOn(t, small, "")
		}
		c.url = pgtest.Schema(server.URL, c.dir)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	kit.NoErr(t, asking(ctx, server, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE TABLE public.effects (thread text, step int)")
		return err
	}))
	members := []*member{c.hire(crewOrder{Version: "test"}), c.hire(crewOrder{Version: "test"})}
	threads := []string{}
	for i := range serverThreads {
		threads = append(threads, fmt.Sprint("t", i))
		_, err := c.rt.Start(ctx, perdure.StartRequest{Thread: threads[i], Flow: "much", Input: threads[i]})
		kit.NoErr(t, err)
	}
	w := &fullWriter{crew: c}
	for _, gate := range serverGates {
		for _, thread := range threads {
			c.await(thread+" comes to a gate", func() (bool, string) { return exists(gateFile(c.dir, thread, gate)), server.Log() })
		}
		kit.NoErr(t, w.write(ctx))
		kit.NoErr(t, d.fill())
		kit.NoErr(t, os.WriteFile(gateFile(c.dir, "", gate), nil, 0o600))
		w.fails, w.full = 0, 0
		for tries := 0; w.fails < 10; tries++ {
			if tries == 1000 {
				t.Fatalf("a full disk takes %d writes", tries)
			}
			kit.NoErr(t, d.fill()) // what has come free
			if err := w.write(ctx); err != nil {
				<-time.After(50 * time.Millisecond) // so that the runs meet it too
			}
		}
		t.Logf("of %d failures %d say that the disk is full", w.fails, w.full)
		if what == "tables" {
			if w.full == 0 {
				t.Errorf("no failure says that the disk is full")
			}
			w.check(ctx) // it can be read
		}
		kit.NoErr(t, d.empty())
		c.await("the server is up", func() (bool, string) {
			if err := w.write(ctx); err == nil {
				return true, ""
			}
			if server.Ctl("status") != nil { // it has given up, as it had no space to recover
				t.Logf("the server is started: %v", server.Ctl("start"))
			}
			return false, server.Log()
		})
	}
	for _, thread := range threads {
		run, err := c.rt.WaitEnd(ctx, thread, "")
		if err != nil || run.Status != perdure.Succeeded {
			t.Fatalf("%s ends as %+v, %v\n%s", thread, run, err, server.Log())
		}
		steps := map[string]int{}
		for e, err := range c.rt.Events(ctx, thread, perdure.EventOptions{Replay: true}) {
			kit.NoErr(t, err)
			if e.Kind == "step" {
				steps[e.Path]++
			}
		}
		for i := range serverSteps {
			if n := steps["/"+fullName(i)]; n != 1 {
				t.Errorf("step %d of %s is recorded %d times, want once", i, thread, n)
			}
		}
		v, err := c.rt.Verify(ctx, thread)
		if err != nil || !v.OK() {
			t.Errorf("verifying %s: %+v, %v", thread, v, err)
		}
	}
	var rows, distinct int
	kit.NoErr(t, asking(ctx, server, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT count(*), count(DISTINCT (thread, step)) FROM public.effects").Scan(&rows, &distinct)
	}))
	if want := serverThreads * (serverSteps / 3); rows != want || distinct != want {
		t.Errorf("there are %d rows, %d of them distinct, want %d", rows, distinct, want)
	}
	w.check(ctx)
	c.dismiss(members) // the same that began
}

// asking calls do with a connection to a server.
func asking(ctx context.Context, server *pgtest.Server, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(conn)
}

// fullWriter appends to a journal, each entry with a cell of the same number.
type fullWriter struct {
	*crew
	acked       uint64
	fails, full int
}

func (w *fullWriter) cell(n uint64) string { return fmt.Sprint("cell-", n) }

func (w *fullWriter) entry(n uint64) []byte {
	return fmt.Append(nil, n, " ", fullValue(int(n)*10 + 9)[:100_000])
}

// write makes the next append, or the one again that failed last.
func (w *fullWriter) write(ctx context.Context) error {
	w.Helper()
	next := w.acked + 1
	_, err := w.store.(store.Batcher).AppendBatch(ctx, store.Batch{Journal: "mine", After: w.acked, Entries: [][]byte{w.entry(next)},
		Cells: []store.Write{{Key: w.cell(next), Value: []byte("there")}}})
	switch {
	case err == nil:
		w.acked = next
	case errors.Is(err, store.ErrConflict):
		all, readErr := store.ReadAll(ctx, w.store, "mine", w.acked)
		if readErr != nil {
			return readErr
		}
		if len(all) != 1 || string(all[0].Data) != string(w.entry(next)) {
			w.Fatalf("after entry %d there are %d others", w.acked, len(all))
		}
		w.acked, err = next, nil // an earlier try has happened
	case errors.Is(err, store.ErrFull):
		w.full++
		w.fails++
	case errors.Is(err, store.ErrUnavailable):
		w.fails++
	default:
		w.Errorf("on a full disk an append fails with %v", err)
		w.fails++
	}
	return err
}

// check demands that the entries that were acknowledged are there, with their cells,
// and at most one more.
func (w *fullWriter) check(ctx context.Context) {
	w.Helper()
	all, err := store.ReadAll(ctx, w.store, "mine", 0)
	kit.NoErr(w.T, err)
	if n := uint64(len(all)); n != w.acked && n != w.acked+1 {
		w.Errorf("the journal has %d entries, of which %d were acknowledged", n, w.acked)
	}
	for i, e := range all {
		if string(e.Data) != string(w.entry(uint64(i+1))) {
			w.Errorf("entry %d is %.40q", i+1, e.Data)
		}
	}
	if cells := w.cells("cell-"); len(cells) != len(all) {
		w.Errorf("%d entries have %d cells", len(all), len(cells))
	}
}
