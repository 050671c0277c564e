package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// tryStart starts a run under an idempotency key, and returns the status, the
// answer and after how long to ask again.
func tryStart(t *testing.T, address, key string) (status int, body, after string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", address+"/v1/runs", strings.NewReader(`{"flow": "research", "input": "x"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	return answer(t, r)
}

func answer(t *testing.T, r *http.Request) (status int, body, after string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header.Get("Retry-After")
}

// ready waits until the server says that it is ready, or is not, and returns
// what it says.
func ready(t *testing.T, address string, want bool) string {
	t.Helper()
	for range 2000 {
		r, err := http.NewRequestWithContext(t.Context(), "GET", address+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if status, body, _ := answer(t, r); (status == 200) == want {
			return body
		}
		<-time.After(20 * time.Millisecond) // it is another process
	}
	t.Fatalf("ready is not %v", want)
	return ""
}

// TestServerOnAFullDisk fills the disk under a server: who writes is told why
// nothing is written, the log says once that it begins and once that it is
// over, and then everything goes on, each start once.
func TestServerOnAFullDisk(t *testing.T) {
	schemes := []string{"sqlite", "file"}
	if testing.Short() {
		schemes = schemes[:1]
	}
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) { serveOnAFullDisk(t, scheme) })
	}
}

func serveOnAFullDisk(t *testing.T, scheme string) {
	dir := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.Mkdir(dir, 0o700), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m,mode=700")); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	p := launch(t, t.TempDir(), nil, "dev", "--addr", "127.0.0.1:0", "--store", scheme+":"+filepath.Join(dir, "store"))
	t.Cleanup(func() { p.signal(syscall.SIGTERM).ends(0) })
	line := p.until("Perdure serves http://")
	address, _, _ := strings.Cut(line[strings.Index(line, "http://"):], ",")
	before := begin(t, address)
	run := status(t, address, before, perdure.Suspended)
	ready(t, address, true)

	filler := filepath.Join(dir, "filler")
	fill := func() {
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for chunk := make([]byte, 1<<20); len(chunk) > 0; {
			if n, err := f.Write(chunk); n == 0 && err != nil {
				chunk = chunk[:len(chunk)/2]
			}
		}
	}
	code, body, after, key := 0, "", "", ""
	for i := 0; code != 507; i++ {
		if i == 50 {
			t.Fatalf("start %d on a full disk: %d %s", i, code, body)
		}
		fill()
		key = fmt.Sprint("key-", i)
		code, body, after = tryStart(t, address, key)
	}
	if !strings.Contains(body, "problem:full") || !strings.Contains(body, "the store has no space left") || !strings.Contains(body, "may have happened") || after == "" {
		t.Errorf("a start on a full disk: %s, Retry-After %q", body, after)
	}
	if said := ready(t, address, false); !strings.Contains(said, "the store has no space left") {
		t.Errorf("it is not ready: %s", said)
	}
	if code, body, _ = tryStart(t, address, "another"); code != 507 {
		t.Errorf("another start on a full disk: %d %s", code, body)
	}
	status(t, address, before, perdure.Suspended) // it can be read

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	ready(t, address, true)
	p.err.find(t, regexp.MustCompile("(the store takes writes again)"))
	var started []string
	for range 2 {
		code, body, _ = tryStart(t, address, key)
		var run perdure.Run
		if err := json.Unmarshal([]byte(body), &run); code >= 300 || err != nil {
			t.Fatalf("the start that failed, again: %d %s, %v", code, body, err)
		}
		started = append(started, run.Thread+" "+run.ID)
	}
	if started[0] != started[1] {
		t.Errorf("one key started %v", started)
	}
	thread, _, _ := strings.Cut(started[0], " ")
	status(t, address, thread, perdure.Succeeded)
	approve(t, address, run)
	status(t, address, before, perdure.Succeeded)
	log := p.err.String()
	for _, line := range []string{"the store takes no writes", "the store takes writes again"} {
		if n := strings.Count(log, line); n != 1 {
			t.Errorf("the log says %d times that %s:\n%s", n, line, log)
		}
	}
	if n := strings.Count(log, "level=ERROR") + strings.Count(log, "level=WARN"); n != 1 {
		t.Errorf("the log has %d errors and warnings, want one for the full disk:\n%s", n, log)
	}
}
