//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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
	args      []string
	log       string
	cmd       *exec.Cmd
}

func addresses(t *testing.T, n int) (free []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		free = append(free, l.Addr().String())
	}
	return free
}

// machines returns the nodes of a cluster, which are not started yet.
func machines(t *testing.T) []*machine {
	nodes, apis, dir := addresses(t, 3), addresses(t, 3), t.TempDir()
	var all []*machine
	for i, a := range nodes {
		folder := filepath.Join(dir, fmt.Sprint("node", i))
		m := &machine{api: "http://" + apis[i], node: a, log: folder + ".log", args: []string{"serve",
			"--cluster", "test", "--join", strings.Join(nodes, ","), "--node", a, "--dir", folder, "--addr", apis[i], "--auth", "none"}}
		t.Cleanup(func() {
			m.kill()
			if t.Failed() {
				log, _ := os.ReadFile(m.log)
				t.Logf("node %s:\n%s", m.node, log)
			}
		})
		all = append(all, m)
	}
	return all
}

func command(t *testing.T, log string, args ...string) *exec.Cmd {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beMain+"=1", "PERDURE_PACE=1ms")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func (m *machine) start(t *testing.T) {
	t.Helper()
	m.cmd = command(t, m.log, m.args...)
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

// ended waits until the run of a thread has ended.
func (m *machine) ended(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for last := ""; ; {
		var thread struct {
			Status string `json:"status"`
		}
		status, body, err := call(ctx, "GET", m.api+"/v1/threads/"+id, "")
		last = fmt.Sprint(status, " ", body, err)
		if status == 200 && json.Unmarshal([]byte(body), &thread) == nil && thread.Status == "succeeded" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("thread %s has not ended: %s", id, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestNodesDie kills one node of three, and then two, while runs are started. What was
// acknowledged is there in the end.
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

	var mu sync.Mutex
	var acknowledged []string
	var refused string // the last time
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil && i < 400; i++ {
				id := fmt.Sprintf("t-%d-%d", c, i)
				ok, said := all[(c+i)%3].begin(ctx, id)
				mu.Lock()
				if ok {
					acknowledged = append(acknowledged, id)
				} else {
					refused = said
				}
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	more := func(why string) {
		t.Helper()
		from, began := count(), time.Now()
		for count() < from+5 {
			if time.Since(began) > 3*time.Minute {
				t.Fatalf("%s: nothing was acknowledged any more: %s", why, refused)
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%s: acknowledged again after %v", why, time.Since(began).Round(time.Millisecond))
	}
	more("three nodes")
	for i := range 3 {
		all[i].kill()
		more("a node was killed")
		all[i].start(t)
		all[i].ready(t, 200)
	}
	all[0].kill()
	all[1].kill()
	bounded, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	if ok, said := all[2].begin(bounded, "no-quorum"); ok || !strings.HasPrefix(said, "503 ") {
		t.Errorf("one node of three was asked to start a run: %s", said)
	}
	all[2].ready(t, 503)
	all[0].start(t)
	all[2].ready(t, 200)
	more("the second of two came back")
	all[1].start(t)
	all[1].ready(t, 200)
	cancel()
	clients.Wait()
	for i, id := range acknowledged {
		all[i%3].ended(t, id)
	}
	t.Logf("%d runs were acknowledged, and all of them ended", len(acknowledged))
}
