package perdure

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/internal/threads"
)

// Policy says what becomes of an input that finds its thread busy. A suspended
// run is busy too.
type Policy string

// The policies.
const (
	Enqueue   Policy = "enqueue"   // it waits its turn; the default
	Reject    Policy = "reject"    // ErrBusy, which names the run
	Interrupt Policy = "interrupt" // it cancels the active runs and waits for their end
	Steer     Policy = "steer"     // the active run gets it from Take; if it does not, it waits its turn
	Beside    Policy = "beside"    // it starts beside suspended runs
)

// StartRequest asks for a run.
type StartRequest struct {
	Flow     string            // the name of a flow that this runtime has
	Input    any               // what the flow takes, or anything with the same JSON
	Thread   string            // its id, made on first use; "": a new thread with a generated one
	Title    string            // of a new thread
	User     string            // who owns a new thread
	Metadata map[string]string // of a new thread
	Key      string            // idempotency key: the same key gives the same run
	Policy   Policy            // what becomes of it if the thread is busy; "" is Enqueue
	Budget   map[string]int64  // by unit, see Spend
	Trace    string            // trace context, kept in the journal for the Observer
	By       string            // who asked for it
	IfSeq    uint64            // start it only if this is still the thread's last sequence, else StaleError; 0: in any case
}

