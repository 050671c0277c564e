package redisstore_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/powercut"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
	"github.com/perdure/perdure/store/storetest"
)

// powerEnv tells children the URL of the server whose power is cut.
const powerEnv = "PERDURE_TEST_REDIS_POWER"

// A cutServer is a disk with a server on it.
type cutServer struct {
	storetest.Disk
	*redistest.Server
}

func newCutServer(tb testing.TB, settings ...string) *cutServer {
	redistest.URL(tb) // says why if there is no Redis
	disk := powercut.New(tb)
	server, err := redistest.Launch(disk.Dir(), settings...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Stop) // before the disk goes
	return &cutServer{disk, server}
}

func (c *cutServer) Dir() string { return c.Disk.Dir() }

// Cut freezes the server instead of its client: who asks it gets no answer from then
// on.
func (c *cutServer) Cut(int) error { return c.Disk.Cut(c.Pid()) }

func (c *cutServer) Restore() error {
	c.Kill()
	return errors.Join(c.Disk.Restore(), c.Run())
}

// TestRealPowerCuts cuts the power of the server's disk under its writers.
func TestRealPowerCuts(t *testing.T) {
	o := powercut.Options()
	o.Kills, o.Acks = min(o.Kills, 200), min(o.Acks, 10_000)
	storetest.PowerCut(t, func(ctx context.Context, _ string) (store.Store, error) {
		s, err := redisstore.Open(ctx, os.Getenv(powerEnv), redisstore.Options{})
		if err == nil && s.Durability() != store.Power {
			return nil, store.ErrWeak
		}
		return s, err
	}, func(tb testing.TB) storetest.Disk {
		c := newCutServer(tb, redistest.Always...)
		t.Setenv(powerEnv, c.URL)
		return c
	}, o)
}

// TestEverySecLoses shows why appendfsync everysec is of class none: a power cut loses
// what was acknowledged.
func TestEverySecLoses(t *testing.T) {
	c := newCutServer(t, "--appendonly", "yes", "--appendfsync", "everysec")
	acked := uint64(0)
	for range 20 { // the server may just have synced
		s, err := redisstore.Open(t.Context(), c.URL, redisstore.Options{Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
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
		if err := c.Restore(); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	t.Error("no power cut lost anything")
}
