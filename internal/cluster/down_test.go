//go:build unix

package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/freeport"
)

// status returns the status of a GET, 0 if nobody answers.
func status(ctx context.Context, url string) int {
	status, _, _ := call(ctx, http.MethodGet, url, "", nil)
	return status
}

// awaitStatus awaits the status of a GET on all nodes.
func (p *place) awaitStatus(nodes *addresses, path string, want int) time.Duration {
	p.Helper()
	return p.await(path, func() (bool, string) {
		for _, address := range nodes.each() {
			if got := status(p.Context(), address+path); got != want {
				return false, address + " answers " + http.StatusText(got)
			}
		}
		return true, ""
	})
}

// TestServerIsDown starts nodes while PostgreSQL is down, and stops it for a while
// when they work. They are not ready, come back by themselves, and lose nothing.
func TestServerIsDown(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ctl := func(args ...string) {
		t.Helper()
		if err := p.pg.Ctl(args...); err != nil {
			t.Fatal(err)
		}
	}
	ctl("stop", "-m", "fast")
	nodes := &addresses{slots: make([]string, 2)}
	var members []*node
	for i := range nodes.slots {
		address, _ := freeport.For(t)
		nodes.set(i, "http://"+address)
		members = append(members, p.run("one", "serve", "--addr", address, "--auth", "none", "--worker=false", "--store", p.pg.URL))
	}
	for range 2 {
		members = append(members, p.run("one", "worker", "--lease", "2s", "--store", p.pg.URL))
	}
	p.awaitStatus(nodes, "/healthz", http.StatusOK)
	p.awaitStatus(nodes, "/readyz", http.StatusServiceUnavailable)
	status, body, err := call(t.Context(), http.MethodPost, nodes.any()+"/v1/threads/early/runs", "only", map[string]any{"flow": "order", "input": input{}})
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(string(body), "urn:perdure:problem:unavailable") {
		t.Errorf("a start is answered with %d %s, %v", status, body, err)
	}
	p.idle(members, "while the server has not been there")
	for _, n := range members {
		if said := n.said(); n.gone() || strings.Count(said, "cannot be reached") != 1 {
			t.Errorf("process %d does not say once that it waits:\n%s", n.life, said)
		}
	}
	ctl("start")
	t.Logf("ready %v after the server began", p.awaitStatus(nodes, "/readyz", http.StatusOK).Round(time.Millisecond))

	c := newClients(p, nodes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const orders = 20
	for range orders {
		go c.start(ctx) // some are acknowledged before the server stops, some after
	}
	c.await("some orders are under way", func() (bool, string) {
		statuses, err := c.statuses()
		return len(statuses) > 0, fmt.Sprint(err)
	})
	ctl("stop", "-m", "immediate")
	p.awaitStatus(nodes, "/readyz", http.StatusServiceUnavailable)
	p.awaitStatus(nodes, "/healthz", http.StatusOK)
	p.idle(members, "while the server is down, with runs")
	ctl("start")
	t.Logf("ready %v after the server began again", p.awaitStatus(nodes, "/readyz", http.StatusOK).Round(time.Millisecond))
	c.ended(orders)
	t.Logf("%d runs whose worker was gone with an at-most-once step were decided on", c.decided)
	cancel()
	c.check()
	for i, n := range members {
		p.await("it says that the server was gone and, since workers always write, that it is back", func() (bool, string) {
			said := n.said()
			return strings.Contains(said, "the store takes no writes") && (i < 2 || strings.Contains(said, "the store takes writes again")), said
		})
	}
	for _, n := range slices.Backward(members) {
		if said := n.said(); strings.Contains(said, "looking for") {
			t.Errorf("process %d logs what follows from the outage:\n%s", n.life, tail(said))
		}
		n.signal(syscall.SIGTERM)
		p.end(n, 0)
	}
}

// idle prints how much of a processor nodes use.
func (p *place) idle(nodes []*node, when string) {
	const long = 3 * time.Second
	var before, used time.Duration
	for _, n := range nodes {
		before += n.cpu()
	}
	<-time.After(long)
	for _, n := range nodes {
		used += n.cpu()
	}
	p.Logf("%s, %d nodes use %.1f %% of a processor", when, len(nodes), 100*float64(used-before)/float64(long))
}

// TestServerThatRefuses: what waiting does not help ends a node at once, with an error
// that says what to do. One that is told to stop while it waits does so.
func TestServerThatRefuses(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	hba := filepath.Join(p.pg.Dir, "pg_hba.conf")
	was, err := os.ReadFile(hba)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hba, append([]byte("host all stranger 127.0.0.1/32 scram-sha-256\n"), was...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.pg.Ctl("reload"); err != nil {
		t.Fatal(err)
	}
	for what, url := range map[string]string{
		"does not let this user in": strings.Replace(p.pg.URL, "postgres@", "stranger:wrong@", 1),
		"no such database":          strings.Replace(p.pg.URL, "/postgres?", "/nothing?", 1),
	} {
		for _, args := range [][]string{{"serve", "--addr", "127.0.0.1:0"}, {"worker"}} {
			n := p.run("one", append(args, "--store", url)...)
			p.end(n, 7)
			if said := n.said(); !strings.Contains(said, what) || strings.Contains(said, "wrong") {
				t.Errorf("%v says, instead of that the server %s:\n%s", args, what, said)
			}
		}
	}
	if err := p.pg.Ctl("stop", "-m", "fast"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve", "--addr", "127.0.0.1:0"}, {"worker"}} {
		n := p.run("one", append(args, "--store", p.pg.URL)...)
		p.await("it waits", func() (bool, string) { return strings.Contains(n.said(), "cannot be reached"), n.said() })
		n.signal(syscall.SIGTERM)
		p.end(n, 0)
	}
}
