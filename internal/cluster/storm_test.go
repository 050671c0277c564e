//go:build unix

package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kit"
)

// size is how much there is of everything.
type size struct{ orders, readers, faults, open int }

// TestCluster has three API nodes and five workers on one PostgreSQL server. At random
// they are killed and frozen, their connections are cut and held, and the server
// restarts without warning or syncs slowly. All orders end with the right output, each
// step is recorded once, effects that may happen once do, nothing that was acknowledged
// is lost, and every reader of a stream sees exactly the journal.
func TestCluster(t *testing.T) {
	t.Parallel()
	x := &storm{place: newPlace(t), size: []size{
		{orders: 200, readers: 10, faults: 12, open: 40},
		{orders: 2000, readers: 100, faults: 120, open: 200},
		{orders: 5000, readers: 200, faults: 1000, open: 200},
	}[kit.Sized(0, 1, 2)], seed: rand.Uint64(), count: map[string]int{}}
	t.Logf("seed %d", x.seed)
	x.rng = rand.New(rand.NewPCG(x.seed, 0))
	x.nodes = &addresses{slots: make([]string, apiNodes)}
	x.clients = newClients(x.place, x.nodes)
	for i := range x.slots {
		x.proxies[i] = newProxy(t, "127.0.0.1:"+x.pg.Port)
		x.hire(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var attending sync.WaitGroup
	attending.Go(func() { x.clients.retryChildren(ctx) })
	began := time.Now()
	readers, reading := x.begin(ctx)
	x.storm()
	x.calm()
	x.clients.ended(x.orders)
	reading.Wait()
	took := time.Since(began).Round(time.Millisecond)
	x.living()
	cancel()
	attending.Wait()
	for _, n := range x.slots {
		n.signal(syscall.SIGTERM)
	}
	for _, n := range x.slots {
		x.end(n, 0)
	}
	all := x.clients.check()
	connects, entries := 0, 0
	for _, r := range readers {
		x.clients.told(r, all[r.thread])
		connects += r.connects
	}
	for _, e := range all {
		entries += len(e)
	}
	t.Logf("%d orders with %d entries in %v; faults: %v; %d processes; %d readers connected %d times; %d outcomes were asked for, %d runs quarantined; takeovers took %s",
		x.orders, entries, took, x.count, len(x.all()), len(readers), connects, x.clients.decided, x.clients.retried, percentiles(x.clients.takeovers(all)))
}

const (
	apiNodes = 3
	workers  = 5
)

// storm is one execution of TestCluster.
type storm struct {
	*place
	size
	seed    uint64
	rng     *rand.Rand
	nodes   *addresses
	clients *clients
	slots   [apiNodes + workers]*node
	proxies [apiNodes + workers]*proxy
	count   map[string]int // faults by name
	made    atomic.Int64   // faults
	later   []time.Time    // when what follows a fault is to be done,
	after   []func()       // and what it is
}

// hire starts the node of a slot: the first ones serve, the others work.
func (x *storm) hire(slot int) {
	url := strings.Replace(x.pg.URL, ":"+x.pg.Port+"/", ":"+x.proxies[slot].port()+"/", 1)
	if slot >= apiNodes {
		x.slots[slot] = x.run("one", "worker", "--lease", lease.String(), "--store", url)
		return
	}
	n := x.run("one", "serve", "--addr", "127.0.0.1:0", "--auth", "none", "--worker=false", "--store", url)
	x.slots[slot] = n
	go func() { // it may be killed before it serves
		for !n.gone() && x.Context().Err() == nil {
			if m := serves.FindStringSubmatch(n.said()); m != nil {
				x.nodes.set(slot, m[1])
				return
			}
			<-time.After(20 * time.Millisecond)
		}
	}()
}

// begin starts orders, not too many at once, and readers of some of them.
func (x *storm) begin(ctx context.Context) (readers []*reader, reading *sync.WaitGroup) {
	reading = new(sync.WaitGroup)
	for i := range x.readers {
		r := &reader{thread: fmt.Sprintf("order-%d", i*x.orders/x.readers)}
		readers = append(readers, r)
		reading.Go(func() { r.follow(ctx, x.nodes) })
	}
	for i := range x.nodes.slots { // until then there is nobody to call
		x.await("API nodes serve", func() (bool, string) { return x.nodes.each()[i] != "", "" })
	}
	go func() {
		for started := 0; started < x.orders; {
			statuses, err := x.clients.statuses()
			if err == nil {
				var starts sync.WaitGroup
				// Some for each fault, so that there is work whenever something fails.
				may := min(x.orders, int(x.made.Load()+1)*x.orders/x.faults)
				for range min(may-started, x.open-(started-statuses["succeeded"]/2)) {
					started++
					starts.Go(func() { x.clients.start(ctx) })
				}
				starts.Wait()
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return readers, reading
}

// soon does something in a while.
func (x *storm) soon(least, most time.Duration, do func()) {
	x.later = append(x.later, time.Now().Add(least+time.Duration(x.rng.Int64N(int64(most-least)))))
	x.after = append(x.after, do)
}

// due does what is due, or everything.
func (x *storm) due(everything bool) {
	for i := 0; i < len(x.after); {
		if !everything && time.Now().Before(x.later[i]) {
			i++
			continue
		}
		do := x.after[i]
		x.later = append(x.later[:i], x.later[i+1:]...)
		x.after = append(x.after[:i], x.after[i+1:]...)
		do()
	}
}

// storm makes faults, one after the other, of which some last.
func (x *storm) storm() {
	x.await("the first orders are under way", func() (bool, string) {
		statuses, err := x.clients.statuses()
		return len(statuses) > 0, fmt.Sprint(err)
	})
	for i := range x.faults {
		x.due(false)
		x.fault(i)
		x.made.Add(1)
		for end := time.Now().Add(100*time.Millisecond + time.Duration(x.rng.Int64N(int64(lease/2)))); time.Now().Before(end); x.due(false) {
			<-time.After(20 * time.Millisecond)
		}
		if err := x.clients.failed(); err != nil {
			x.Fatal("the storm stops early: ", err)
		}
	}
}

// fault makes one fault. In a short storm each kind comes at least once.
func (x *storm) fault(i int) {
	kinds := []string{"kill", "kill", "kill", "stop", "cut", "hold", "kill API", "stop API", "restart", "slow", "cut all", "hold all"}
	kind := kinds[i%len(kinds)]
	if i >= len(kinds) {
		kind = kinds[x.rng.IntN(len(kinds))]
	}
	x.count[kind]++
	slot := apiNodes + x.rng.IntN(workers)
	if strings.HasSuffix(kind, "API") || x.rng.IntN(3) == 0 && (kind == "cut" || kind == "hold") {
		slot = x.rng.IntN(apiNodes)
	}
	n := x.slots[slot]
	switch kind {
	case "kill", "kill API":
		n.signal(syscall.SIGKILL)
		x.end(n, -1)
		x.hire(slot)
	case "stop", "stop API":
		n.signal(syscall.SIGSTOP)
		x.soon(lease/2, 3*lease, func() { n.signal(syscall.SIGCONT) })
	case "restart":
		if err := x.pg.Ctl("restart", "-m", "immediate"); err != nil {
			x.Fatal(err)
		}
	case "slow":
		x.syncs(100_000)
		x.soon(time.Second, 3*time.Second, func() { x.syncs(0) })
	case "cut":
		x.proxies[slot].cut()
	case "hold":
		p := x.proxies[slot]
		p.hold()
		x.soon(lease/4, 3*lease, p.release)
	case "cut all":
		for _, p := range x.proxies {
			p.cut()
		}
	case "hold all":
		for _, p := range x.proxies {
			p.hold()
			x.soon(lease/4, 2*lease, p.release)
		}
	}
}

// syncs delays every commit of the server by so many microseconds.
func (x *storm) syncs(delay int) {
	x.await("the server takes a setting", func() (bool, string) {
		err := x.sql(x.Context(), func(c *connection) error {
			for _, set := range []string{"ALTER SYSTEM SET commit_siblings = 0", fmt.Sprintf("ALTER SYSTEM SET commit_delay = %d", delay), "SELECT pg_reload_conf()"} {
				if _, err := c.Exec(x.Context(), set); err != nil {
					return err
				}
			}
			return nil
		})
		return err == nil, fmt.Sprint(err)
	})
}

// calm makes no more faults and ends those that last.
func (x *storm) calm() {
	x.due(true)
	for i, n := range x.slots {
		if n.gone() {
			x.Errorf("process %d ended by itself:\n%s", n.life, tail(n.said()))
		}
		if i < apiNodes {
			x.find(n, serves)
		} else {
			x.find(n, works)
		}
	}
}

// living awaits that every API node is ready and lists exactly the workers that are
// alive.
func (x *storm) living() {
	want := map[int]bool{}
	for _, n := range x.slots[apiNodes:] {
		want[n.cmd.Process.Pid] = true
	}
	for _, n := range x.slots[:apiNodes] {
		address := x.find(n, serves)
		x.await("every node tells the living from the dead", func() (bool, string) {
			var list struct{ Workers []struct{ PID int } }
			err := (&addresses{slots: []string{address}}).insist(x.Context(), http.MethodGet, "/v1/workers", "", nil, &list)
			for _, w := range list.Workers {
				if !want[w.PID] {
					return false, fmt.Sprintf("%d is listed and gone", w.PID)
				}
			}
			return err == nil && len(list.Workers) == workers && status(x.Context(), address+"/readyz") == http.StatusOK, fmt.Sprint(list, err)
		})
	}
}
