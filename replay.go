package perdure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
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
				return fmt.Errorf("%w: the export is redacted and cannot be replayed", fault.ErrInvalid)
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
		one.Problem, one.Note, err = rt.core.engine.Replay(ctx, name, rec, entries, run, rt.core.flows[run.Flow].fn)
		if err != nil {
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
