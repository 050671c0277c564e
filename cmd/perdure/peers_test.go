//go:build unix

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/sse"
)

// follow reads the events of a thread from the beginning until one is what the
// caller looks for.
func follow(t *testing.T, address, thread string, enough func(sse.Event) bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", address+"/v1/threads/"+thread+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer time.AfterFunc(patience, func() { resp.Body.Close() }).Stop()
	for events := sse.NewReader(resp.Body, 1<<20); ; {
		e, err := events.Next()
		if err != nil {
			t.Fatalf("the stream ends before what was waited for: %v", err)
		}
		if enough(e) {
			return
		}
	}
}

// deltas returns what waits for some deltas of a pass after another, and notes
// the last pass.
func deltas(n int, pass *uint64) func(sse.Event) bool {
	after := *pass
	return func(e sse.Event) bool {
		var d struct{ Pass uint64 }
		if e.Kind != "delta" || json.Unmarshal([]byte(e.Data), &d) != nil || d.Pass <= after {
			return false
		}
		*pass = d.Pass
		n--
		return n <= 0
	}
}

// TestTokensOfAnotherProcess reads what a worker's model says from a server that
// has no worker, while either of them is stopped or killed and their sockets are
// removed.
func TestTokensOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "s.db")
	slow := []string{"PERDURE_PACE=20ms"}
	server, address := serve(t, dir, "--store", "sqlite:"+file, "--auth", "none", "--worker=false")
	worker := launch(t, dir, slow, "worker", "--store", "sqlite:"+file)
	thread := begin(t, address)
	var pass uint64
	follow(t, address, thread, deltas(5, &pass))

	worker.signal(syscall.SIGKILL).ends(-1)
	worker = launch(t, dir, slow, "worker", "--store", "sqlite:"+file)
	follow(t, address, thread, deltas(5, &pass))

	// A server that is stopped holds up nobody, and one that follows it takes over.
	server.signal(syscall.SIGSTOP)
	_, other := serve(t, dir, "--store", "sqlite:"+file, "--auth", "none", "--worker=false")
	run := status(t, other, thread, perdure.Suspended)
	server.signal(syscall.SIGKILL).ends(-1)

	if err := os.RemoveAll(file + "-peers"); err != nil {
		t.Fatal(err)
	}
	approve(t, other, run)
	status(t, other, thread, perdure.Succeeded)
	follow(t, other, begin(t, other), deltas(5, new(uint64)))
	worker.signal(syscall.SIGTERM).ends(0)
}
