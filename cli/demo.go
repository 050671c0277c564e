package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/spf13/cobra"
)

// What the demo runs, and the question that the script of the flow can answer.
const (
	demoFlow     = "research"
	demoQuestion = "How can a cache be kept from serving stale data?"
	demoThread   = "demo"
)

func init() { register(demoCommand) }

// demoCommand makes the command that shows what Perdure is for.
func demoCommand(a *app) *cobra.Command {
	d := &demo{app: a}
	c := &cobra.Command{
		Use:   "demo",
		Short: "watch an agent survive kill -9 (30 seconds, no keys, no set-up)",
		Long: `Runs a research agent in a worker process, kills that process with SIGKILL in
the middle of a sentence, and lets another one go on. At the end a log that the
workers kept outside the journal is compared with the journal: what was done is
not done again. The model is a script, so nothing is needed and nothing leaves
this machine.

The exit status is 0 only if all went as it is told.`,
		Example: "  perdure demo\n  perdure demo --ask",
		Args:    cobra.NoArgs,
		Hidden:  !slices.ContainsFunc(a.flows, func(f perdure.Flow) bool { return f.Name() == demoFlow }),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return usage(errors.New("the demo brings its own store and workers: call it without --server"))
			}
			if a.json {
				return usage(errors.New("the demo is a story for people: call it without --json"))
			}
			return d.run(c.Context())
		},
	}
	c.Flags().BoolVar(&d.ask, "ask", false, "answer the question of the agent yourself")
	c.Flags().BoolVar(&d.fast, "fast", false, "as fast as can be, for tests")
	return c
}

// demo is the story.
type demo struct {
	*app
	ask, fast bool

	view   *demoView
	rt     *perdure.Runtime
	thread string
	folder string
	news   chan demoNews
	began  time.Time

	worker  *workerProcess // that works now
	dead    int            // process that was killed; 0 before
	killed  time.Time
	cut     uint64           // the last sequence of the dead process; 0 before
	resumed bool             // another one has gone on
	events  []perdure.Event  // of the thread
	held    []toldDelta      // that are ahead of the events
	pending *perdure.AskInfo // that is not answered
	lines   chan string      // that are typed
	answer  <-chan time.Time
}

// demoNews is an event of the thread, or why there are no more.
type demoNews struct {
	event perdure.Event
	err   error
}

// run tells the story and checks that it is true.
func (d *demo) run(ctx context.Context) (err error) {
	if !slices.ContainsFunc(d.flows, func(f perdure.Flow) bool { return f.Name() == demoFlow }) {
		return usage(fmt.Errorf("the demo needs the flow %q, which this program does not have; use the stock binary: go run github.com/perdure/perdure/cmd/perdure demo", demoFlow))
	}
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
	d.view = &demoView{app: d.app, shown: map[string]string{}}
	rt, closeStore, err := d.runtime(ctx, d.url(), perdure.Options{})
	if err != nil {
		return err
	}
	defer closeStore()
	d.rt = rt
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

// pause is for the reader.
func (d *demo) pause(t time.Duration) time.Duration {
	if d.fast {
		return t / 20
	}
	return t
}

// begin starts the run and the first worker.
func (d *demo) begin(ctx context.Context) error {
	d.say(bold, "An agent that survives kill -9")
	d.say(dim, "The model is a script and the web a few pages: no keys, no network.")
	d.say(dim, "All that is known is in "+d.url())
	run, err := d.rt.Start(ctx, perdure.StartRequest{Thread: demoThread, Flow: demoFlow, Input: demoQuestion, Title: "Perdure's demo", By: "demo"})
	if err != nil {
		return err
	}
	d.thread = run.Thread
	d.news = make(chan demoNews)
	go func() {
		for e, err := range d.rt.Events(ctx, d.thread, perdure.EventOptions{}) {
			select {
			case d.news <- demoNews{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := d.hire(); err != nil {
		return err
	}
	d.head("1", fmt.Sprintf("A worker, process %d, is asked: %s", d.worker.pid(), demoQuestion))
	return nil
}

func (d *demo) say(style, text string) { d.view.say(style, text) }

func (d *demo) head(number, text string) {
	d.say("", "")
	d.say(bold, number+". "+text)
}

// hire starts a worker: this program again, in a process of its own.
func (d *demo) hire() error {
	args := []string{"--store", d.url(), "--log-steps", d.log(), "--tell", d.thread}
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

// typedLines returns the lines of the input, which ends with the channel.
func (d *demo) typedLines(ctx context.Context) chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for {
			line, err := d.readLine(ctx)
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

// demoDecision understands what a person types.
func demoDecision(line string) (perdure.Answer, bool) {
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
