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

// Replayed is the result of a replay, run by run.
type Replayed struct {
	Thread string        `json:"thread"`
	Runs   []ReplayedRun `json:"runs"`
}

// OK reports whether the code fits all runs.
func (r *Replayed) OK() bool {
	return !slices.ContainsFunc(r.Runs, func(run ReplayedRun) bool { return !run.Fits })
}

// ReplayedRun is the result of replaying a run.
type ReplayedRun struct {
	ID      string `json:"id"`
	Seq     uint64 `json:"seq"` // of the entry that queued it
	Flow    string `json:"flow"`
	Status  Status `json:"status"`            // as recorded
	Fits    bool   `json:"fits"`              // the code does what is recorded
	Problem string `json:"problem,omitempty"` // what it does instead, for people to read
	Note    string `json:"note,omitempty"`    // where it would continue, or how far it was followed
}

// Replay runs the current code against the recorded runs of a thread, given as
// an export: it calls the flows, and their verbs return what is recorded. It calls
// no function of a leaf step, writes nothing and needs no store. For each run it
// reports whether the code fits:
//
//   - the code has to do what is recorded; otherwise the problem is the
//     difference, as in a blocked run;
//   - a run that succeeded has to return the recorded output, and one that failed
//     the recorded error (its message and codes);
//   - a run that has not ended may continue where its record ends; so may any run
//     from a step that the code marks with [Added];
//   - a run that was cancelled is followed up to its cancellation.
//
// A composite step that succeeded is also followed inside, and has to return its
// recorded result again; a real run would use the recorded result without
// following it.
//
// Flow code outside steps is really executed: deps that it uses there are created, and
// loaded with the newest recorded dump of the run. A run whose flow is not given does
// not fit. Replay returns an error for a damaged or redacted export.
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
		one := ReplayedRun{ID: run.ID, Seq: run.N, Flow: run.Flow, Status: run.Status}
		one.Problem, one.Note, err = rt.core.engine.Replay(ctx, name, rec, entries, run, rt.core.flows[run.Flow].fn)
		if err != nil {
			return nil, fmt.Errorf("perdure: replaying run %s: %w", run.ID, err)
		}
		one.Fits = one.Problem == ""
		done.Runs = append(done.Runs, one)
	}
	return done, nil
}

// anyValue accepts every value, so that flows may ask questions with a schema.
type anyValue struct{}

func (anyValue) Validate(json.RawMessage, json.RawMessage) error { return nil }
