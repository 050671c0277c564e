package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/natsstore"
	"github.com/perdure/perdure/store/storetest"
)

// clustered opens the stores of folders with three replicas, whose calls end after two
// seconds, or what is given. A cluster that has just started has no leader yet, so it
// waits for one.
func clustered(nodes []*natstest.Node, timeout ...time.Duration) storetest.Opener {
	o := natsstore.Options{Timeout: append(timeout, 2*time.Second)[0]}
	base := natstest.With(natstest.URLs(nodes), "replicas", "3")
	return func(ctx context.Context, dir string) (store.Store, error) {
		for {
			s, err := natsstore.Open(ctx, natstest.Stream(base, dir), o)
			if err == nil || !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, natsstore.ErrNoJetStream) {
				return s, err
			}
			select {
			case <-ctx.Done():
				return nil, err
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// TestCluster runs the contract on three replicas. Nobody kills them, so a late answer
// is not a lost one.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("make long runs the contract on three replicas; TestLinearizeAmidKills has its hardest case")
	}
	t.Parallel()
	storetest.Run(t, clustered(natstest.StartCluster(t, natstest.Config{}), time.Minute))
}

// churn kills one node after the other with SIGKILL and starts it again, from begin on
// and until stop is called, which returns how many it has killed.
func churn(t *testing.T, nodes []*natstest.Node, begin <-chan struct{}) (stop func() int) {
	over, ended, kills := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(ended)
		next := begin
		for {
			select {
			case <-over:
				return
			case <-next:
			}
			n := nodes[rand.IntN(len(nodes))]
			n.Kill()
			kills++
			if err := n.Start(); err != nil {
				t.Error(err)
				return
			}
			pause := make(chan struct{})
			time.AfterFunc(time.Duration(500+rand.IntN(1000))*time.Millisecond, func() { close(pause) })
			next = pause
		}
	}()
	return func() int {
		close(over)
		<-ended
		return kills
	}
}

// TestNodesAreKilled kills nodes of a cluster under writers. Each append takes effect
// exactly once, with its cell, and what was acknowledged is there.
func TestNodesAreKilled(t *testing.T) {
	t.Parallel()
	const writers = 6
	spell := 20 * time.Second
	if testing.Short() {
		spell = 3 * time.Second
	}
	nodes := natstest.StartCluster(t, natstest.Config{})
	dir, ctx := t.TempDir(), store.Patient(t.Context())
	s, err := clustered(nodes)(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begin := make(chan struct{})
	stop := churn(t, nodes, begin)
	close(begin)
	end := time.Now().Add(spell)
	var counts [writers]int
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			journal := fmt.Sprint("journal ", w)
			for n := 0; time.Now().Before(end); n++ {
				b := store.Batch{Journal: journal, After: uint64(n), Entries: [][]byte{fmt.Appendf(nil, "%s entry %d", journal, n)}}
				if n%2 == 0 {
					b.Cells = []store.Write{{Key: fmt.Sprintf("cell %d %d", w, n), Value: []byte("x")}}
				}
				if _, err := store.AppendWith(ctx, s, b); err != nil {
					t.Errorf("append %d to %s: %v", n, journal, err)
					return
				}
				counts[w]++
			}
		})
	}
	wg.Wait()
	kills, total := stop(), 0
	other, err := clustered(nodes)(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for w, want := range counts {
		journal := fmt.Sprint("journal ", w)
		total += want
		entries := eventually(t, func() ([]store.Entry, error) { return store.ReadAll(ctx, other, journal, 0) })
		if len(entries) != want {
			t.Errorf("%s has %d entries, want %d", journal, len(entries), want)
		}
		for n, e := range entries {
			if want := fmt.Sprintf("%s entry %d", journal, n); string(e.Data) != want {
				t.Errorf("entry %d of %s is %q, want %q", e.Seq, journal, e.Data, want)
			}
			if n%2 == 0 {
				eventually(t, func() (store.Cell, error) { return other.Get(ctx, fmt.Sprintf("cell %d %d", w, n)) })
			}
		}
	}
	if t.Logf("%d appends, %d nodes killed", total, kills); kills == 0 {
		t.Error("no node was killed")
	}
}

// eventually repeats a read while the cluster is not available.
func eventually[T any](t *testing.T, read func() (T, error)) T {
	t.Helper()
	var err error
	for range 600 {
		var v T
		if v, err = read(); err == nil {
			return v
		}
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the cluster does not come back: %v", err)
	panic("unreachable")
}

// TestLinearizeAmidKills checks histories of clients whose cluster loses nodes, the
// first one in the middle of the first history.
func TestLinearizeAmidKills(t *testing.T) {
	t.Parallel()
	nodes := natstest.StartCluster(t, natstest.Config{})
	open := clustered(nodes)
	begin, calls := make(chan struct{}), atomic.Int64{}
	stop := churn(t, nodes, begin)
	defer func() {
		if kills := stop(); kills == 0 {
			t.Error("no node was killed")
		} else {
			t.Logf("%d nodes killed", kills)
		}
	}()
	storetest.Linearize(t, func(ctx context.Context, dir string) (store.Store, error) {
		s, err := open(ctx, dir)
		if err != nil {
			return nil, err
		}
		return faulty.New(s, func(faulty.Call) faulty.Fault {
			if calls.Add(1) == 50 {
				close(begin)
			}
			return faulty.None
		}), nil
	}, storetest.LinearizeOptions{Histories: 3})
}

// TestNoQuorum leaves one node of three: calls end within seconds with ErrUnavailable,
// and succeed when another is back. The store then warns of the third.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	nodes := natstest.StartCluster(t, natstest.Config{})
	s, err := clustered(nodes)(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := store.AppendOnce(store.Patient(t.Context()), s, "j", 0, []byte("before")); err != nil {
		t.Fatal(err)
	}
	nodes[0].Kill()
	nodes[1].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // nodes on a busy machine elect each other again and again
	defer cancel()
	if _, err := s.Append(ctx, "j", 1, []byte("meanwhile")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Append without a quorum = %v, want ErrUnavailable", err)
	}
	if err := nodes[0].Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.AppendOnce(store.Patient(ctx), s, "k", 0, []byte("after")); err != nil {
		t.Fatal(err)
	}
	if entries := eventually(t, func() ([]store.Entry, error) { return store.ReadAll(ctx, s, "j", 0) }); string(entries[0].Data) != "before" {
		t.Errorf("the journal begins with %q", entries[0].Data)
	}
	eventually(t, func() (any, error) {
		found, err := store.Warnings(ctx, s)
		named := func(w store.Warning) bool { // a leader that was restarted does not know the name
			return strings.Contains(w.Detail, "server "+nodes[1].Name+" is down") || strings.Contains(w.Detail, "whose name the leader does not know")
		}
		if err == nil && (len(found) != 1 || found[0].Kind != store.WarnNode || !named(found[0]) || !strings.Contains(found[0].Detail, "2 of 3 copies")) {
			err = fmt.Errorf("%w: without %s it warns of %+v", store.ErrUnavailable, nodes[1].Name, found)
		}
		return nil, err
	})
}
