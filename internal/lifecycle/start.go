package lifecycle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// StartAgain starts a new run with the flow and the input of an earlier one.
func (r *Control) StartAgain(ctx context.Context, thread, run string, n Note, has func(flow string) error) (*threads.Opened, string, error) {
	if err := n.Check(); err != nil {
		return nil, "", err
	}
	o, err := r.tenant.Open(ctx, thread)
	if err != nil {
		return nil, "", err
	}
	old, err := threads.PickRun(o.Thread, run)
	if err != nil {
		return nil, "", err
	}
	if err := has(old.Flow); err != nil {
		return nil, "", err
	}
	raw, err := r.threads.Load(ctx, o.Name, old.Input)
	if err != nil {
		return nil, "", fmt.Errorf("perdure: the input of run %s: %w", old.ID, err)
	}
	// The input is stored again: in a fork, the old one is among its parent's
	// blobs.
	input, err := r.threads.Value(ctx, o.Name, raw)
	if err != nil {
		return nil, "", err
	}
	b := journal.Body{ID: threads.NewRunID(), Flow: old.Flow, Policy: journal.PolicyEnqueue, Budget: old.Budget, Trace: old.Trace,
		By: n.By, Reason: n.Reason, Value: input}
	o, _, err = r.tenant.ChangeID(ctx, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		return r.queue(ctx, t, &StartRequest{Flow: old.Flow, Thread: thread, IfSeq: n.IfSeq}, b)
	})
	if err != nil {
		return nil, "", err
	}
	return o, b.ID, nil
}

// Policy says what happens to an input that finds its thread busy.
type Policy string

// StartRequest asks for a run: see perdure.StartRequest.
type StartRequest struct {
	Flow     string
	Input    any
	Thread   string
	Title    string
	User     string
	Metadata map[string]string
	Key      string
	Policy   Policy
	Budget   map[string]int64
	Trace    string
	By       string
	IfSeq    uint64
	Attach   []string
}

// Start queues a run with an input, and returns the thread and the run's id.
func (r *Control) Start(ctx context.Context, q StartRequest, in json.RawMessage) (*threads.Opened, string, error) {
	err := r.threads.CheckMoved(ctx)
	if err == nil {
		q.User, err = r.tenant.NewOwner(q.User)
	}
	if err != nil {
		return nil, "", err
	}
	runID := threads.NewRunID()
	known := true // the thread may exist
	if q.Thread == "" {
		q.Thread, known = threads.NewRunID(), q.Key != ""
		if known {
			q.Thread = r.tenant.IDForKey("thread of key", q.Key)
		}
	}
	if native := ctx.Value(withinKey{}); native != nil {
		return r.startWithin(ctx, native, known, runID, q, in)
	}
	for range mostTries {
		if q.IfSeq != 0 { // do not create a thread that does not exist
			if _, err := r.tenant.Find(ctx, q.Thread); errors.Is(err, fault.ErrNoThread) {
				return nil, "", &fault.StaleError{Thread: q.Thread}
			}
		}
		s := threads.Summary{ID: q.Thread, User: q.User, Title: q.Title, Flow: q.Flow}
		name, cells, nameErr := r.prepare(ctx, s, known)
		if nameErr == nil && cells != nil { // before anything of it is written
			nameErr = r.admit(ctx, threads.Growth{Thread: true, Run: true}, q.Attach)
		}
		if nameErr == nil && cells != nil && (!threads.IsSmall(in) || len(q.Attach) > 0) { // the thread must exist before its blobs, so that they can be found
			cells = nil
			name, nameErr = r.createAs(ctx, s, func(string) error { return nil })
		}
		if nameErr != nil {
			return nil, "", nameErr
		}
		var o *threads.Opened
		var run string
		o, run, err = r.startNamed(ctx, name, runID, q, in, cells)
		if other := (*store.CellConflict)(nil); errors.As(err, &other) && ctx.Err() == nil {
			known = true
			continue // someone else has made the thread in the meantime
		}
		if stale := (*fault.StaleError)(nil); errors.As(err, &stale) && stale.Seq == 0 {
			err = r.giveUp(ctx, q.Thread, name, err) // the thread has been erased since it was found
		}
		if errors.Is(err, fault.ErrNoUpload) {
			err = r.giveUp(ctx, q.Thread, name, err)
		}
		if !errors.Is(err, fault.ErrErased) {
			return o, run, err
		}
		// An erase is in progress or was interrupted: finish it before making
		// the new thread.
		if err := r.finishErase(ctx, name, q.Thread); err != nil {
			return nil, "", err
		}
	}
	return nil, "", err
}

