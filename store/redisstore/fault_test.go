package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
	"github.com/perdure/perdure/store/storetest"
)

// flaky starts a proxy to the tests' server that cuts each connection after a random
// number of bytes. It returns its URL and the number of cuts.
func flaky(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	base := redistest.URL(t)
	server := strings.TrimPrefix(base, "redis://")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	cuts := new(atomic.Int64)
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			var left atomic.Int64
			left.Store(8000 + rand.Int64N(30_000)) // a connection takes some 5000 to begin
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					defer near.Close()
					defer far.Close()
					for buf := make([]byte, 4096); ; {
						n, err := way[1].Read(buf)
						room := left.Add(-int64(n))
						if room < 0 {
							n = max(0, n+int(room))
						}
						if _, wrote := way[0].Write(buf[:n]); err != nil || wrote != nil {
							return
						}
						if room < 0 {
							cuts.Add(1)
							return
						}
					}
				}()
			}
		}
	}()
	return "redis://" + l.Addr().String(), cuts
}

// appendAll lets writers append batches with a cell each until the count is reached,
// whatever happens to the server, and checks that each took effect exactly once.
func appendAll(t *testing.T, s, check store.Store, writers, each int, wrote func()) {
	t.Helper()
	ctx := t.Context()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			journal := fmt.Sprint("journal ", w)
			for n := range each {
				b := store.Batch{Journal: journal, After: uint64(n), Entries: [][]byte{fmt.Appendf(nil, "%s entry %d", journal, n)},
					Cells: []store.Write{{Key: fmt.Sprintf("cell %d %d", w, n), Value: make([]byte, 500)}}}
				if _, err := store.AppendWith(store.Patient(ctx), s, b); err != nil {
					t.Errorf("append %d to %s: %v", n, journal, err)
					return
				}
				wrote()
			}
		})
	}
	wg.Wait()
	for w := range writers {
		journal := fmt.Sprint("journal ", w)
		entries, err := store.ReadAll(t.Context(), check, journal, 0)
		if err != nil || len(entries) != each {
			t.Fatalf("%s has %d entries, %v; want %d", journal, len(entries), err, each)
		}
		for n, e := range entries {
			if want := fmt.Sprintf("%s entry %d", journal, n); string(e.Data) != want {
				t.Errorf("entry %d of %s is %q, want %q", e.Seq, journal, e.Data, want)
			}
			if _, err := check.Get(t.Context(), fmt.Sprintf("cell %d %d", w, n)); err != nil {
				t.Errorf("the cell of entry %d of %s: %v", e.Seq, journal, err)
			}
		}
	}
}

// TestLostAnswers cuts the connections of writers of batches. Each append takes
// effect exactly once, with its cell: nothing sends a write again by itself.
func TestLostAnswers(t *testing.T) {
	each := 150
	if testing.Short() {
		each = 40
	}
	near, cuts := flaky(t)
	dir := t.TempDir()
	var s *redisstore.Store
	for s == nil {
		var err error
		if s, err = redisstore.Open(t.Context(), redistest.Prefix(near, dir), redisstore.Options{}); err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	defer s.Close()
	appendAll(t, s, openURL(t, redistest.Prefix(redistest.URL(t), dir)), 8, each, func() {})
	if t.Logf("%d appends, %d cuts", 8*each, cuts.Load()); cuts.Load() == 0 {
		t.Error("nothing was cut")
	}
}

// TestServerKilled kills the server under its writers and starts it again: with
// appendfsync always, nothing acknowledged is lost, and nothing is there twice.
func TestServerKilled(t *testing.T) {
	kills, each := 20, 200
	if testing.Short() {
		kills, each = 4, 50
	}
	server := redistest.Start(t, redistest.Always...)
	s := openURL(t, server.URL)
	var count atomic.Int64
	over := make(chan struct{})
	go func() {
		defer close(over)
		for k := range kills {
			for count.Load() < int64(k*8*each/kills) && !t.Failed() {
				time.Sleep(time.Millisecond)
			}
			server.Kill()
			if err := server.Run(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	appendAll(t, s, s, 8, each, func() {
		if count.Add(1) > int64(8*each-16) {
			<-over // the last appends come after the last kill, however busy the machine is
		}
	})
	<-over
	appendAll(t, openURL(t, redistest.With(server.URL, "prefix", "other")), openURL(t, redistest.With(server.URL, "prefix", "other")), 1, 1, func() {})
	t.Logf("%d kills, %d appends", kills, count.Load())
}

// TestWithoutAOF shows what class none means: a server that is killed has lost
// everything, and the handle says so.
func TestWithoutAOF(t *testing.T) {
	server := redistest.Start(t)
	s := openURL(t, server.URL)
	if _, err := s.Append(t.Context(), "j", 0, []byte("acknowledged")); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 100 { // the first ones may find that their connection has ended
		if _, err = store.ReadAll(t.Context(), s, "j", 0); !errors.Is(err, store.ErrUnavailable) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "lost the store") {
		t.Errorf("reading what the server has lost = %v, want ErrCorrupt", err)
	}
}

// TestOutage stops the server, and makes it a replica as one is that another has
// taken over from.
func TestOutage(t *testing.T) {
	server := redistest.Start(t, redistest.Always...)
	for name, fail := range map[string]func(t *testing.T, on bool){
		"stopped": func(t *testing.T, on bool) {
			if on {
				server.Kill()
			} else if err := server.Run(); err != nil {
				t.Fatal(err)
			}
		},
		"replica": func(t *testing.T, on bool) {
			if on { // of a primary that does not exist, so that it keeps its data
				admin(t, server.URL, "REPLICAOF 127.0.0.1 1")
			} else {
				admin(t, server.URL, "REPLICAOF NO ONE")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Outage(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
				s, err := redisstore.Open(ctx, redistest.Prefix(server.URL, dir), redisstore.Options{})
				return s, func(on bool) {
					fail(t, on)
					if err := s.Delete(ctx, "none", "none"); on && !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("a delete says %v, want store.ErrUnavailable", err)
					}
				}, err
			})
		})
	}
}
