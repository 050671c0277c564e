package cli

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

// executable finds this program, of which workers are made.
var executable = os.Executable

// workerProcess is a worker in a process of its own.
type workerProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  lastWords // on its standard error
	done  chan struct{}
	err   error // of its end, when done is closed
}

// startWorkerProcess starts a worker that tells about a thread. The worker stops when
// this process is gone, however that happens.
func startWorkerProcess(args, env []string, tell func(toldDelta) bool) (*workerProcess, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, append([]string{"worker"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	c := &workerProcess{cmd: cmd, done: make(chan struct{})}
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
		for lines.Scan() {
			var t toldDelta
			if json.Unmarshal(lines.Bytes(), &t) != nil || !tell(t) {
				break
			}
		}
		_, _ = io.Copy(io.Discard, out)
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

func (c *workerProcess) pid() int { return c.cmd.Process.Pid }

// kill kills the process as kill -9 does, and waits until it is gone.
func (c *workerProcess) kill() error {
	err := c.cmd.Process.Kill()
	<-c.done
	return err
}

// stop lets the worker end in order, and kills it if it does not.
func (c *workerProcess) stop(ctx context.Context) error {
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

// failed says why the process ended by itself.
func (c *workerProcess) failed() error {
	why := strings.TrimSpace(c.said.String())
	if why == "" {
		why = "it said nothing"
	}
	state := "it exited with status 0"
	if c.err != nil {
		state = c.err.Error()
	}
	return fmt.Errorf("the worker (process %d) ended by itself: %s: %s", c.pid(), state, printable(why))
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
