package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
)

// The first worker is killed in the middle of a reply, once this many steps are
// done and this many bytes of the reply have arrived.
const (
	killSteps = 3
	killBytes = 70
)

// patience is the longest time in which nothing may happen.
const patience = time.Minute

// watch shows what happens and moves the story on, until the run has ended.
func (d *demo) watch(ctx context.Context) error {
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C:
			return fmt.Errorf("nothing happened for %v; look at the thread with: %s show %s --store %s", patience, d.program, thread, d.url())
		case <-d.worker.done:
			if ctx.Err() != nil { // an interrupt reaches the workers too
				return ctx.Err()
			}
			return d.worker.failed()
		case <-d.answer:
			err = d.decide(ctx, perdure.Answer{Decision: agent.DecisionApprove})
		case line, ok := <-d.lines:
			err = d.typedLine(ctx, line, ok)
		case t := <-d.worker.told:
			d.held = append(d.held, t)
			err = d.release(ctx)
		case n := <-d.news:
			var over bool
			if over, err = d.take(ctx, n); over && err == nil {
				return nil
			}
			if err == nil {
				err = d.release(ctx)
			}
		}
		if err != nil {
			return err
		}
		silence.Reset(patience)
		if d.pending != nil && d.ask {
			silence.Stop() // a person may take their time
		}
	}
}

// take takes an event.
func (d *demo) take(ctx context.Context, n news) (over bool, err error) {
	if n.err != nil {
		return false, n.err
	}
	d.events = append(d.events, n.event)
	return d.event(ctx, &n.event)
}

// release shows the deltas whose preceding events are shown.
func (d *demo) release(ctx context.Context) error {
	for len(d.held) > 0 && d.held[0].After <= d.seq() {
		t := d.held[0]
		d.held = d.held[1:]
		if d.view.delta(&t.Delta) >= killBytes && d.dead == 0 && d.steps() >= killSteps {
			return d.kill(ctx)
		}
	}
	return nil
}

// seq is the sequence of the last event that is shown.
func (d *demo) seq() uint64 {
	if len(d.events) == 0 {
		return 0
	}
	return d.events[len(d.events)-1].Seq
}

// steps is how many steps are recorded.
func (d *demo) steps() int {
	n := 0
	for _, e := range d.events {
		if e.Kind == "step" {
			n++
		}
	}
	return n
}

// kill kills the worker, for real, and starts another one once everything that the
// first one recorded is shown.
func (d *demo) kill(ctx context.Context) error {
	d.dead = d.worker.pid()
	if err := d.worker.kill(); err != nil {
		return fmt.Errorf("killing process %d: %w", d.dead, err)
	}
	d.killed = time.Now()
	d.held = nil
	t, err := d.rt.Get(ctx, thread)
	if err != nil {
		return err
	}
	d.cut = t.Seq
	if err := d.catchUp(ctx); err != nil {
		return err
	}
	d.say(terminal.Red, fmt.Sprintf("  ✗ kill -9 %d", d.dead))
	d.head("2", "The worker is dead, in the middle of a sentence")
	d.say("", fmt.Sprintf("  The journal has %d finished steps. The reply in progress is not one of them: what\n  is not recorded has not happened.", d.steps()))
	if err := d.hire(); err != nil {
		return err
	}
	d.head("3", fmt.Sprintf("Another worker, process %d, waits until the lease of the dead one expires", d.worker.pid()))
	return nil
}

// catchUp shows what the dead worker recorded in its last moment.
func (d *demo) catchUp(ctx context.Context) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for d.seq() < d.cut {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("the events of %s end at %d, and the thread at %d", thread, d.seq(), d.cut)
		case n := <-d.news:
			over, err := d.take(ctx, n)
			if over {
				return errors.New("the run ended before it could be killed; call the demo again")
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// event shows an event and reacts to it.
func (d *demo) event(ctx context.Context, e *perdure.Event) (over bool, err error) {
	d.view.event(e)
	switch e.Kind {
	case "claimed":
		if d.cut > 0 && e.Seq > d.cut && !d.resumed {
			d.resumed = true
			d.say(terminal.Green, fmt.Sprintf("  It continues after %.1f s, at the step that was cut off:", time.Since(d.killed).Seconds()))
		}
	case "asked":
		return false, d.asked(ctx)
	case "suspended":
		if d.pending != nil {
			d.suspended(ctx)
		}
	case "blocked", "quarantined":
		return false, fmt.Errorf("the run is %s: %s", e.Kind, e.Reason+e.Error+e.Diff)
	case "ended":
		return true, nil
	}
	return false, nil
}

// asked shows what the agent asks.
func (d *demo) asked(ctx context.Context) error {
	if d.dead == 0 {
		return errors.New("the agent was faster than the kill; call the demo again")
	}
	run, err := d.rt.GetRun(ctx, thread, "")
	if err != nil {
		return err
	}
	if len(run.Asks) != 1 {
		return fmt.Errorf("the run has %d open asks, and 1 was expected", len(run.Asks))
	}
	d.pending = &run.Asks[0]
	d.head("4", "The agent needs a person")
	d.say(terminal.Amber, "  ? "+safe.Text(d.pending.Prompt))
	var call struct{ Args json.RawMessage }
	if json.Unmarshal(d.pending.Data, &call) == nil && call.Args != nil {
		d.say("", "    "+safe.Text(string(call.Args)))
	}
	return nil
}

// suspended has the question answered, once no process executes the run.
func (d *demo) suspended(ctx context.Context) {
	d.say("", "  The run is in no process's memory now: it could wait for days. Anyone on this\n  store may answer:")
	d.say("", "    "+d.answerCommand())
	if d.ask {
		d.lines = d.typedLines(ctx)
		d.term.Printf("  [a]pprove or [r]eject? ")
		return
	}
	d.answer = time.After(d.pause(4 * time.Second))
}

// answerCommand is the command line that approves what the agent asks.
func (d *demo) answerCommand() string {
	id := d.pending.ID
	if _, own, ok := strings.Cut(id, "."); ok && !strings.HasPrefix(own, "-") {
		id = own // enough among the open ones
	}
	return d.command("answer " + id + " --approve")
}

// command is a command line that works on the store of the demo.
func (d *demo) command(rest string) string {
	return d.program + " " + rest + " --store " + d.url()
}

func (d *demo) typedLine(ctx context.Context, line string, ok bool) error {
	if !ok {
		d.lines = nil
		return errors.New("nobody is there to answer, and the question stays open: " + d.answerCommand())
	}
	if d.pending == nil {
		return nil
	}
	a, ok := parseDecision(line)
	if !ok {
		d.term.Printf("  [a]pprove or [r]eject? ")
		return nil
	}
	return d.decide(ctx, a)
}

// decide answers the agent.
func (d *demo) decide(ctx context.Context, a perdure.Answer) error {
	a.By = d.by
	ask := d.pending
	d.pending, d.answer = nil, nil
	if err := d.rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: a}); err != nil {
		return err
	}
	verb := map[string]string{agent.DecisionApprove: "approved", agent.DecisionReject: "rejected"}[a.Decision]
	who := "by you"
	if !d.ask {
		who = "on your behalf"
	}
	d.head("5", fmt.Sprintf("It is %s, %s", verb, who))
	return nil
}
