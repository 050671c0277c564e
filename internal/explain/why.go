// Package explain says what became of threads and runs: why a thread does not move, what
// went wrong in a run, and what someone who helps with it needs to know. It may import
// internal/worker, archive and logbook, and what these import.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/internal/worker"
)

// Explainer says whether threads move.
type Explainer struct {
	Threads *threads.Threads
	Staff   *worker.Staff
}

// Why says whether a thread is moving: see perdure.Why.
type Why struct {
	State             WhyState
	Text              string
	Since, Until      time.Time
	Run, Step         string
	Attempt, Attempts int
	Worker            string
}

// WhyState is a reason why a thread moves or not.
type WhyState string

// The states: see package perdure.
const (
	whyWorking     WhyState = "working"
	whyQueued      WhyState = "queued"
	whyPerson      WhyState = "person"
	whySignal      WhyState = "signal"
	whySleep       WhyState = "sleep"
	whyRetry       WhyState = "retry"
	whyChild       WhyState = "child"
	whyNoWorker    WhyState = "no-worker"
	whyLease       WhyState = "lease"
	whyPaused      WhyState = "paused"
	whyBlocked     WhyState = "blocked"
	whyQuarantined WhyState = "quarantined"
	whyFailed      WhyState = "failed"
	whyDone        WhyState = "done"
	whyIdle        WhyState = "idle"
	whyMoved       WhyState = "moved"
)

// mostWhy is how long texts of others are in a Why.
const mostWhy = 200

// Listed explains a thread of a list. It reads the thread unless its summary says
// enough; one that is gone or damaged is not explained.
func (e *Explainer) Listed(ctx context.Context, t *threads.Tenant, s *threads.Summary) (*Why, error) {
	switch {
	case s.Moved != "":
		return movedAt(clock.Stamp(s.Changed())), nil
	case s.Status == "":
		return &Why{State: whyIdle, Text: "it has no run", Since: clock.Stamp(s.Changed())}, nil
	case s.Status == journal.StatusSucceeded || s.Status == journal.StatusCancelled:
		return &Why{State: whyDone, Text: "it has " + endings[s.Status], Since: clock.Stamp(s.Changed())}, nil
	}
	o, err := t.Open(ctx, s.ID)
	if err == nil {
		return e.Thread(ctx, o)
	}
	if threads.IsAway(err) || errors.Is(err, fault.ErrCorrupt) {
		err = nil
	}
	return nil, err
}

var endings = map[journal.Status]string{journal.StatusSucceeded: "succeeded", journal.StatusCancelled: "been cancelled"}

func movedAt(at time.Time) *Why {
	return &Why{State: whyMoved, Text: "it continues in another store", Since: at}
}

// Thread explains a thread.
func (e *Explainer) Thread(ctx context.Context, o *threads.Opened) (*Why, error) {
	t := o.Thread
	run := t.Busy()
	switch {
	case t.Moved != "":
		return movedAt(clock.Stamp(t.Time)), nil
	case t.Foreign != "":
		return &Why{State: whyBlocked, Text: "it needs a newer version: " + short(t.Foreign), Since: clock.Stamp(t.Time)}, nil
	case run == nil && len(t.Runs) == 0:
		return &Why{State: whyIdle, Text: "it has no run", Since: clock.Stamp(t.Time)}, nil
	case run == nil:
		run = t.Runs[len(t.Runs)-1]
	}
	w := &Why{Run: run.ID, Since: clock.Stamp(t.Time)}
	switch run.Status {
	case journal.StatusSucceeded, journal.StatusCancelled:
		w.State, w.Text, w.Since = whyDone, "it has "+endings[run.Status], clock.Stamp(run.Ended)
	case journal.StatusFailed:
		w.State, w.Text, w.Since = whyFailed, "it failed: "+failText(run.Fail), clock.Stamp(run.Ended)
		if n := len(run.Errors); n > 0 {
			w.Step = tree.Names(run.Errors[n-1].Path)
		}
	case journal.StatusPaused:
		w.State, w.Text, w.Since = whyPaused, "it is paused", clock.Stamp(run.PausedAt)
		if run.Held {
			w.Text = "it began in another thread, and waits for a person to resume it"
		}
	case journal.StatusBlocked:
		w.State, w.Text = whyBlocked, "the code does not fit what is recorded: "+short(changes(run.Diff))
	case journal.StatusQuarantined:
		w.State, w.Text = whyQuarantined, failText(run.Fail)
	case journal.StatusSuspended:
		if err := e.waits(ctx, o, run, w); err != nil || w.State != "" {
			return w, err
		}
		return e.due(ctx, run, w), nil
	case journal.StatusRunning:
		w.Step = nextStep(run)
		if t.Worker == "" { // released
			return e.due(ctx, run, w), nil
		}
		return w, e.held(ctx, o, run, w)
	default:
		w.Since = clock.Stamp(run.Created)
		return e.due(ctx, run, w), nil
	}
	return w, nil
}

// nextStep returns the step of a run's plan that comes next, else its newest outcome.
func nextStep(run *journal.Run) string {
	for _, name := range run.Plan {
		if !run.Reached[name] {
			return tree.Names(run.PlanAt + name)
		}
	}
	return tree.Names(run.Last)
}

