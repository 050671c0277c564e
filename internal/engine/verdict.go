package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// Replay runs the function of a flow, nil for none, against a recorded run of a
// thread with a name and entries. It returns what the code does instead of what is
// recorded, "" if nothing, and where it would go on.
func (c *Engine) Replay(ctx context.Context, name string, rec *archive.Recording, entries []journal.Entry, was *journal.Run, fn FlowFunc) (problem, note string, err error) {
	recorded := rec.Runs[was.N]
	switch {
	case fn == nil:
		return fmt.Sprintf("there is no flow %q to replay it with", was.Flow), "", nil
	case recorded == nil || !recorded.Begun:
		return "", "it has not begun", nil
	}
	t, dumps, err := recorded.Tree()
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
	}
	run := *was
	run.Status, run.Cancelled, run.PausedAt, run.Fail = journal.StatusRunning, false, 0, nil
	run.BaseState, run.BaseDeps, run.Dumps = recorded.State, recorded.Deps, dumps
	r, err := c.follow(ctx, name, rec.Thread, &run, t, fn)
	if err != nil {
		return "", "", err
	}
	return c.verdict(ctx, name, entries, was, r, recorded.Cancel >= 0)
}

// verdict compares what the code did with how the run stands.
func (c *Engine) verdict(ctx context.Context, name string, entries []journal.Entry, was *journal.Run, r *replay, cancelled bool) (problem, note string, err error) {
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
		problem = r.diff
	case !r.ended && len(r.ends) == 0:
		problem = "the code neither returned nor waits for anything that is recorded"
	case !r.ended && added:
		note = where + ", which was added; what comes behind it was not followed"
	case !r.ended && final:
		problem = fmt.Sprintf("- recorded: the end of the run, %s\n+ %s", was.Status, where)
	case !r.ended:
		note = where
	case !final:
		note = "the code returns where the record ends"
	case was.Status == journal.StatusFailed:
		problem = otherFailure(was.Fail, r.err)
	case r.err != nil:
		problem = fmt.Sprintf("the end of the run:\n- recorded: %s\n+ the code: the error %s", was.Status, fault.Clip(r.err.Error(), maxShown))
	default:
		want, err := c.recordedOutput(ctx, name, entries, was)
		if err != nil {
			return "", "", err
		}
		if !bytes.Equal(want, r.out) {
			problem = fmt.Sprintf("the output:\n- recorded: %s\n+ the code: %s", shown(want), shown(r.out))
		}
	}
	if cancelled {
		note = strings.TrimPrefix(note+"; it was followed up to its cancel", "; ")
	}
	return problem, note, nil
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
func (c *Engine) recordedOutput(ctx context.Context, name string, entries []journal.Entry, run *journal.Run) ([]byte, error) {
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
