//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/cli"
)

// The tests run this program as processes: the test binary is it, if it is
// told so.
const (
	beMain   = "PERDURE_TEST_MAIN"
	noWorker = "PERDURE_TEST_NO_WORKER"

	beHostile = "PERDURE_TEST_HOSTILE" // with a flow that lies to people
	beCaller  = "PERDURE_TEST_CALLER"  // prints the status of the answer to GET this address
)

// state is where the commands remember what is theirs.
var state string

func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		if len(os.Args) > 1 && os.Args[1] == "demo-worker" && os.Getenv(noWorker) != "" {
			fmt.Fprintln(os.Stderr, "this machine\x1b[2J has had enough")
			os.Exit(3)
		}
		if os.Getenv(beHostile) != "" {
			cli.Main(hostileFlow())
		}
		main()
		return
	}
	if address := os.Getenv(beCaller); address != "" {
		fmt.Print(caller(address, os.Getenv("PERDURE_TOKEN")))
		return
	}
	var err error
	if state, err = os.MkdirTemp("", "perdure-state-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(state)
	os.Exit(code)
}

// caller returns the status of an answer.
func caller(address, token string) string {
	r, err := http.NewRequest("GET", address, nil)
	if err != nil {
		return err.Error()
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	return res.Status
}

// process is the program while it runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	said  strings.Builder // on its standard output, as far as it was read
	err   output
	once  sync.Once
}

// output is what a process writes.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	news chan struct{} // has an element if there is more
}

// Write keeps what is written.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.news <- struct{}{}:
	default:
	}
	return o.buf.Write(p)
}

// find waits until something is written, and returns its first group.
func (o *output) find(t *testing.T, what *regexp.Regexp) string {
	t.Helper()
	late := time.After(patience)
	for {
		if found := what.FindStringSubmatch(o.String()); found != nil {
			return found[1]
		}
		select {
		case <-o.news:
		case <-late:
			t.Fatalf("no %v in %s", what, o.String())
		}
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// patience is how long a process may take: only one that hangs does.
const patience = 2 * time.Minute

// launch starts the program in a folder. Env is NAME=VALUE.
func launch(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launchCommand(t, dir, env, exe, args...)
}

func launchCommand(t *testing.T, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	p := &process{t: t, cmd: exec.CommandContext(ctx, name, args...)}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), beMain+"=1", "PERDURE_PACE=2ms", "PERDURE_STORE=", "PERDURE_SERVER=", "PERDURE_TOKEN=", "TMPDIR="+dir, "XDG_STATE_HOME="+state)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.err.news = make(chan struct{}, 1)
	p.cmd.Stderr = &p.err
	p.cmd.WaitDelay = 10 * time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.once.Do(func() {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		})
		cancel()
	})
	return p
}

// until reads its output up to a line that contains a text, which it returns.
func (p *process) until(text string) string {
	p.t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		p.said.WriteString(line)
		if strings.Contains(line, text) {
			return line
		}
		if err != nil {
			p.t.Fatalf("it does not say %q (%v) but:\n%s%s", text, err, p.said.String(), p.err.String())
		}
	}
}

// end waits for its end and returns its exit status, -1 if it was killed.
func (p *process) end() int {
	p.t.Helper()
	_, _ = io.Copy(&p.said, p.out)
	var err error
	p.once.Do(func() { err = p.cmd.Wait() })
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%v: %v\n%s%s", p.cmd.Args, err, p.said.String(), p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ends fails unless the process ends with a status.
func (p *process) ends(status int) *process {
	p.t.Helper()
	if got := p.end(); got != status {
		p.t.Fatalf("%v exits with %d, want %d:\n%s%s", p.cmd.Args[1:], got, status, p.said.String(), p.err.String())
	}
	return p
}

func (p *process) signal(s syscall.Signal) *process {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// alive reports whether there is a process with an id.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// call sends a request to the API and decodes the answer, which has to be a
// success.
func call(t *testing.T, method, url, body string, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s, %v", method, url, resp.Status, data, err)
	}
	if text, ok := into.(*string); ok {
		*text = string(data)
		return
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatalf("%s %s: %v in %s", method, url, err, data)
		}
	}
}
