package perdure

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
)

// Why says whether a thread is moving and, if it is not, why: it is about the oldest
// run that has not ended, else about the newest.
type Why struct {
	State    WhyState  `json:"state"`
	Text     string    `json:"text"`              // for people; without times
	Since    time.Time `json:"since,omitzero"`    // when that began
	Until    time.Time `json:"until,omitzero"`    // when it ends by itself, at the latest; zero if it does not, or nobody knows
	Run      string    `json:"run,omitempty"`     // id of the run
	Step     string    `json:"step,omitempty"`    // path of what it waits at; of a run that works, of the next step of its plan or of its newest outcome
	Attempt  int       `json:"attempt,omitempty"` // of a retry: the next one
	Attempts int       `json:"attempts,omitempty"`
	Worker   string    `json:"worker,omitempty"` // that has it, or had it when it died
}

// WhyState is a reason why a thread moves or not.
type WhyState string

// The states.
const (
	WhyWorking     WhyState = "working"   // a worker executes it
	WhyQueued      WhyState = "queued"    // a worker will take it
	WhyPerson      WhyState = "person"    // it waits for an answer
	WhySignal      WhyState = "signal"    // it waits for a signal
	WhySleep       WhyState = "sleep"     // it waits for a time
	WhyRetry       WhyState = "retry"     // a step failed and is tried again later
	WhyChild       WhyState = "child"     // it waits for a thread that it spawned
	WhyNoWorker    WhyState = "no-worker" // no live worker has its flow
	WhyLease       WhyState = "lease"     // its worker gives no sign of life; others take over when its lease ends
	WhyPaused      WhyState = "paused"
	WhyBlocked     WhyState = "blocked"
	WhyQuarantined WhyState = "quarantined"
	WhyFailed      WhyState = "failed"
	WhyDone        WhyState = "done" // succeeded or cancelled
	WhyIdle        WhyState = "idle" // without a run
	WhyMoved       WhyState = "moved"
)

// mostWhy is how long texts of others are in a Why.
const mostWhy = 200

// whyListed explains a thread of a list. It reads the thread unless its summary says
// enough; one that is gone or damaged is not explained.
func (r *Runtime) whyListed(ctx context.Context, s Summary) (*Why, error) {
	switch {
	case s.Moved != "":
		return whyMoved(s.Updated), nil
	case s.Status == "" || s.Status == Idle:
		return &Why{State: WhyIdle, Text: "it has no run", Since: s.Updated}, nil
	case s.Status == Succeeded || s.Status == Cancelled:
		return &Why{State: WhyDone, Text: "it has " + endings[s.Status], Since: s.Updated}, nil
	}
	o, err := r.tenant.Open(ctx, s.ID)
	if err == nil {
		return r.why(ctx, o)
	}
	if errors.Is(err, ErrNoThread) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrErased) || errors.Is(err, ErrArchived) {
		err = nil
	}
	return nil, err
}

var endings = map[Status]string{Succeeded: "succeeded", Cancelled: "been cancelled"}

func whyMoved(at time.Time) *Why {
	return &Why{State: WhyMoved, Text: "it continues in another store", Since: at}
}

