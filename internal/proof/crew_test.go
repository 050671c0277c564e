//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
)

// crewSchemes are the stores of crews.
var crewSchemes = []string{"sqlite", "postgres"}

// crew is a number of worker processes on one store. Each is this test binary,
// which executes itself and does what its order says.
type crew struct {
	*testing.T
	dir, url string
	store    store.Store
	rt       *perdure.Runtime // of the test itself, which executes nothing
	test     string           // what the workers run
	older    string           // the program of workers with the version "old", "" for this one

	mu      sync.Mutex
	members []*member // all that ever were, by life-1
}

// newCrew returns a crew of which nobody works yet, or does what the order says
// if this process is one of its workers.
func newCrew(t *testing.T, scheme string, flows func(crewOrder) []perdure.Flow) *crew {
	return newCrewAfter(t, scheme, flows, nil)
}

// newCrewAfter is newCrew with something that is done before this process opens the
// store.
func newCrewAfter(t *testing.T, scheme string, flows func(crewOrder) []perdure.Flow, before func(*crew)) *crew {
	if text := os.Getenv(crewEnv); text != "" {
		var order crewOrder
		if err := json.Unmarshal([]byte(text), &order); err != nil || order.Test != t.Name() {
			t.Skipf("this process is a child of another test: %s=%s (%v)", crewEnv, text, err)
		}
		crewChild(order, flows(order))
	}
	c := &crew{T: t, dir: t.TempDir(), test: t.Name()}
	c.url = scheme + ":" + filepath.Join(c.dir, "store")
	if scheme == "postgres" {
		c.url = pgtest.Schema(pgtest.URL(t), c.dir)
	}
	if before != nil {
		before(c)
	}
	var err error
	if c.store, err = store.Open(t.Context(), c.url); err != nil {
		t.Fatal(err)
	}
	if c.rt, err = perdure.New(t.Context(), c.store, perdure.Options{Version: "test"}, flows(crewOrder{Dir: c.dir})...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		members := slices.Clone(c.members)
		c.mu.Unlock()
		for _, m := range members {
			m.signal(syscall.SIGKILL)
			<-m.dead
			m.stdin.Close()
		}
		if err := c.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// member is one process of a crew.
type member struct {
	life  int
	cmd   *exec.Cmd
	stdin interface{ Close() error } // its end tells the process that the test is gone
	up    chan struct{}              // closed when it begins to work
	dead  chan struct{}              // closed when it is gone and all that it said is known

	mu      sync.Mutex
	isUp    bool
	held    map[string]bool // threads that it has claimed
	workers []string        // the ids under which it claimed
	lost    int             // how often it found its lease lost
	over    int             // of those ids, the first so many will do nothing more
	started time.Time
	stopped bool // by SIGSTOP
	ending  bool // it was told to
	code    int  // it ended with
	said    []string
	stderr  bytes.Buffer
}

// hire starts a process.
func (c *crew) hire(order crewOrder) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	order.Test, order.URL, order.Dir, order.Life = c.test, c.url, c.dir, len(c.members)+1
	text, err := json.Marshal(order)
	if err != nil {
		c.Fatal(err)
	}
	parts := strings.Split(c.test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	m := &member{life: order.Life, up: make(chan struct{}), dead: make(chan struct{}), held: map[string]bool{}, started: time.Now()}
	program := os.Args[0]
	if c.older != "" && order.Version == "old" {
		program = c.older
	}
	m.cmd = exec.Command(program, "-test.run="+strings.Join(parts, "/"), "-test.count=1", "-test.timeout=10m")
	m.cmd.Env = append(os.Environ(), crewEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	m.cmd.Stderr = &m.stderr
	// Alone in its group, a process that is stopped is woken and ended by the
	// kernel when this one dies.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		c.Fatal(err)
	}
	m.stdin = stdin
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.members = append(c.members, m)
	go m.listen(bufio.NewScanner(stdout))
	return m
}

// listen notes what the process says until it is gone.
func (m *member) listen(lines *bufio.Scanner) {
	defer close(m.dead)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), crewMark)
		m.mu.Lock()
		switch w := strings.Fields(text); {
		case !ok || len(w) == 0:
			m.said = append(m.said, lines.Text())
		case w[0] == "up" && !m.isUp:
			m.isUp = true
			close(m.up)
		case w[0] == "claimed" && len(w) == 3:
			m.held[w[2]] = true
			if !slices.Contains(m.workers, w[1]) {
				m.workers = append(m.workers, w[1])
			}
		case w[0] == "free" && len(w) == 2:
			delete(m.held, w[1])
		case w[0] == "lost":
			m.lost++
			m.over = len(m.workers)
			clear(m.held)
		default:
			m.said = append(m.said, text)
		}
		m.mu.Unlock()
	}
	err := m.cmd.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.code = m.cmd.ProcessState.ExitCode()
	if err != nil {
		m.said = append(m.said, err.Error())
	}
}

// signal sends a signal, and reports whether there was somebody to get it.
func (m *member) signal(s syscall.Signal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s {
	case syscall.SIGKILL, syscall.SIGTERM:
		m.ending = true
	case syscall.SIGSTOP, syscall.SIGCONT:
		m.stopped = s == syscall.SIGSTOP
	}
	return m.cmd.Process.Signal(s) == nil
}

// holds returns the threads that the process has claimed.
func (m *member) holds() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.held))
}

func (m *member) is() (up, stopped bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isUp, m.stopped
}

// gone reports whether the process has ended.
func (m *member) gone() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

// checkEnd demands of a process that is gone that it was told to end, and that
// it ended well if it could.
func (c *crew) checkEnd(m *member, termed bool) {
	<-m.dead
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ending || termed && m.code != 0 || strings.Contains(m.stderr.String(), "DATA RACE") {
		c.Errorf("process %d ended with code %d:\n%s\n%s", m.life, m.code, strings.Join(m.said, "\n"), &m.stderr)
	}
}

// of returns the process whose worker had an id.
func (c *crew) of(worker string) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		m.mu.Lock()
		found := slices.Contains(m.workers, worker)
		m.mu.Unlock()
		if found {
			return m
		}
	}
	return nil
}

// cells returns the keys of the store's cells with a prefix.
func (c *crew) cells(prefix string) (keys []string) {
	for cell, err := range c.store.List(c.Context(), prefix, "") {
		if err != nil {
			c.Fatal(err)
		}
		keys = append(keys, cell.Key)
	}
	return keys
}

// await looks again and again until something is so, for a minute.
func (c *crew) await(what string, so func() (bool, string)) {
	c.Helper()
	end := time.Now().Add(time.Minute)
	for {
		ok, found := so()
		if ok {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("%s: not within a minute: %s", what, found)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// dismiss ends the processes that are left as SIGTERM does, after which no lease
// is left.
func (c *crew) dismiss(members []*member) {
	for _, m := range members {
		select { // before it is up, nothing there hears the signal
		case <-m.up:
		case <-m.dead:
		}
		m.signal(syscall.SIGTERM)
	}
	for _, m := range members {
		c.checkEnd(m, true)
	}
	if left := c.cells("worker/"); len(left) > 0 {
		c.Errorf("all processes are gone, and these leases are left: %q", left)
	}
}

func (c *crew) String() string { return fmt.Sprintf("%d processes on %s", len(c.members), c.url) }
