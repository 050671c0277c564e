package node

import (
	"bytes"
	"context"
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
				for !nodes[i].logger.refuses() {
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
