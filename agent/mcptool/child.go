package mcptool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// inherited are the variables that a command inherits: those that programs need to
// run well, and none that hold secrets.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR",
	"SYSTEMROOT", "SYSTEMDRIVE", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMFILES", "PATHEXT", "TEMP", "TMP",
}

// patience is how long a program has to end after each request to do so.
const patience = time.Second

// child is a running program.
type child struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	said   *tail

	exited chan struct{} // closed when it and its process group are gone
	err    error         // how it ended; read after exited
}

// startChild starts a program in a process group of its own.
func startChild(o Options, name string, args []string) (*child, error) {
	c := &child{said: &tail{}, exited: make(chan struct{})}
	c.cmd = exec.Command(name, args...)
	c.cmd.Dir = o.Dir
	c.cmd.Env = environment(o.Env)
	ownGroup(c.cmd)

	var ends []*os.File // of this process and of the child, in turns
	shut := func(files []*os.File) {
		for _, f := range files {
			f.Close()
		}
	}
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			shut(ends)
			return nil, err
		}
		ends = append(ends, r, w)
	}
	theirs := []*os.File{ends[0], ends[3], ends[5]}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = ends[0], ends[3], ends[5]
	c.stdin, c.stdout = ends[1], ends[2]
	stderr := ends[4]
	err := c.cmd.Start()
	shut(theirs)
	if err != nil {
		shut([]*os.File{c.stdin, c.stdout, stderr})
		return nil, err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(c.said, stderr)
	}()
	go func() {
		c.err = c.cmd.Wait()
		killGroup(c.cmd.Process.Pid)
		// A program that left the group may hold it open: that is not waited for.
		stop := time.AfterFunc(patience, func() { stderr.Close() })
		<-read
		stop.Stop()
		stderr.Close()
		close(c.exited)
	}()
	return c, nil
}

func environment(more map[string]string) []string {
	var env []string
	for _, k := range inherited {
		if v, ok := os.LookupEnv(k); ok {
			if _, own := more[k]; !own {
				env = append(env, k+"="+v)
			}
		}
	}
	for k, v := range more {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env
}

// stop ends the program: it closes its input, then signals its group, then kills
// the group.
func (c *child) stop() {
	c.stdin.Close()
	c.stdout.Close()
	if c.gone(patience) {
		return
	}
	terminateGroup(c.cmd)
	if c.gone(patience) {
		return
	}
	c.kill()
	<-c.exited
}

// kill ends the program and its group at once.
func (c *child) kill() {
	select {
	case <-c.exited: // another process may have its number by now
	default:
		killGroup(c.cmd.Process.Pid)
		c.cmd.Process.Kill()
	}
}

func (c *child) gone(within time.Duration) bool {
	select {
	case <-c.exited:
		return true
	case <-time.After(within):
		return false
	}
}

// words returns how the program ended and what it said last, for errors.
func (c *child) words() string {
	var parts []string
	select {
	case <-c.exited:
		end := "the program ended"
		if exit, ok := errors.AsType[*exec.ExitError](c.err); ok {
			end = fmt.Sprintf("the program ended: %v", exit.ProcessState)
		}
		parts = append(parts, end)
	default:
	}
	if said := c.said.String(); said != "" {
		parts = append(parts, fmt.Sprintf("it said: %s", said))
	}
	return strings.Join(parts, "; ")
}

// tail keeps the end of what a program says.
type tail struct {
	mu   sync.Mutex
	data []byte
	cut  bool
}

const maxTail = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p[max(0, len(p)-maxTail):]...)
	if over := len(t.data) - maxTail; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.data), "\uFFFD"))
	if t.cut {
		text = "…" + text
	}
	return text
}

// sleep waits, and reports whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
