//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/freeport"
)

// beMain makes the test binary this program.
const beMain = "PERDURE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// machine is a node in a process that can be killed and started again.
type machine struct {
	api, node string
	namespace string // of its network; "" is the test's
	args      []string
	log       string
	cmd       *exec.Cmd
}

func addresses(t *testing.T, n int) (free []string) {
	t.Helper()
	for range n {
		a, _ := freeport.For(t)
		free = append(free, a)
	}
	return free
}

// machines returns the nodes of a cluster, which are not started yet.
func machines(t *testing.T) []*machine {
	nodes, apis, dir := addresses(t, 3), addresses(t, 3), t.TempDir()
	var all []*machine
	for i, a := range nodes {
		folder := filepath.Join(dir, fmt.Sprint("node", i))
		all = append(all, newMachine(t, &machine{api: "http://" + apis[i], node: a, log: folder + ".log", args: []string{"serve",
			"--cluster", "test", "--join", strings.Join(nodes, ","), "--node", a, "--dir", folder, "--addr", apis[i], "--auth", "none"}}))
	}
	return all
}

// newMachine lets a machine end with the test.
func newMachine(t *testing.T, m *machine) *machine {
	t.Cleanup(func() {
		m.kill()
		if t.Failed() {
			log, _ := os.ReadFile(m.log)
			t.Logf("node %s:\n%s", m.node, log)
		}
	})
	return m
}

func (m *machine) start(t *testing.T) {
	t.Helper()
	out, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	m.cmd = exec.Command(os.Args[0], m.args...)
	if m.namespace != "" {
		m.cmd = exec.Command("ip", append([]string{"netns", "exec", m.namespace, os.Args[0]}, m.args...)...)
	}
	m.cmd.Env = append(os.Environ(), beMain+"=1", "PERDURE_PACE=1ms")
	m.cmd.Stdout, m.cmd.Stderr = out, out
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) kill() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait() // it was killed
		m.cmd = nil
	}
}

// call sends a request and returns the status and the body of the answer.
func call(ctx context.Context, method, url, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, string(data), err
}

// ready waits until a node's answer to /readyz is as wanted.
func (m *machine) ready(t *testing.T, status int, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for last := ""; ; {
		got, body, err := call(ctx, "GET", m.api+"/readyz", "")
		last = fmt.Sprint(got, body, err)
		if got == status && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(body, w) }) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("node %s is not %d with %q: %s", m.node, status, words, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// begin starts a run and reports whether that was acknowledged.
func (m *machine) begin(ctx context.Context, id string) (bool, string) {
	status, body, err := call(ctx, "POST", m.api+"/v1/threads/"+id+"/runs", `{"flow":"story","input":"a fox"}`)
	return err == nil && status < 300, fmt.Sprint(status, " ", body, err)
}

// TestNodesDie kills one node of three, and then two, while runs are started. What was
// acknowledged is there in the end, each step once.
func TestNodesDie(t *testing.T) {
	all := machines(t)
	all[0].start(t)
	all[0].ready(t, 503, "1 of 3", all[1].node, all[2].node)
	all[1].start(t)
	all[0].ready(t, 503, "2 of 3", all[2].node)
	all[2].start(t)
	for _, m := range all {
		m.ready(t, 200)
	}
	// Another process of the machine works on the store of a node.
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0], "doctor", "--store", "cluster:"+all[0].args[8])
	cmd.Env = append(os.Environ(), beMain+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("doctor: %v\n%s", err, out.String())
	}

	load := newLoad(t, all, max(4, threads()/125))
	load.more(t, "three nodes")
	for i := range turns() {
		load.reach(t, (i+1)*threads()/5)
		load.kill(t, i)
		load.more(t, "a node was killed")
		all[i].start(t)
		all[i].ready(t, 200)
	}
	load.reach(t, 4*threads()/5)
	all[0].kill() // nobody can take over without a quorum
	all[1].kill()
	bounded, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	if ok, said := all[2].begin(bounded, "no-quorum"); ok || !strings.HasPrefix(said, "503 ") {
		t.Errorf("one node of three was asked to start a run: %s", said)
	}
	all[2].ready(t, 503)
	all[0].start(t)
	all[2].ready(t, 200)
	load.more(t, "the second of two came back")
	all[1].start(t)
	all[1].ready(t, 200)
	load.reach(t, threads())
	load.check(t)
}

// threads is how many runs are started at least.
func threads() int {
	if testing.Short() {
		return 50
	}
	return 2000
}

// turns is how many nodes something happens to, one after the other.
func turns() int {
	if testing.Short() {
		return 1
	}
	return 3
}