// Start queues a run and returns at once. A worker executes it, here or
// elsewhere: see Work. If the thread has a run that has not ended, the request's
// Policy decides.
//
// With a Key it can be repeated: the run, and the thread where none is named,
// follow from it. The same key with another flow or input is ErrKeyReused. What
// has been started is found again whatever IfSeq says.
func (r *Runtime) Start(ctx context.Context, q StartRequest) (*Run, error) {
	in, err := r.checkStart(q)
	if err == nil {
		q.User, err = r.tenant.NewOwner(q.User)
	}
	if err != nil {
		return nil, err
	}
	runID := threads.NewRunID()
	if q.Thread == "" {
		q.Thread = threads.NewRunID()
		if q.Key != "" {
			q.Thread = r.tenant.IDForKey("thread of key", q.Key)
		}
	}
	for range mostTries {
		if q.IfSeq != 0 { // nothing is made for what is not there
			if _, err := r.tenant.Find(ctx, q.Thread); errors.Is(err, fault.ErrNoThread) {
				return nil, &fault.StaleError{Thread: q.Thread}
			}
		}
		name, nameErr := r.create(ctx, q)
		if nameErr != nil {
			return nil, nameErr
		}
		var run *Run
		run, err = r.start(ctx, name, runID, q, in)
		if stale := (*fault.StaleError)(nil); errors.As(err, &stale) && stale.Seq == 0 {
			err = r.giveUp(ctx, q.Thread, name, err) // the thread was erased since it was found
		}
		if !errors.Is(err, fault.ErrErased) {
			return run, err
		}
		// An erase is under way, or was cut off: the new thread comes behind it.
		if err := r.erase(ctx, name, q.Thread, EraseOptions{}, true); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// start queues a run on the thread with a name.
func (r *Runtime) start(ctx context.Context, name, runID string, q StartRequest, in json.RawMessage) (*Run, error) {
	value, err := r.threads.Value(ctx, name, in)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s", q.Flow, in))
	b := journal.Body{ID: runID, Flow: q.Flow, Policy: string(cmp.Or(q.Policy, Enqueue)), Budget: q.Budget,
		Trace: q.Trace, By: q.By, Value: value}
	if q.Key != "" {
		b.Key = base64.RawURLEncoding.EncodeToString(sum[:15])
	}
	o, _, err := r.threads.Change(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if q.Key != "" {
			runID = r.runOf(t, q)
			b.ID = runID
		}
		return r.queue(ctx, t, &q, b)
	})
	if err != nil {
		return nil, err
	}
	_ = r.threads.Summarise(ctx, o) // a worker brings it up to date when the run stands
	if q.Policy == Interrupt {
		_ = r.tell(ctx, o) // of the end of what was stuck, as a worker does
	}
	return r.runInfo(ctx, o, o.Thread.RunByID(runID))
}

// runOf returns the id of the run that a key stands for: one that is there, or
// a new one. After a rewind which took the run of a key back the key stands for
// another run.
func (r *Runtime) runOf(t *journal.Thread, q StartRequest) (id string) {
	texts := []string{"run", r.tenant.Name, q.Thread, q.Key}
	for n := range t.Rewinds + 1 {
		if n > 0 {
			texts = append(texts[:4], strconv.Itoa(n))
		}
		id = threads.Base32.EncodeToString(r.threads.Hash(texts...)[:15])
		if t.RunByID(id) != nil {
			break
		}
	}
	return id
}

// queue decides what a start appends.
func (r *Runtime) queue(ctx context.Context, t *journal.Thread, q *StartRequest, b journal.Body) ([]threads.Line, []string, error) {
	if !r.tenant.Owns(t) { // another user was faster
		return nil, nil, fmt.Errorf("%w: %q", fault.ErrExists, q.Thread)
	}
	if old := t.RunByID(b.ID); old != nil {
		if old.Key != b.Key {
			return nil, nil, fmt.Errorf("%w: key %q started run %s of flow %s with another input", fault.ErrKeyReused, q.Key, old.ID, old.Flow)
		}
		return nil, nil, threads.ErrNothing
	}
	var lines []threads.Line
	if t.Seq == 0 {
		title := q.Title
		lines = append(lines, threads.Line{Kind: journal.Created, Body: journal.Body{Thread: q.Thread, Tenant: r.tenant.Name,
			User: q.User, Title: &title, Meta: q.Metadata}})
	}
	waiting := len(t.Inbox)
	for _, run := range t.Runs {
		if run.Status == journal.StatusQueued && !run.Begun() {
			waiting++
		}
	}
	busy := t.Busy()
	switch {
	case busy != nil && q.Policy == Reject:
		return nil, nil, &fault.BusyError{Thread: q.Thread, Run: busy.ID}
	case waiting >= r.opts.MaxQueue:
		return nil, nil, fmt.Errorf("%w: %d inputs wait on thread %s", fault.ErrQueueFull, waiting, q.Thread)
	}
	if err := fault.CheckSeq(t, q.Thread, q.IfSeq); err != nil {
		return nil, nil, err
	}
	flows := []string{q.Flow}
	if q.Policy == Interrupt {
		for _, run := range t.Runs {
			if run.Begun() && !run.Status.Final() {
				note := Note{By: q.By, Reason: "interrupted by a new input", IfSeq: q.IfSeq}
				more, flow, err := r.cancelLines(ctx, t, run, &note)
				if err != nil {
					return nil, nil, err
				}
				q.IfSeq = note.IfSeq
				lines, flows = append(lines, more...), append(flows, flow...)
			}
		}
		flows = append(flows, threads.OtherFlows(t, nil)...)
	}
	return append(lines, threads.Line{Kind: journal.Queued, Body: b}), flows, nil
}

// checkStart returns the JSON of a request's input.
func (r *Runtime) checkStart(q StartRequest) (json.RawMessage, error) {
	if _, ok := r.flows[q.Flow]; !ok {
		return nil, fmt.Errorf("%w: %q; this runtime has %q", fault.ErrNoFlow, q.Flow, r.Flows())
	}
	switch cmp.Or(q.Policy, Enqueue) {
	case Enqueue, Reject, Interrupt, Steer, Beside:
	default:
		return nil, fmt.Errorf("%w: policy %q; there are %q, %q, %q, %q and %q", fault.ErrInvalid, q.Policy, Enqueue, Reject, Interrupt, Steer, Beside)
	}
	if q.Thread != "" {
		if err := threads.CheckID(q.Thread); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(checkText("the title", q.Title, 1000), checkText("the user", q.User, 500), checkText("the key", q.Key, 500),
		checkText("the trace", q.Trace, 1000), checkText("who asks", q.By, 500), checkMetadata(q.Metadata)); err != nil {
		return nil, err
	}
	for unit, n := range q.Budget {
		if err := checkText("the unit of a budget", unit, 200); err != nil || unit == "" || n < 0 {
			return nil, fmt.Errorf("%w: a budget of %d %.40q", fault.ErrInvalid, n, unit)
		}
	}
	return r.checkInput(q.Flow, q.Input)
}

// checkInput returns the JSON of an input, if the flow takes it. What a flow
// takes that this runtime does not have, its worker finds out.
func (c *core) checkInput(flow string, input any) (json.RawMessage, error) {
	in, err := exact.Encode(input, reflect.TypeOf(input))
	if err != nil {
		return nil, fmt.Errorf("the input of flow %s: %w", flow, err)
	}
	f, ok := c.flows[flow]
	if !ok {
		return in, nil
	}
	if f.in != reflect.TypeFor[any]() { // an any takes everything but what fitsExactly finds
		if err := json.Unmarshal(in, reflect.New(f.in).Interface()); err != nil {
			return nil, fmt.Errorf("%w: flow %s takes %s: %w", fault.ErrInvalid, flow, f.in, err)
		}
	}
	if err := exact.FitsExactly(in, f.in); err != nil {
		return nil, fmt.Errorf("the input of flow %s: %w", flow, err)
	}
	return in, nil
}

// checkText refuses text that is too long or not UTF-8, which JSON would change.
func checkText(what, text string, limit int) error {
	if len(text) > limit || !utf8.ValidString(text) {
		return fmt.Errorf("%w: %s is text of at most %d bytes, not %.40q of %d", fault.ErrInvalid, what, limit, text, len(text))
	}
	return nil
}

func checkMetadata(metadata map[string]string) error {
	size := 0
	for k, v := range metadata {
		if err := errors.Join(checkText("a metadata key", k, 200), checkText("metadata", v, 16<<10)); err != nil {
			return err
		}
		size += len(k) + len(v)
	}
	if size > 16<<10 {
		return fmt.Errorf("%w: metadata of %d bytes; the limit is %d", fault.ErrInvalid, size, 16<<10)
	}
	return nil
}

// create makes the cells of a thread that is new, or was left half made, and
// returns its name.
func (r *Runtime) create(ctx context.Context, q StartRequest) (string, error) {
	return r.createAs(ctx, threads.Summary{ID: q.Thread, User: q.User, Title: q.Title}, func(string) error { return nil })
}

// createAs makes the cells of a thread with a summary. What is to be done first
// is done when its name is known.
func (r *Runtime) createAs(ctx context.Context, s threads.Summary, first func(name string) error) (string, error) {
	if s.Parent == "" && !strict.Seen(s.User) { // a child is its parent's user's
		return "", fmt.Errorf("%w: the user of a new thread has no control characters and none that cannot be seen, such as those in %.60q", fault.ErrInvalid, s.User)
	}
	now := clock.Now()
	name, err := r.name(ctx, s.ID, r.tenant.NewName(now, "", s.User), false)
	if err == nil {
		err = first(name)
	}
	if err != nil {
		return "", err
	}
	// The summary comes before the first entry, so that lists are complete.
	s.Created = now.UnixMicro()
	return name, r.threads.EnsureSummary(ctx, name, s)
}
