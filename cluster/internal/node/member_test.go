package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/perdure/perdure/store"
)

// watch runs Watch until the test ends.
func watch(t *testing.T, n *Node) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { n.Watch(ctx) })
	t.Cleanup(func() { cancel(); watching.Wait() })
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(words string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), words)
}

// TestAnotherList keeps a node out whose list differs, with a secret, with certificates
// and with neither. Both sides say so once, and are never complete.
func TestAnotherList(t *testing.T) {
	issue := authority(t)
	for name, secure := range map[string]func(*Config){
		"neither":      func(*Config) {},
		"a secret":     func(c *Config) { c.Secret = "a secret of some length" },
		"certificates": func(c *Config) { c.TLS = issue() },
	} {
		t.Run(name, func(t *testing.T) {
			all := configs(t)
			var logs [3]journal
			var nodes []*Node
			for i, c := range all {
				secure(&c)
				c.Log = slog.New(slog.NewTextHandler(&logs[i], nil))
				if i == 2 {
					c.Join = slices.Clone(c.Join)
					c.Join[0] = "127.0.0.1:1"
				}
				nodes = append(nodes, start(t, c))
				watch(t, nodes[i])
			}
			await(t, nodes[0], 1)
			await(t, nodes[1], 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, i := range []int{1, 2} {
				for !nodes[i].logger.refuses() || logs[i].count("refuse each other") == 0 {
					select {
					case <-ctx.Done():
						t.Fatalf("node %d has not noticed that another list differs", i)
					case <-time.After(10 * time.Millisecond):
					}
				}
			}
			if missing := nodes[2].Missing(); len(missing) != 2 {
				t.Errorf("a node with another list misses only %v", missing)
			}
			_, err := store.Open(ctx, nodes[2].URL())
			if gone, ok := errors.AsType[*MissingError](err); !ok || !gone.Refused || !strings.Contains(gone.Detail(), "--join") {
				t.Errorf("a node with another list says %v", err)
			}
			nodes[1].logger.refuse("again")
			for i := range logs {
				if told, complete := logs[i].count("refuse each other"), logs[i].count("all nodes of the cluster are here"); told > 1 || i > 0 && told == 0 || complete > 0 {
					t.Errorf("node %d has said %d times that nodes refuse each other, and %d times that all are here", i, told, complete)
				}
			}
		})
	}
}

// TestReplace replaces a node by one at another address. Then another one may fail.
func TestReplace(t *testing.T) {
	all := configs(t)
	var nodes []*Node
	for _, c := range all {
		nodes = append(nodes, start(t, c))
	}
	s := openStore(t, nodes[0])
	write(t, s, 1)
	for _, n := range nodes {
		n.Stop()
	}
	fourth := configs(t)[0]
	join := []string{all[0].Node, all[1].Node, fourth.Node}
	for i, c := range []Config{all[0], all[1], fourth} {
		c.Join = join
		nodes[i] = start(t, c)
		watch(t, nodes[i])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for !formed(nodes, join) {
		select {
		case <-ctx.Done():
			t.Fatal("the old node was not removed")
		case <-time.After(50 * time.Millisecond):
		}
	}
	write(t, s, 2)
	nodes[1].Stop()
	write(t, s, 3)
	if entries, err := store.ReadAll(ctx, openStore(t, nodes[2]), "j", 0); err != nil || len(entries) != 3 {
		t.Errorf("the new node has %d entries of 3: %v", len(entries), err)
	}
}

// formed reports whether the members of the cluster, and the holders of its store, are
// those of a list, and all of them are current.
func formed(nodes []*Node, join []string) bool {
	for _, n := range nodes {
		info, err := n.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
		if err != nil || info.Meta == nil || info.Meta.Size != len(join) {
			return false
		}
		for _, a := range info.AccountDetails {
			for _, s := range a.Streams {
				if s.Cluster == nil || s.Cluster.Leader != n.server.Name() { // others do not know who is current
					continue
				}
				return len(s.Cluster.Replicas) == len(join)-1 && !slices.ContainsFunc(s.Cluster.Replicas, func(p *server.PeerInfo) bool {
					return !p.Current || p.Offline || !slices.Contains(join, p.Name)
				})
			}
		}
	}
	return false
}

// TestMissingSaysHowManyAreNeeded: a new cluster needs all of its nodes once.
func TestMissingSaysHowManyAreNeeded(t *testing.T) {
	for says, gone := range map[string]MissingError{
		"if it has never worked, or one of them has lost its folder, it needs all 3": {Nodes: 3, Missing: []string{"a:1"}},
		"once they have elected a leader":                                            {Nodes: 3, Missing: []string{"a:1"}, Worked: true},
		"it needs 2 to work, and all 3 until it has worked once":                     {Nodes: 3, Missing: []string{"a:1", "b:1"}},
	} {
		if text := gone.Detail(); !strings.Contains(text, says) {
			t.Errorf("without %q it says %q", gone.Missing, text)
		}
	}
}

// TestWarningsOfANodeWithoutRoom has a node whose limit is too small for what it has
// missed: it runs, and the others say that it is full, not that it is down.
func TestWarningsOfANodeWithoutRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("the store takes a node for down after ten seconds")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	all := configs(t)
	nodes := []*Node{start(t, all[0]), start(t, all[1]), start(t, all[2])}
	s := openStore(t, nodes[0])
	nodes[2].Stop()
	entry := make([]byte, 100<<10)
	for i := range uint64(40) {
		rand.Read(entry) // or else the stream compresses it
		if _, err := store.AppendOnce(store.Patient(ctx), s, "j", i, entry); err != nil {
			t.Fatal(err)
		}
	}
	all[2].Dir, all[2].MaxDisk = t.TempDir(), 1<<20 // it is filled as one whose disk was lost
	full := start(t, all[2])
	for seq := uint64(0); ; seq++ { // the leader hears of nodes only as long as there is something to keep
		found, err := store.Warnings(ctx, s)
		if err == nil && len(found) == 1 && found[0].Kind == store.WarnSpace && strings.Contains(found[0].Detail, "node "+all[2].Node+" runs, but has no space left") {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the store warns of %+v, %v; the node has met its limit: %v", found, err, full.isFull())
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := store.AppendOnce(store.Patient(ctx), s, "k", seq, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExplain: what a node says of itself counts, and what it does not answer to stays.
func TestExplain(t *testing.T) {
	down := store.Warning{Kind: store.WarnNode, Detail: "server a:1 is down: 2 of 3 copies are left", Fix: "start it"}
	other := store.Warning{Kind: store.WarnSpace, Detail: "server a:1 is down: not so"}
	for says, want := range map[string]store.Warning{
		isFull:  {Kind: store.WarnSpace, Detail: "node a:1 runs, but has no space left"},
		hasRoom: {Kind: store.WarnNode, Detail: "node a:1 runs, but its copy"},
		"":      down,
	} {
		h := &handle{room: func(node string) string {
			if node != "a:1" {
				t.Errorf("%s is asked", node)
			}
			return says
		}}
		found := h.explain([]store.Warning{down, other})
		if found[0].Kind != want.Kind || !strings.HasPrefix(found[0].Detail, want.Detail) || !strings.HasSuffix(found[0].Detail, ": 2 of 3 copies are left") || found[1] != other {
			t.Errorf("a node that says %q: the store warns of %+v", says, found)
		}
	}
}
