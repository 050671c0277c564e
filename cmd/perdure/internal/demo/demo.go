// Package demo is the command perdure demo: it kills a worker in the middle of a
// sentence, lets another one continue, and proves from two independent records that
// nothing ran twice. It may import anything but package cli.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/examples/research"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

const thread = "demo"

// Commands returns the command demo, and a hidden one for the workers that it
// starts. The flow is that of package research.
func Commands(flow perdure.Flow) []*cobra.Command {
	d := &demo{flow: flow, view: &view{shown: map[string]string{}}}
	c := &cobra.Command{
		Use:   "demo",
		Short: "watch an agent survive kill -9 (30 seconds, no keys, no set-up)",
		Long: `Runs a research agent in a worker process, kills that process with SIGKILL in
the middle of a sentence, and lets another process continue. At the end it compares
the journal with a log that the workers kept outside of it: nothing that was done is
done again. The model is a script, so the demo needs nothing and nothing leaves
this machine.

The exit status is 0 only if everything happened as told.`,
		Example: "  perdure demo\n  perdure demo --ask",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			flags := c.Flags()
			if flags.Changed("server") {
				return fmt.Errorf("%w: the demo brings its own store and workers; call it without --server", perdure.ErrInvalid)
			}
			if flags.Changed("json") {
				return fmt.Errorf("%w: the demo is a story for people; call it without --json", perdure.ErrInvalid)
			}
			plain, _ := flags.GetBool("plain")
			by, _ := flags.GetString("by")
			d.by = cmp.Or(by, "you")
			d.program = c.Root().CommandPath()
			d.term = &terminal.Terminal{In: c.InOrStdin(), Out: c.OutOrStdout(), Err: c.ErrOrStderr(), Env: os.Getenv, Plain: plain}
			d.view.term = d.term
			return cmp.Or(d.run(c.Context()), d.term.Broken())
		},
	}
	c.Flags().BoolVar(&d.ask, "ask", false, "answer the agent's question yourself")
	c.Flags().BoolVar(&d.fast, "fast", false, "as fast as possible, for tests")
	return []*cobra.Command{c, workerCommand(flow)}
}

// demo tells the story and keeps what is needed to prove it.
type demo struct {
	flow      perdure.Flow // that of package research
	term      *terminal.Terminal
	program   string // how people call it
	by        string // who answers
	ask, fast bool

	view   *view
	rt     *perdure.Runtime
	folder string
	news   chan news
	began  time.Time

	worker  *workerProcess // at work now
	dead    int            // process that was killed; 0 before
	killed  time.Time
	cut     uint64           // last sequence of the dead process; 0 before
	resumed bool             // the other process has continued
	events  []perdure.Event  // of the thread
	held    []toldDelta      // deltas that are ahead of the events
	pending *perdure.AskInfo // the open question
	lines   chan string      // what is typed
	answer  <-chan time.Time
}

// news is an event of the thread, or why there are no more.
type news struct {
	event perdure.Event
	err   error
}

// run tells the story and proves it.
func (d *demo) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if d.folder, err = os.MkdirTemp("", "perdure-demo-"); err != nil {
		return err
	}
	d.began = time.Now()
	defer func() {
		if d.worker != nil {
			_ = d.worker.kill()
		}
		if errors.Is(err, context.Canceled) {
			os.RemoveAll(d.folder)
			d.view.endLine()
		}
	}()
	if d.rt, err = perdure.Open(ctx, d.url(), d.flow); err != nil {
		return err
	}
	defer d.rt.Close()
	if err := d.begin(ctx); err != nil {
		return err
	}
	if err := d.watch(ctx); err != nil {
		d.view.endLine()
		return err
	}
	return d.prove(ctx)
}

func (d *demo) url() string { return "sqlite:" + filepath.ToSlash(filepath.Join(d.folder, "demo.db")) }

func (d *demo) log() string { return filepath.Join(d.folder, "steps.log") }

// pause is how long to give a reader.
func (d *demo) pause(t time.Duration) time.Duration {
	if d.fast {
		return t / 20
	}
	return t
}

// begin starts the run and the first worker.
func (d *demo) begin(ctx context.Context) error {
	d.say(terminal.Bold, "An agent that survives kill -9")
	d.say(terminal.Dim, "The model is a script and the web a few pages: no keys, no network.")
	d.say(terminal.Dim, "Everything is kept in "+d.url())
	_, err := d.rt.Start(ctx, perdure.StartRequest{Thread: thread, Flow: d.flow.Name(), Input: research.Question, Title: "Perdure's demo", By: "demo"})
	if err != nil {
		return err
	}
	d.news = make(chan news)
	go func() {
		for e, err := range d.rt.Events(ctx, thread, perdure.EventOptions{}) {
			select {
			case d.news <- news{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := d.hire(); err != nil {
		return err
	}
	d.head("1", fmt.Sprintf("A worker, process %d, is asked: %s", d.worker.pid(), research.Question))
	return nil
}

func (d *demo) say(style, text string) { d.view.say(style, text) }

func (d *demo) head(number, text string) {
	d.say("", "")
	d.say(terminal.Bold, number+". "+text)
}

// hire starts a worker: this program again, in a process of its own.
func (d *demo) hire() error {
	args := []string{"--store", d.url(), "--log", d.log()}
	var env []string
	if d.fast {
		args = append(args, "--lease", "1s")
		env = []string{"PERDURE_PACE=15ms"}
	}
	w, err := startWorkerProcess(args, env)
	if err != nil {
		return fmt.Errorf("a worker cannot be started: %w", err)
	}
	d.worker = w
	return nil
}

// typedLines returns the lines of the input; the channel is closed at its end.
func (d *demo) typedLines(ctx context.Context) chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for {
			line, err := d.term.ReadLine(ctx)
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// parseDecision parses what a person types: a decision, and a remark after it.
func parseDecision(line string) (perdure.Answer, bool) {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	a := perdure.Answer{Message: strings.TrimSpace(rest)}
	switch strings.ToLower(word) {
	case "a", "y", "yes", "approve":
		a.Decision = agent.DecisionApprove
	case "r", "n", "no", "reject":
		a.Decision = agent.DecisionReject
	default:
		return a, false
	}
	return a, true
}
