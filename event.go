package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Event is a journal entry as the outside sees it. Its id is Seq. The kinds:
//
//   - of a thread: created, metadata, signal, forked (a fork begins), rewound, erased,
//     nudge (says nothing)
//   - of a run: queued, claimed (a worker began a pass), suspended, released (the
//     worker let go), blocked, quarantined, ended
//   - of a step: step (its outcome), attempt (failed, and tried again), intent
//     (an at-most-once step is about to start)
//   - of other verbs: asked, timer, waiting, received, took, emitted, planned,
//     spawned (a child is about to be started; its end is a signal)
//   - of what is waited for: answered, expired, progress, fired (a time is over)
//   - by a person: cancel, paused, resumed, retried
//   - dumped (deps were saved inside a step), problem (something went wrong that
//     stops nothing)
//
// Later versions may add some.
type Event struct {
	Thread    string          `json:"thread"`
	Seq       uint64          `json:"seq"`            // dense from 1 in its thread
	Life      string          `json:"life,omitempty"` // of a thread that uses the id of an erased one, see [Runtime.Tag]
	Kind      string          `json:"kind"`
	Time      time.Time       `json:"time"`
	Run       string          `json:"run,omitempty"`      // id
	Path      string          `json:"path,omitempty"`     // of the verb
	Name      string          `json:"name,omitempty"`     // of a signal, dep or flow
	Attempt   int             `json:"attempt,omitempty"`  // of a failed attempt
	Attempts  int             `json:"attempts,omitempty"` // how many there may be
	TookUS    int64           `json:"took_us,omitempty"`  // microseconds that the function of a leaf step ran, in this attempt
	Value     json.RawMessage `json:"value,omitempty"`    // result, input, payload, answer or output
	ValueOf   uint64          `json:"value_of,omitempty"` // the event that holds the value, where it is another's
	Error     string          `json:"error,omitempty"`
	Ask       string          `json:"ask,omitempty"`       // id
	AskKind   string          `json:"ask_kind,omitempty"`  // of an ask that begins
	Decisions []string        `json:"decisions,omitempty"` // the decisions that it allows
	Child     string          `json:"child,omitempty"`     // id of its thread
	Decision  string          `json:"decision,omitempty"`
	By        string          `json:"by,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Status    Status          `json:"status,omitempty"`
	Due       time.Time       `json:"due,omitzero"`
	Plan      []string        `json:"plan,omitempty"`
	Diff      string          `json:"diff,omitempty"`
	Worker    string          `json:"worker,omitempty"`
	From      string          `json:"from,omitempty"`   // id of the thread that a fork comes from
	At        uint64          `json:"at,omitempty"`     // the last sequence that both share
	Import    bool            `json:"import,omitempty"` // all before it came with a file, so what it says about people is not known here
	Signer    string          `json:"signer,omitempty"` // the trusted key by which the file was signed
	Keep      []string        `json:"keep,omitempty"`   // ids of the asks whose answers count in the fork although nothing has come of them
	To        uint64          `json:"to,omitempty"`     // the sequence that a rewind went back to
}

// EventOptions choose events.
type EventOptions struct {
	After  uint64 // only later ones; if the thread has not reached it, there is only the error ErrAhead
	Run    string // only those of this run
	Replay bool   // end with what is there now, instead of staying live
	Life   string // only of the thread with this [Runtime.Life] or [Runtime.Tag]; another one under the id is ErrErased
}

// event returns the event of an entry. Values in blobs are left out unless
// they are asked for.
func (c *core) event(ctx context.Context, name, run string, e journal.Entry, blobs bool) (Event, error) {
	ev := Event{Seq: e.Seq, Kind: string(e.Kind), Time: clock.Stamp(e.Time), Run: run, Path: tree.Names(e.Path)}
	if !e.Kind.Known() {
		return ev, nil
	}
	b, err := e.Read()
	if err != nil {
		return ev, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, e.Seq, err)
	}
	ev.Name, ev.Attempt, ev.Attempts, ev.TookUS, ev.By, ev.Reason, ev.Status = b.Name, b.Attempt, b.Most, b.Took, b.By, b.Reason, Status(b.Status)
	if e.Kind == journal.Step || e.Kind == journal.Ended {
		ev.ValueOf = b.Ref
	}
	if ev.Child = b.Child; journal.IsChildSignal(b.Name) {
		ev.Name, ev.Child = "", journal.ChildOf(b.Name)
	}
	ev.Due, ev.Plan, ev.Diff, ev.Worker = clock.Stamp(b.Due), b.Plan, b.Diff, b.Worker
	if b.Flow != "" {
		ev.Name = b.Flow
	}
	if b.Fail != nil {
		ev.Error = b.Fail.Msg
	}
	value := b.Value
	switch {
	case e.Kind == journal.Asked && b.Ask != nil:
		ev.Ask, value = threads.AskID(name, e.ID), b.Ask.Data
		ev.Name, ev.AskKind, ev.Decisions = b.Ask.Prompt, b.Ask.Kind, b.Ask.Decisions
	case b.Of != "":
		ev.Ask = threads.AskID(name, b.Of)
	case e.Kind == journal.Forked && b.From != nil:
		ev.From, ev.At, ev.Import, ev.Signer = b.From.Thread, b.At, b.From.Imported(), b.From.Key
		for _, id := range b.Keep {
			ev.Keep = append(ev.Keep, threads.AskID(name, id))
		}
	case e.Kind == journal.Rewound:
		ev.To = b.At
	}
	if b.Answer != nil {
		ev.Decision, ev.By, ev.Reason, value = b.Answer.Decision, b.Answer.By, b.Answer.Message, b.Answer.Value
	}
	if value.Blob == nil || blobs {
		ev.Value, err = c.threads.Load(ctx, name, value)
	}
	return ev, err
}
