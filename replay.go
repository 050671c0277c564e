package perdure

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store/memstore"
)

// Replayed is what came of a replay, run by run.
type Replayed struct {
	Thread string        `json:"thread"`
	Runs   []ReplayedRun `json:"runs"`
}

// OK reports whether all runs fit.
func (r *Replayed) OK() bool {
	return !slices.ContainsFunc(r.Runs, func(run ReplayedRun) bool { return !run.Fits })
}

// ReplayedRun is what came of the replay of a run.
type ReplayedRun struct {
	ID      string `json:"id"`
	Seq     uint64 `json:"seq"` // of the entry that queued it
	Flow    string `json:"flow"`
	Status  Status `json:"status"`            // as recorded
	Fits    bool   `json:"fits"`              // today's code does what is recorded
	Problem string `json:"problem,omitempty"` // what it does instead, for people to read
	Note    string `json:"note,omitempty"`    // where it would go on, or up to where it was followed
}

// Replay runs the code of today against the recorded runs of a thread, given as
// an export: the flows are called, and their verbs return what is recorded. No
// function of a leaf step is called, nothing is written, and no store is needed.
// It tells of each run whether the code fits:
//
//   - what it does has to be what is recorded; else the problem is the
//     difference, as a blocked run has it;
//   - a run that succeeded has to return the recorded output, one that failed the
//     recorded error (its message and codes);
//   - a run that has not ended may go on where its record ends; so may, from
//     there on, any run at a step that the code marks with [Added];
//   - a run that was cancelled is followed up to its cancel.
//
// A composite step that succeeded is followed inside too, and has to return
// what it returned; a real run would take its result as it is.
//
// What flow code does outside steps is done: deps that it gets there are made,
// and loaded with the newest recorded dump of the run. A run whose flow is not
// given does not fit. A damaged or redacted export is an error.
func Replay(ctx context.Context, export io.Reader, flows ...Flow) (*Replayed, error) {
	s := memstore.New()
	defer s.Close()
	rt, err := New(ctx, s, Options{Version: "replay", Validator: anyValue{}, DumpInterval: 1 << 62}, flows...)
	if err != nil {
		return nil, err
	}
	var entries []journal.Entry
	name := ""
	v, err := archive.Read(ctx, export, archive.Taker{
		Head: func(h archive.ExportHead) error {
			if h.Redacted {
				return fmt.Errorf("%w: the export is redacted: there is nothing in it to be replayed", fault.ErrInvalid)
			}
			name = cmp.Or(h.Name, "unknown")
			return nil
		},
		Blob: func(ref blob.Ref, chunk int64) (*blob.Copy, error) {
			return blob.NewCopy(s, threads.BlobPrefix(name), ref, chunk)
		},
		Entry: func(e journal.Entry, _ []byte) error {
			entries = append(entries, e)
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	if !v.OK() {
		return nil, fmt.Errorf("%w: the export: %s", fault.ErrCorrupt, v.Problem)
	}
	rec, err := archive.Record(entries)
	if err != nil {
		return nil, err
	}
	if rec.Thread.Foreign != "" {
		return nil, fmt.Errorf("%w: %s", fault.ErrNewer, rec.Thread.Foreign)
	}
	done := &Replayed{Thread: rec.Thread.ID}
	for _, run := range rec.Thread.Runs {
		one := ReplayedRun{ID: run.ID, Seq: run.N, Flow: run.Flow, Status: Status(run.Status)}
		if err := rt.replayRun(ctx, name, rec, entries, run, &one); err != nil {
			return nil, fmt.Errorf("perdure: replaying run %s: %w", run.ID, err)
		}
		one.Fits = one.Problem == ""
		done.Runs = append(done.Runs, one)
	}
	return done, nil
}

// anyValue lets questions with a schema be asked.
type anyValue struct{}

func (anyValue) Validate(json.RawMessage, json.RawMessage) error { return nil }

// replayRun replays one run.
func (c *core) replayRun(ctx context.Context, name string, rec *archive.Recording, entries []journal.Entry, was *journal.Run, one *ReplayedRun) error {
	recorded := rec.Runs[was.N]
	flow, ok := c.flows[was.Flow]
	switch {
	case !ok:
		one.Problem = fmt.Sprintf("there is no flow %q to replay it with", was.Flow)
		return nil
	case recorded == nil || !recorded.Begun:
		one.Note = "it has not begun"
		return nil
	}
	t, dumps, err := recorded.Tree()
	if err != nil {
		return fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
	}
	run := *was
	run.Status, run.Cancelled, run.PausedAt, run.Fail = journal.StatusRunning, false, 0, nil
	run.BaseState, run.BaseDeps, run.Dumps = recorded.State, recorded.Deps, dumps
	p := &pass{rt: c, name: name, io: ctx, born: time.Now(), order: make(turn, 1), thread: rec.Thread, run: &run, tree: t,
		active: 1, waiters: map[*waiter]bool{}, calls: map[*step]bool{}, spending: map[*frame]bool{}, leaves: map[*frame]*leafWatch{}, replay: &replay{}}
	p.ctx, p.end = context.WithCancelCause(ctx)
	p.runCtx, p.cancel = context.WithCancelCause(p.ctx)
	p.runCtx, p.secrets = scrub.With(p.runCtx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.flow(flow)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	p.seal(fault.ErrFenced) // nothing can be left open
	r := *p.replay
	p.mu.Unlock()
	p.closeDeps()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return c.judge(ctx, name, entries, was, &r, recorded.Cancel >= 0, one)
}

// judge compares what the code did with how the run stands.
func (c *core) judge(ctx context.Context, name string, entries []journal.Entry, was *journal.Run, r *replay, cancelled bool, one *ReplayedRun) error {
	var places []string
	added := false
	for _, e := range r.ends {
		if added = added || e.added; e.waits {
			places = append(places, "waits at "+e.String())
		} else {
			places = append(places, "goes on at "+e.String())
		}
	}
	where := "the code " + strings.Join(places, ", ")
	for _, e := range r.ends {
		if e.missed != "" {
			where += "; it has to reach what it has not reached so far, " + e.missed
		}
	}
	final := was.Status.Final() && !cancelled
	switch {
	case r.diff != "":
		one.Problem = r.diff
	case !r.ended && len(r.ends) == 0:
		one.Problem = "the code neither returned nor waits for anything that is recorded"
	case !r.ended && added:
		one.Note = where + ", which was added; what comes behind it was not followed"
	case !r.ended && final:
		one.Problem = fmt.Sprintf("- recorded: the end of the run, %s\n+ %s", was.Status, where)
	case !r.ended:
		one.Note = where
	case !final:
		one.Note = "the code returns where the record ends"
	case was.Status == journal.StatusFailed:
		one.Problem = otherFailure(was.Fail, r.err)
	case r.err != nil:
		one.Problem = fmt.Sprintf("the end of the run:\n- recorded: %s\n+ the code: the error %s", was.Status, fault.Clip(r.err.Error(), maxShown))
	default:
		want, err := c.recordedOutput(ctx, name, entries, was)
		if err != nil {
			return err
		}
		if !bytes.Equal(want, r.out) {
			one.Problem = fmt.Sprintf("the output:\n- recorded: %s\n+ the code: %s", shown(want), shown(r.out))
		}
	}
	if cancelled {
		one.Note = strings.TrimPrefix(one.Note+"; it was followed up to its cancel", "; ")
	}
	return nil
}

// otherFailure says how an error differs from the recorded one, "" if it does
// not.
func otherFailure(want *journal.Failure, err error) string {
	if want == nil {
		want = &journal.Failure{}
	}
	if err == nil {
		return fmt.Sprintf("the end of the run:\n- recorded: the error %s\n+ the code: no error", fault.Clip(want.Msg, maxShown))
	}
	got := fault.Failure(err)
	if got.Msg == want.Msg && slices.Equal(got.Codes, want.Codes) {
		return ""
	}
	return fmt.Sprintf("the error:\n- recorded: %s %q\n+ the code: %s %q", fault.Clip(want.Msg, maxShown), want.Codes, fault.Clip(got.Msg, maxShown), got.Codes)
}

// recordedOutput returns what a run returned.
func (c *core) recordedOutput(ctx context.Context, name string, entries []journal.Entry, run *journal.Run) ([]byte, error) {
	value := run.Output
	if run.Ref != 0 {
		if run.Ref > uint64(len(entries)) {
			return nil, fmt.Errorf("%w: entry %d is missing", fault.ErrCorrupt, run.Ref)
		}
		b, err := entries[run.Ref-1].Read()
		if err != nil {
			return nil, err
		}
		value = b.Value
	}
	raw, err := c.threads.Load(ctx, name, value)
	if errors.Is(err, fault.ErrCorrupt) || err == nil {
		return raw, err
	}
	return nil, fmt.Errorf("the output: %w", err)
}
