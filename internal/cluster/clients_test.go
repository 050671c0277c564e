//go:build unix

package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clients is the world outside: it starts orders, answers what they ask, and keeps
// what was acknowledged. It speaks HTTP to any API node.
type clients struct {
	*place
	nodes *addresses
	world world

	mu       sync.Mutex
	runs     map[string]string // acknowledged starts: run by thread
	answers  map[string]int    // acknowledged answers: value by thread
	decided  int               // asks about what became of an at-most-once step that were answered
	retried  int               // runs that were quarantined
	inputs   []input           // of what was started, acknowledged or not
	failures []error
}

func newClients(p *place, nodes *addresses) *clients {
	return &clients{place: p, nodes: nodes, world: world{dir: p.dir}, runs: map[string]string{}, answers: map[string]int{}}
}

func (c *clients) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, err)
}

func (c *clients) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.failures...)
}

// start starts the next order, however long that takes, and attends to it.
func (c *clients) start(ctx context.Context) {
	c.mu.Lock()
	n := len(c.inputs)
	in := input{Name: fmt.Sprintf("order-%d", n), N: n}
	c.inputs = append(c.inputs, in)
	c.mu.Unlock()
	var run struct{ ID string }
	err := c.nodes.insist(ctx, http.MethodPost, "/v1/threads/"+in.Name+"/runs", "only", map[string]any{"flow": "order", "input": in, "user": fmt.Sprint("user-", n%5)}, &run)
	if err != nil {
		c.fail(err)
		return
	}
	c.mu.Lock()
	c.runs[in.Name] = run.ID
	c.mu.Unlock()
	go c.attend(ctx, in.Name)
}

// ask is an open question as the API shows it.
type ask struct{ ID, Thread, Path, Kind string }