// startNamed queues a run on the named thread.
func (r *Control) startNamed(ctx context.Context, name, runID string, q StartRequest, in json.RawMessage, cells []store.Write) (*threads.Opened, string, error) {
	if cells == nil && (!threads.IsSmall(in) || len(q.Attach) > 0) {
		if err := r.admitRun(ctx, name, q); err != nil { // before anything of it is written
			return nil, "", err
		}
	}
	b, err := r.newRun(ctx, r.threads.Store, name, runID, q, in)
	if err != nil {
		return nil, "", err
	}
	files, err := r.attach(ctx, name, q.Attach)
	if err != nil {
		return nil, "", err
	}
	b.Blobs = files.blobs
	var room Room
	if r.workers != nil {
		room = r.workers.Reserve(q.Flow, name)
	}
	var queued *threads.Opened // if the run is claimed at once: the thread as the caller sees it
	var claimed bool           // it was tried
	decide := func(t *journal.Thread) ([]threads.Line, []string, error) {
		if q.Key != "" {
			runID = r.runOf(t, q)
			b.ID = runID
		}
		lines, flows, err := r.queue(ctx, t, &q, b)
		if err == nil {
			err = files.missing
		}
		if queued = nil; err == nil && room != nil && len(t.OpenRuns()) == 0 { // it is next
			queued, claimed = threads.Seen(name, t.Clone()), true
			lines = append(lines, room.Claim(t, t.Seq+uint64(len(lines))))
		}
		return lines, flows, err
	}
	var o *threads.Opened
	var entries []journal.Entry
	if cells != nil {
		o, entries, err = r.threads.Begin(ctx, name, cells, decide)
	} else {
		o, entries, err = r.threads.Change(ctx, name, decide)
	}
	switch {
	case err == nil && queued != nil:
		for _, e := range entries[:len(entries)-1] {
			err = errors.Join(err, r.threads.Fold(ctx, queued, e))
		}
		room.Execute(o, entries)
		o = queued
	case !claimed && room != nil:
		room.Leave(nil)
	case room != nil:
		room.Leave(err)
	}
	if err != nil {
		return nil, "", err
	}
	if q.Policy == journal.PolicyInterrupt {
		_ = r.TellParent(ctx, o) // of the end of stuck runs, as a worker does
	}
	return o, runID, nil
}

// admitRun asks whether a run may be added to a thread, unless its key has started
// it before.
func (r *Control) admitRun(ctx context.Context, name string, q StartRequest) error {
	if q.Key != "" && threads.Guarded(ctx) {
		o, err := r.threads.Read(ctx, name)
		if err != nil {
			return err
		}
		if o.Thread.RunByID(r.runOf(o.Thread, q)) != nil {
			return nil
		}
	}
	return r.admit(ctx, threads.Growth{Run: true}, q.Attach)
}

// newRun returns the body of the entry that queues a run. S is as in
// threads.ValueIn.
func (r *Control) newRun(ctx context.Context, s store.Store, name, runID string, q StartRequest, in json.RawMessage) (journal.Body, error) {
	value, err := r.threads.ValueIn(ctx, s, name, in)
	b := journal.Body{ID: runID, Flow: q.Flow, Policy: cmp.Or(string(q.Policy), journal.PolicyEnqueue), Budget: q.Budget,
		Trace: q.Trace, By: q.By, Value: value, Key: runKey(q, in)}
	return b, err
}

// runKey tells apart the requests with one idempotency key. It is "" without one.
func runKey(q StartRequest, in json.RawMessage) string {
	if q.Key == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s", q.Flow, in))
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// runOf returns the id of the run that a key stands for, which may exist
// already. After a rewind that took back the key's run, the key stands for
// another run.
func (r *Control) runOf(t *journal.Thread, q StartRequest) (id string) {
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
func (r *Control) queue(ctx context.Context, t *journal.Thread, q *StartRequest, b journal.Body) ([]threads.Line, []string, error) {
	if !r.tenant.Owns(t) { // another user was quicker
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
	for _, run := range t.OpenRuns() {
		if run.Status == journal.StatusQueued && !run.Begun() {
			waiting++
		}
	}
	busy := t.Busy()
	switch {
	case busy != nil && q.Policy == journal.PolicyReject:
		return nil, nil, &fault.BusyError{Thread: q.Thread, Run: busy.ID}
	case waiting >= r.maxQueue:
		return nil, nil, fmt.Errorf("%w: %d inputs wait on thread %s", fault.ErrQueueFull, waiting, q.Thread)
	}
	if err := fault.CheckSeq(t, q.Thread, q.IfSeq); err != nil {
		return nil, nil, err
	}
	if err := threads.Admit(ctx, threads.Growth{Thread: t.Seq == 0, Run: true}); err != nil {
		return nil, nil, err
	}
	flows := []string{q.Flow}
	if q.Policy == journal.PolicyInterrupt {
		for _, run := range t.OpenRuns() {
			if run.Begun() {
				why := Note{By: q.By, Reason: "interrupted by a new input", IfSeq: q.IfSeq}
				more, flow, err := r.cancelLines(ctx, t, run, &why)
				if err != nil {
					return nil, nil, err
				}
				q.IfSeq = why.IfSeq
				lines, flows = append(lines, more...), append(flows, flow...)
			}
		}
		flows = append(flows, threads.OtherFlows(t, nil)...)
	}
	return append(lines, threads.Line{Kind: journal.Queued, Body: b}), flows, nil
}

// FindStarted returns the thread and the run that an idempotency key has started, "" if it
// has not. Thread is as in the request.
func (r *Control) FindStarted(ctx context.Context, thread, key string) (string, string, error) {
	if thread == "" {
		thread = r.tenant.IDForKey("thread of key", key)
	}
	o, err := r.tenant.Open(ctx, thread)
	if err != nil {
		return "", "", err
	}
	run := r.runOf(o.Thread, StartRequest{Thread: thread, Key: key})
	if o.Thread.RunByID(run) == nil {
		return "", "", nil
	}
	return thread, run, nil
}
