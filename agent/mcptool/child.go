package mcptool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// inherited are the variables that a command gets from this process: those that
// programs do not run well without, and none that hold secrets.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR",
	"SYSTEMROOT", "SYSTEMDRIVE", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMFILES", "PATHEXT", "TEMP", "TMP",
}

// patience is how long a program has to end by itself, at each step of asking.
const patience = time.Second

// child is a program that runs.
type child struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	said   *tail

	exited chan struct{} // closed when it is gone, and all that it left behind
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
		c.said.readFrom(stderr)
	}()
	go func() {
		c.err = c.cmd.Wait()
		killGroup(c.cmd.Process.Pid)
		// What a program that left the group still holds open is not waited for.
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

// stop ends the program: by closing its input, by a signal to its group, and
// by killing the group, in this order, until it is gone.
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
	case <-c.exited: // its number may be another's by now
	default:
		killGroup(c.cmd.Process.Pid)
		c.cmd.Process.Kill()
	}
}

func (c *child) gone(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	}
}

// words tells how the program ended and what it said last, for errors.
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

func (t *tail) readFrom(f *os.File) {
	buf := make([]byte, 4<<10)
	for {
		n, err := f.Read(buf)
		t.Write(buf[:n])
		if err != nil {
			return
		}
	}
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
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
