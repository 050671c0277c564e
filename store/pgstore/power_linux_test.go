package pgstore_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/powercut"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/storetest"
)

// powerEnv tells children the URL of the server whose power is cut.
const powerEnv = "PERDURE_TEST_POSTGRES_POWER"

// A cutServer is a disk with a server on it.
type cutServer struct {
	storetest.Disk
	*pgtest.Server
	pid int // of the server while it runs
}

func newCutServer(tb testing.TB) *cutServer {
	disk := powercut.New(tb)
	for dir := filepath.Dir(disk.Dir()); dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL's user has to get in
			tb.Fatal(err)
		}
	}
	c := &cutServer{Disk: disk, Server: pgtest.StartOn(tb, disk.Dir(), "")}
	tb.Cleanup(func() { _ = powercut.Kill(c.pid) }) // it may be frozen, and would not stop
	// What initdb has written is not synced.
	if out, err := exec.Command("sync", "-f", disk.Dir()).CombinedOutput(); err != nil {
		tb.Fatalf("sync: %v: %s", err, out)
	}
	if err := c.look(); err != nil {
		tb.Fatal(err)
	}
	return c
}

func (c *cutServer) look() (err error) {
	c.pid, err = c.Pid()
	return err
}

func (c *cutServer) Dir() string { return c.Disk.Dir() }

// Cut freezes the server instead of its client.
func (c *cutServer) Cut(int) error { return c.Disk.Cut(c.pid) }

func (c *cutServer) Restore() error {
	if err := errors.Join(powercut.Kill(c.pid), c.Disk.Restore()); err != nil {
		return err
	}
	return errors.Join(c.Ctl("start"), c.look())
}

// TestRealPowerCuts cuts the power of the server's disk under its writers.
func TestRealPowerCuts(t *testing.T) {
	t.Parallel()
	o := powercut.Options()
	o.Kills, o.Acks = min(o.Kills, 200), min(o.Acks, 10_000)
	storetest.PowerCut(t, func(ctx context.Context, _ string) (store.Store, error) {
		return store.Open(ctx, os.Getenv(powerEnv), store.Require(store.Power))
	}, func(tb testing.TB) storetest.Disk {
		c := newCutServer(tb)
		os.Setenv(powerEnv, c.URL) // no other test reads it
		return c
	}, o)
}

// TestUnsafeSettingsLose shows why these settings are of class process: a power cut
// loses what was acknowledged. Without fsync it may also damage the database, so that the
// server does not start.
func TestUnsafeSettingsLose(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"fsync = off", "synchronous_commit = off"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			c := newCutServer(t)
			admin(t, c.URL, "ALTER SYSTEM SET "+setting, "SELECT pg_reload_conf()")
			acked := uint64(0)
			for range 20 { // the server may just have synced
				s, err := pgstore.Open(t.Context(), c.URL, pgstore.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if got := s.Durability(); got != store.Process {
					t.Fatalf("the class is %v", got)
				}
				entries, err := store.ReadAll(t.Context(), s, "j", 0)
				if err != nil {
					t.Fatal(err)
				}
				if uint64(len(entries)) < acked {
					s.Close()
					t.Logf("%d of %d acknowledged appends are left", len(entries), acked)
					return
				}
				for range 50 {
					if acked, err = s.Append(t.Context(), "j", acked, []byte("acknowledged")); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Cut(0); err != nil {
					t.Fatal(err)
				}
				err = c.Restore()
				s.Close()
				if err != nil && setting == "fsync = off" && strings.Contains(c.Log(), "PANIC") {
					t.Logf("after a power cut the database is damaged: %v", err)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Error("no power cut lost anything")
		})
	}
}