// why explains a thread.
func (r *Runtime) why(ctx context.Context, o *threads.Opened) (*Why, error) {
	t := o.Thread
	run := t.Busy()
	switch {
	case t.Moved != "":
		return whyMoved(clock.Stamp(t.Time)), nil
	case t.Foreign != "":
		return &Why{State: WhyBlocked, Text: "it needs a newer version: " + short(t.Foreign), Since: clock.Stamp(t.Time)}, nil
	case run == nil && len(t.Runs) == 0:
		return &Why{State: WhyIdle, Text: "it has no run", Since: clock.Stamp(t.Time)}, nil
	case run == nil:
		run = t.Runs[len(t.Runs)-1]
	}
	w := &Why{Run: run.ID, Since: clock.Stamp(t.Time)}
	switch run.Status {
	case journal.StatusSucceeded, journal.StatusCancelled:
		w.State, w.Text, w.Since = WhyDone, "it has "+endings[Status(run.Status)], clock.Stamp(run.Ended)
	case journal.StatusFailed:
		w.State, w.Text, w.Since = WhyFailed, "it failed: "+failText(run.Fail), clock.Stamp(run.Ended)
		if n := len(run.Errors); n > 0 {
			w.Step = tree.Names(run.Errors[n-1].Path)
		}
	case journal.StatusPaused:
		w.State, w.Text, w.Since = WhyPaused, "it is paused", clock.Stamp(run.PausedAt)
		if run.Held {
			w.Text = "it began in another thread, and waits for a person to resume it"
		}
	case journal.StatusBlocked:
		w.State, w.Text = WhyBlocked, "the code does not fit what is recorded: "+short(changes(run.Diff))
	case journal.StatusQuarantined:
		w.State, w.Text = WhyQuarantined, failText(run.Fail)
	case journal.StatusSuspended:
		if err := r.whyWaits(ctx, o, run, w); err != nil || w.State != "" {
			return w, err
		}
		return r.whyDue(ctx, run, w), nil
	case journal.StatusRunning:
		w.Step = nextStep(run)
		if t.Worker == "" { // released
			return r.whyDue(ctx, run, w), nil
		}
		return w, r.whyHeld(ctx, o, run, w)
	default:
		w.Since = clock.Stamp(run.Created)
		return r.whyDue(ctx, run, w), nil
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

// whyDue explains a run that any worker may take.
func (r *Runtime) whyDue(ctx context.Context, run *journal.Run, w *Why) *Why {
	w.State, w.Text = WhyQueued, "it waits for a worker"
	if idle := r.core.staff.Unattended(ctx, run); idle != "" {
		w.State, w.Text = WhyNoWorker, idle
	}
	return w
}

// whyHeld explains a run that a worker has claimed.
func (r *Runtime) whyHeld(ctx context.Context, o *threads.Opened, run *journal.Run, w *Why) error {
	t := o.Thread
	w.Worker = t.Worker
	holder, err := r.core.staff.Holder(ctx, t.Worker)
	switch {
	case err != nil:
		return err
	case holder.Gone:
		w.State, w.Text = WhyLease, "its worker died, and another one takes over"
		if idle := r.core.staff.Unattended(ctx, run); idle != "" {
			w.State, w.Text = WhyNoWorker, "its worker died, and "+idle
		}
		return nil
	case holder.Late:
		w.State, w.Text = WhyLease, "its worker gives no sign of life; another one takes over when its lease ends"
		w.Until = holder.Until.UTC()
		return nil
	}
	w.State, w.Text = WhyWorking, "a worker executes it"
	for path, wait := range run.Waits {
		if wait.Kind == journal.Attempt && wait.Seq == t.Seq && wait.Due > clock.Now().UnixMicro() {
			return r.whyRetry(ctx, o, path, wait, w)
		}
	}
	for path, start := range run.Starts {
		if start.Over > max(clock.Now().UnixMicro(), w.Until.UnixMicro()) && run.Waits[path] == nil {
			w.State, w.Step, w.Since, w.Until = WhySleep, tree.Names(path), clock.Stamp(run.Claim.Time), clock.Stamp(start.Over)
			w.Text = "it waits until a lost start of " + short(w.Step) + " cannot be running any more"
		}
	}
	return nil
}

// waitOrder is which of the things that a run waits for explains it best.
var waitOrder = []WhyState{WhyPerson, WhyRetry, WhyChild, WhySignal, WhySleep}

// whyWaits explains a run that waits. Nothing is left to explain if something that it
// waited for has happened.
func (r *Runtime) whyWaits(ctx context.Context, o *threads.Opened, run *journal.Run, w *Why) error {
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
	case WhyPerson:
		q := o.Thread.Ask(wait.Ask).Question
		w.Text = "it waits for an answer"
		if len(q.Who) > 0 {
			w.Text += " of " + short(strings.Join(q.Who, " or "))
		}
		if q.Prompt != "" {
			w.Text += ": " + short(q.Prompt)
		}
	case WhyChild:
		w.Text = "it waits for the thread " + short(run.Child(wait.Signal).ID)
	case WhySignal:
		w.Text = "it waits for the signal " + short(wait.Signal)
	case WhySleep:
		w.Text = "it sleeps"
	case WhyRetry:
		return r.whyRetry(ctx, o, at, wait, w)
	}
	return nil
}

func waitState(run *journal.Run, wait *journal.Wait) WhyState {
	switch wait.Kind {
	case journal.Asked:
		return WhyPerson
	case journal.Attempt:
		return WhyRetry
	case journal.Timer:
		return WhySleep
	case journal.Waiting:
		if run.Child(wait.Signal) != nil {
			return WhyChild
		}
		return WhySignal
	}
	return ""
}

// whyRetry explains a step that is tried again.
func (r *Runtime) whyRetry(ctx context.Context, o *threads.Opened, path string, wait *journal.Wait, w *Why) error {
	body, err := r.core.threads.BodyAt(ctx, o.Name, wait.Seq)
	if err != nil {
		return err
	}
	w.State, w.Step, w.Since, w.Until = WhyRetry, tree.Names(path), clock.Stamp(wait.Since), clock.Stamp(wait.Due)
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