// due explains a run that any worker may take.
func (e *Explainer) due(ctx context.Context, run *journal.Run, w *Why) *Why {
	w.State, w.Text = whyQueued, "it waits for a worker"
	if idle := e.Staff.Unattended(ctx, run); idle != "" {
		w.State, w.Text = whyNoWorker, idle
	}
	return w
}

// held explains a run that a worker has claimed.
func (e *Explainer) held(ctx context.Context, o *threads.Opened, run *journal.Run, w *Why) error {
	t := o.Thread
	w.Worker = t.Worker
	holder, err := e.Staff.Holder(ctx, t.Worker)
	switch {
	case err != nil:
		return err
	case holder.Gone:
		w.State, w.Text = whyLease, "its worker died, and another one takes over"
		if idle := e.Staff.Unattended(ctx, run); idle != "" {
			w.State, w.Text = whyNoWorker, "its worker died, and "+idle
		}
		return nil
	case holder.Late:
		w.State, w.Text = whyLease, "its worker gives no sign of life; another one takes over when its lease ends"
		w.Until = holder.Until.UTC()
		return nil
	}
	w.State, w.Text = whyWorking, "a worker executes it"
	for path, wait := range run.Waits {
		if wait.Kind == journal.Attempt && wait.Seq == t.Seq && wait.Due > clock.Now().UnixMicro() {
			return e.retry(ctx, o, path, wait, w)
		}
	}
	for path, start := range run.Starts {
		if start.Over > max(clock.Now().UnixMicro(), w.Until.UnixMicro()) && run.Waits[path] == nil {
			w.State, w.Step, w.Since, w.Until = whySleep, tree.Names(path), clock.Stamp(run.Claim.Time), clock.Stamp(start.Over)
			w.Text = "it waits until a lost start of " + short(w.Step) + " cannot be running any more"
		}
	}
	return nil
}

// waitOrder is which of the things that a run waits for explains it best.
var waitOrder = []WhyState{whyPerson, whyRetry, whyChild, whySignal, whySleep}

// waits explains a run that waits. Nothing is left to explain if something that it
// waited for has happened.
func (e *Explainer) waits(ctx context.Context, o *threads.Opened, run *journal.Run, w *Why) error {
	w.Since = clock.Stamp(run.SuspendedAt)
	now := clock.Now().UnixMicro()
	if due := run.Due(); run.Wake || due != 0 && due <= now {
		return nil
	}
	best, at := len(waitOrder), ""
	for path, wait := range run.Waits {
		i := slices.Index(waitOrder, waitState(run, wait))
		if ask := o.Thread.Ask(wait.Ask); i < 0 || ask != nil && !ask.Open() {
			continue
		}
		if i < best || i == best && wait.Seq < run.Waits[at].Seq {
			best, at = i, path
		}
	}
	if best == len(waitOrder) {
		return nil
	}
	wait := run.Waits[at]
	w.State, w.Step, w.Since, w.Until = waitOrder[best], tree.Names(at), clock.Stamp(wait.Since), clock.Stamp(wait.Due)
	switch w.State {
	case whyPerson:
		q := o.Thread.Ask(wait.Ask).Question
		w.Text = "it waits for an answer"
		if len(q.Who) > 0 {
			w.Text += " of " + short(strings.Join(q.Who, " or "))
		}
		if q.Prompt != "" {
			w.Text += ": " + short(q.Prompt)
		}
	case whyChild:
		w.Text = "it waits for the thread " + short(run.Child(wait.Signal).ID)
	case whySignal:
		w.Text = "it waits for the signal " + short(wait.Signal)
	case whySleep:
		w.Text = "it sleeps"
	case whyRetry:
		return e.retry(ctx, o, at, wait, w)
	}
	return nil
}

func waitState(run *journal.Run, wait *journal.Wait) WhyState {
	switch wait.Kind {
	case journal.Asked:
		return whyPerson
	case journal.Attempt:
		return whyRetry
	case journal.Timer:
		return whySleep
	case journal.Waiting:
		if run.Child(wait.Signal) != nil {
			return whyChild
		}
		return whySignal
	}
	return ""
}

// retry explains a step that is tried again.
func (e *Explainer) retry(ctx context.Context, o *threads.Opened, path string, wait *journal.Wait, w *Why) error {
	body, err := e.Threads.BodyAt(ctx, o.Name, wait.Seq)
	if err != nil {
		return err
	}
	w.State, w.Step, w.Since, w.Until = whyRetry, tree.Names(path), clock.Stamp(wait.Since), clock.Stamp(wait.Due)
	w.Attempt, w.Attempts = body.Attempt+1, body.Most
	w.Text = fmt.Sprintf("attempt %d failed: %s", body.Attempt, failText(body.Fail))
	if body.Most > 0 {
		w.Text = fmt.Sprintf("attempt %d of %d failed: %s", body.Attempt, body.Most, failText(body.Fail))
	}
	return nil
}

func failText(f *journal.Failure) string {
	if f == nil {
		return "nobody knows why"
	}
	return short(f.Msg)
}

// changes returns the place of a diff and the lines that differ, as one line.
func changes(diff string) string {
	lines := strings.Split(strings.TrimSpace(diff), "\n")
	told := lines[:1:1]
	for _, line := range lines[1:] {
		if strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "+ ") {
			told = append(told, line)
		}
	}
	return strings.Join(told, " ")
}

// short returns the first line of a text, within bounds.
func short(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return cmp.Or(fault.Clip(text, mostWhy), "no details")
}
