package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// executable finds this program, which is started again as a worker.
var executable = os.Executable

// workerProcess is a worker in a process of its own.
type workerProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	told  chan toldDelta
	deaf  chan struct{} // closed when nobody receives from told anymore
	hush  func()        // closes deaf, once
	said  lastWords     // on its standard error
	done  chan struct{}
	err   error // of its end, when done is closed
}

// startWorkerProcess starts a worker that sends deltas. The worker stops when this
// process is gone, however it ended.
func startWorkerProcess(args, env []string) (*workerProcess, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, append([]string{workerName}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	c := &workerProcess{cmd: cmd, told: make(chan toldDelta), deaf: make(chan struct{}), done: make(chan struct{})}
	c.hush = sync.OnceFunc(func() { close(c.deaf) })
	cmd.Stderr = &c.said
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() && c.tell(lines.Bytes()) {
		}
		_, _ = io.Copy(io.Discard, out)
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// tell hands over a delta, and reports whether more are wanted.
func (c *workerProcess) tell(line []byte) bool {
	var t toldDelta
	if json.Unmarshal(line, &t) != nil {
		return false
	}
	select {
	case c.told <- t:
		return true
	case <-c.deaf:
		return false
	}
}

func (c *workerProcess) pid() int { return c.cmd.Process.Pid }

// kill kills the process as kill -9 does and waits until it is gone. Deltas that
// were not received are dropped, since the caller who would receive them waits
// here.
func (c *workerProcess) kill() error {
	c.hush()
	err := c.cmd.Process.Kill()
	<-c.done
	return err
}

// stop lets the worker end in order and kills it if it does not. It drops the same
// deltas as kill.
func (c *workerProcess) stop(ctx context.Context) error {
	c.hush()
	c.stdin.Close()
	late := time.NewTimer(15 * time.Second)
	defer late.Stop()
	select {
	case <-c.done:
		if c.err != nil {
			return c.failed()
		}
		return nil
	case <-late.C:
		_ = c.kill()
		return fmt.Errorf("the worker (process %d) did not stop, and was killed", c.pid())
	case <-ctx.Done():
		_ = c.kill()
		return ctx.Err()
	}
}

// failed explains why the process ended by itself.
func (c *workerProcess) failed() error {
	why := strings.TrimSpace(c.said.String())
	if why == "" {
		why = "it said nothing"
	}
	state := "it exited with status 0"
	if c.err != nil {
		state = c.err.Error()
	}
	return fmt.Errorf("the worker (process %d) ended by itself: %s: %s", c.pid(), state, why)
}

// lastWords keeps the last of what is written to it.
type lastWords struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write keeps what is written.
func (t *lastWords) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - 4096; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

func (t *lastWords) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
