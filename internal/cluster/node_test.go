//go:build unix

package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/internal/pgtest"
	_ "github.com/perdure/perdure/store/pgstore" // postgres: URLs
)

// order tells a process which node it is. Its arguments are those of perdure.
type order struct {
	Dir     string // of the world
	Life    int    // its number
	Version string // of its code
}

const orderEnv = "PERDURE_CLUSTER_NODE"

// TestMain is the program of a node if it is told so: the test binary executes
// itself.
func TestMain(m *testing.M) {
	text := os.Getenv(orderEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test is gone
	}()
	life, err := beginLife(o)
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, cli.Options{Runtime: perdure.Options{
		Version: o.Version, Grace: 5 * time.Second, Concurrency: 64,
		Observer: life, Logger: slog.New(lifeLog{slog.NewTextHandler(os.Stderr, nil), life}),
	}}, flows(o)...))
}

// life is what a process says about itself, in a file that it keeps locked while it
// lives: "claimed WORKER" when it claims a run, and "anew" when it has lost its lease,
// after which none of its steps runs.
type life struct {
	file *os.File
	mu   sync.Mutex
	last string // worker that was said
}

func lifeFile(dir string, n int) string { return filepath.Join(dir, "life-"+strconv.Itoa(n)) }

func beginLife(o order) (*life, error) {
	f, err := os.OpenFile(lifeFile(o.Dir, o.Life), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	return &life{file: f}, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// lifeOver reports whether a process is gone. One that is stopped is not.
func lifeOver(dir string, n int) (bool, error) {
	f, err := os.Open(lifeFile(dir, n))
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return true, nil
}

func (l *life) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (l *life) Committed(e perdure.Event) {
	if e.Kind != "claimed" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != e.Worker {
		l.last = e.Worker
		fmt.Fprintf(l.file, "claimed %s\n", e.Worker)
	}
}

type lifeLog struct {
	slog.Handler
	life *life
}

func (h lifeLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "a worker begins anew" {
		fmt.Fprintln(h.life.file, "anew")
	}
	return h.Handler.Handle(ctx, r)
}

// place is where the nodes of a test are: a server, a folder for their logs and for
// what their steps do, and the nodes.
type place struct {
	*testing.T
	pg  *pgtest.Server
	dir string

	mu    sync.Mutex
	nodes []*node // all that ever were, by life-1
}

// newPlace returns a place without nodes. Its folder is kept if the test fails.
func newPlace(t *testing.T) *place {
	p := &place{T: t, pg: pgtest.Start(t)}
	var err error
	if p.dir, err = os.MkdirTemp("", "perdure-cluster-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range p.all() {
			n.signal(syscall.SIGKILL)
			<-n.dead
			n.stdin.Close()
		}
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(filepath.Dir(p.pg.Dir), "log")); err == nil {
				os.WriteFile(filepath.Join(p.dir, "postgres.log"), log, 0o666)
			}
			t.Logf("the logs of all processes are in %s", p.dir)
		} else {
			os.RemoveAll(p.dir)
		}
	})
	return p
}

func (p *place) all() []*node {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*node(nil), p.nodes...)
}

// node is one process: an API node or a worker.
type node struct {
	life    int
	cmd     *exec.Cmd
	log     string // file of what it says
	stdin   io.Closer
	dead    chan struct{} // closed when it is gone
	started time.Time

	mu   sync.Mutex
	told bool // to end
	shot time.Time
}

// run starts a node with the arguments of perdure.
func (p *place) run(version string, args ...string) *node {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &node{life: len(p.nodes) + 1, dead: make(chan struct{}), started: time.Now()}
	text, err := json.Marshal(order{Dir: p.dir, Life: n.life, Version: version})
	if err != nil {
		p.Fatal(err)
	}
	n.log = filepath.Join(p.dir, fmt.Sprintf("%s-%d.log", args[0], n.life))
	out, err := os.Create(n.log)
	if err != nil {
		p.Fatal(err)
	}
	defer out.Close()
	n.cmd = exec.Command(os.Args[0], args...)
	n.cmd.Env = append(os.Environ(), orderEnv+"="+string(text), "GORACE=atexit_sleep_ms=0", "PERDURE_STORE=", "PERDURE_SERVER=", "PERDURE_TOKEN=")
	n.cmd.Dir, n.cmd.Stdout, n.cmd.Stderr = p.dir, out, out
	// Alone in its group, a process that is stopped is woken and ended by the
	// kernel when this one dies.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		p.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.nodes = append(p.nodes, n)
	go func() {
		defer close(n.dead)
		_ = n.cmd.Wait() // the state says how it ended
	}()
	return n
}

func (n *node) said() string {
	data, _ := os.ReadFile(n.log)
	return string(data)
}

func (n *node) gone() bool {
	select {
	case <-n.dead:
		return true
	default:
		return false
	}
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch s {
	case syscall.SIGKILL:
		n.told, n.shot = true, time.Now()
	case syscall.SIGTERM:
		n.told = true
	}
	_ = n.cmd.Process.Signal(s) // it may be gone
}

// cpu returns how much of a processor the node has used.
func (n *node) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(data, []byte(") "))
	f := strings.Fields(string(rest))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// end demands that a node is gone, because it was told to and with a code; -1 means
// killed. No node has raced or panicked.
func (p *place) end(n *node, code int) {
	p.Helper()
	select {
	case <-n.dead:
	case <-time.After(time.Minute):
		p.Fatalf("process %d does not end: %s", n.life, n.log)
	}
	n.mu.Lock()
	told := n.told
	n.mu.Unlock()
	got := n.cmd.ProcessState.ExitCode()
	if said := n.said(); !told && code < 0 || got != code || strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic:") {
		p.Errorf("process %d ended with code %d, want %d: see %s\n%s", n.life, got, code, n.log, tail(said))
	}
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

var (
	serves = regexp.MustCompile(`msg=serving address=(\S+)`)
	works  = regexp.MustCompile(`(works on)`)
)

// find awaits what a node says, and returns the first group.
func (p *place) find(n *node, what *regexp.Regexp) (found string) {
	p.Helper()
	p.await(fmt.Sprintf("process %d says %v", n.life, what), func() (bool, string) {
		if m := what.FindStringSubmatch(n.said()); m != nil {
			found = m[1]
			return true, ""
		}
		if n.gone() {
			p.Fatalf("process %d is gone: %s", n.life, tail(n.said()))
		}
		return false, tail(n.said())
	})
	return found
}

// patience is how long something may take: only what hangs does.
const patience = 5 * time.Minute

// await looks again and again until something is so.
func (p *place) await(what string, so func() (bool, string)) time.Duration {
	p.Helper()
	began := time.Now()
	for {
		ok, found := so()
		if ok {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			p.Fatalf("%s: not within %v: %s", what, patience, found)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// workersOf returns the ids of the workers that a process has had.
func (p *place) workersOf(n *node) (ids []string) {
	data, _ := os.ReadFile(lifeFile(p.dir, n.life)) // it may have died before
	for text := range strings.Lines(string(data)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(text), "claimed "); ok {
			ids = append(ids, id)
		}
	}
	return ids
}
