package demo

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/spf13/cobra"
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
	why := cmp.Or(strings.TrimSpace(c.said.String()), "it said nothing")
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

// workerName is the hidden command that the demo starts as a process.
const workerName = "demo-worker"

// workerCommand makes a command like worker, which also logs each step that begins
// to a file, prints the deltas of the demo's thread, and stops when its standard
// input ends: when that happens, whoever started it is gone.
func workerCommand(flow perdure.Flow) *cobra.Command {
	var log string
	var lease time.Duration
	c := &cobra.Command{
		Use:    workerName,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := context.WithCancel(c.Context())
			defer stop()
			url, err := c.Flags().GetString("store")
			if err != nil {
				return err
			}
			s, err := store.Open(ctx, url)
			if err != nil {
				return err
			}
			defer s.Close()
			seen, err := newStepLog(log)
			if err != nil {
				return err
			}
			defer seen.file.Close()
			rt, err := perdure.New(ctx, s, perdure.Options{Observer: seen, Lease: lease, Logger: slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))}, flow)
			if err != nil {
				return err
			}
			go func() {
				_, _ = io.Copy(io.Discard, c.InOrStdin())
				stop()
			}()
			go tellDeltas(ctx, rt, seen, c.OutOrStdout())
			return rt.Work(ctx)
		},
	}
	c.Flags().StringVar(&log, "log", "", "file to which a line is appended for each step that begins")
	c.Flags().DurationVar(&lease, "lease", 0, "how long the runs of a killed worker rest; 0 is 3s")
	return c
}

// stepLog records, outside the journal, which process begins which step.
type stepLog struct {
	file *os.File
	seq  atomic.Uint64 // of the last entry that this process committed
}

var _ perdure.Observer = (*stepLog)(nil)

func newStepLog(name string) (*stepLog, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &stepLog{file: f}, err
}

// begunStep is a line of the log.
type begunStep struct {
	PID     int       `json:"pid"`
	Path    string    `json:"path"`
	Attempt int       `json:"attempt"`
	Started time.Time `json:"started"`
}

// StepStarted appends a line, with one write, before the step does anything.
func (l *stepLog) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	line, err := json.Marshal(begunStep{os.Getpid(), s.Path, s.Attempt, time.Now()})
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "perdure: the log of steps:", err)
	}
	return ctx, func(error) {}
}

func (l *stepLog) Committed(e perdure.Event) {
	for old := l.seq.Load(); e.Seq > old && !l.seq.CompareAndSwap(old, e.Seq); old = l.seq.Load() {
	}
}

// readSteps reads a log.
func readSteps(name string) ([]begunStep, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var all []begunStep
	for line := range bytes.Lines(data) {
		var b begunStep
		if err := json.Unmarshal(line, &b); err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", len(all)+1, name, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// toldDelta is a delta that a worker sends to the demo.
type toldDelta struct {
	After uint64             `json:"after"` // last sequence committed before it
	Delta perdure.DeltaEvent `json:"delta"`
}

// tellDeltas prints the deltas of the thread as lines of JSON: SQLite does not carry
// them to other processes.
func tellDeltas(ctx context.Context, rt *perdure.Runtime, seen *stepLog, out io.Writer) {
	e := json.NewEncoder(out)
	for d, err := range rt.Deltas(ctx, thread) {
		if err != nil || e.Encode(toldDelta{seen.seq.Load(), d}) != nil {
			return
		}
	}
}