// attend answers what an order asks, and retries it if it was quarantined, until it
// has ended.
func (c *clients) attend(ctx context.Context, thread string) {
	for ctx.Err() == nil {
		var waited struct {
			Run struct {
				Status string
				Asks   []ask
			}
		}
		err := c.nodes.insist(ctx, http.MethodGet, "/v1/threads/"+thread+"/runs/newest/wait?seconds=5", "", nil, &waited)
		switch waited.Run.Status {
		case "succeeded":
			return
		case "failed", "cancelled", "blocked":
			err = errors.Join(err, fmt.Errorf("%s is %s", thread, waited.Run.Status))
		case "quarantined":
			err = errors.Join(err, c.retry(ctx, thread))
		}
		for _, a := range waited.Run.Asks {
			err = errors.Join(err, c.answer(ctx, a))
		}
		if err != nil && ctx.Err() == nil {
			c.fail(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// retry retries a run that was quarantined.
func (c *clients) retry(ctx context.Context, thread string) error {
	err := c.nodes.insist(ctx, http.MethodPost, "/v1/threads/"+thread+"/runs/newest/retry", "", map[string]any{"reason": "test"}, nil)
	if no := (*refusal)(nil); errors.As(err, &no) && no.status == http.StatusConflict {
		return nil // the answer to the first try was lost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retried++
	return err
}

// retryChildren retries children that were quarantined, until the context ends.
func (c *clients) retryChildren(ctx context.Context) {
	for ctx.Err() == nil {
		var stuck struct{ Threads []struct{ ID string } }
		err := c.nodes.insist(ctx, http.MethodGet, "/v1/threads?status=quarantined&flow=leg", "", nil, &stuck)
		for _, t := range stuck.Threads {
			err = errors.Join(err, c.retry(ctx, t.ID))
		}
		if err != nil && ctx.Err() == nil {
			c.fail(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// answer answers a question, or leaves it for later.
func (c *clients) answer(ctx context.Context, a ask) error {
	var n int
	if _, err := fmt.Sscanf(a.Thread, "order-%d", &n); err != nil {
		return fmt.Errorf("%q asks: %w", a.Thread, err)
	}
	reply := map[string]any{"value": answerOf(n)}
	outcome := a.Kind != "approval"
	if outcome {
		done, sure, err := c.became(ctx, a)
		if err != nil || !sure {
			return err
		}
		reply = map[string]any{"decision": "not-done"}
		if done {
			reply = map[string]any{"decision": "done", "value": value(a.Thread, a.Path)}
		}
	}
	err := c.nodes.insist(ctx, http.MethodPost, "/v1/asks/"+a.ID+"/answer", "", reply, nil)
	if no := (*refusal)(nil); errors.As(err, &no) && no.status == http.StatusGone {
		return nil // the list lagged
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
	case outcome:
		c.decided++
	default:
		c.answers[a.Thread] = answerOf(n)
	}
	return err
}

// became finds out whether an at-most-once step was done, and whether that is
// certain: the process that was about to do it is gone, has left it, or knows that it
// has lost its lease and lets no step run.
func (c *clients) became(ctx context.Context, a ask) (done, sure bool, err error) {
	var page struct {
		Events []struct{ Kind, Path, Worker string }
	}
	if err := c.nodes.insist(ctx, http.MethodGet, "/v1/threads/"+a.Thread+"/events?limit=1000", "", nil, &page); err != nil {
		return false, false, err
	}
	worker, starter := "", ""
	for _, e := range page.Events {
		if e.Kind == "claimed" {
			worker = e.Worker
		} else if e.Kind == "intent" && e.Path == a.Path {
			starter = worker
		}
	}
	life, over, err := c.lifeOf(starter)
	if err != nil || life == 0 {
		return false, false, err
	}
	// Only now the world: it may have happened just before it was over.
	lines, err := c.world.lines(a.Thread)
	for _, l := range lines {
		if l.path == a.Path {
			done = done || l.what == effect
			over = over || l.what == left && l.life == life
		}
	}
	return done, done || over, err
}

// lifeOf returns the process that had a worker, 0 if it has not said so yet, and
// whether that worker does nothing any more.
func (p *place) lifeOf(worker string) (life int, over bool, err error) {
	for _, n := range p.all() {
		gone, err := lifeOver(p.dir, n.life)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, false, err
		}
		data, err := os.ReadFile(lifeFile(p.dir, n.life))
		if err != nil {
			return 0, false, err
		}
		if _, since, found := bytes.Cut(data, []byte("claimed "+worker+"\n")); worker != "" && found {
			return n.life, gone || strings.Contains(string(since), "anew\n"), nil
		}
	}
	return 0, false, nil
}

// ended awaits the end of all orders and their children, as long as there is progress.
func (c *clients) ended(orders int) {
	c.Helper()
	for ended, since := 0, time.Now(); ; <-time.After(50 * time.Millisecond) {
		if err := c.failed(); err != nil {
			c.Fatal(err)
		}
		statuses, err := c.statuses()
		switch n := statuses["succeeded"]; {
		case n == 2*orders && len(statuses) == 1:
			return
		case n != ended:
			ended, since = n, time.Now()
		case time.Since(since) > patience:
			c.stuck(statuses, err)
		}
	}
}

// stuck fails, says what some of the threads are at that have not ended, and has all
// nodes write down their stacks, which ends them.
func (c *clients) stuck(statuses map[string]int, err error) {
	c.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, statuses, err)
	some := 0
	for thread, entries := range c.histories() {
		if len(of(entries, "ended")) == 0 && some < 5 {
			some++
			fmt.Fprintf(&b, "%s: %v\n", thread, entries[max(0, len(entries)-12):])
		}
	}
	for _, n := range c.place.all() {
		n.signal(syscall.SIGQUIT)
	}
	<-time.After(5 * time.Second)
	c.Fatalf("not all orders end: %s", b.String())
}

// statuses counts the threads of each status, by the view. Starts that died have none.
func (c *clients) statuses() (map[string]int, error) {
	all := map[string]int{}
	err := c.sql(c.Context(), func(conn *connection) error {
		return each(c.Context(), conn, "SELECT status, count(*) FROM perdure.threads WHERE status IS NOT NULL GROUP BY 1", func(scan func(...any) error) error {
			var status string
			var n int
			err := scan(&status, &n)
			all[status] = n
			return err
		})
	})
	return all, err
}
