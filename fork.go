package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
)

// ForkRequest asks for a fork of a thread.
type ForkRequest struct {
	Thread string         // the thread to fork
	At     uint64         // the sequence of the last entry that both share; 0 means the current one
	As     string         // id of the fork; "" generates one
	Title  string         // of the fork; "" keeps the title
	Input  any            // replaces the input of the newest run that had not ended there, if not nil
	State  map[string]any // keys to set, or to remove if nil, as if the newest outcome there had changed them
	Keep   bool           // answers that would otherwise be void count in the fork; By has to be allowed to give them
	By     string         // who requests it
	Groups []string       // that By is in, according to the caller; they are not recorded
	Reason string
	IfSeq  uint64 // fork only if this is still the thread's last sequence, else StaleError; 0 forks in any case
}

// Fork is the result of forking a thread.
type Fork struct {
	Thread string `json:"thread"` // its id
	From   string `json:"from"`   // id of the thread that it was forked from
	At     uint64 `json:"at"`     // the last sequence that both share

	// Outside lists what the other thread did after that point. It is not in the
	// fork, and its effects on the world are not undone.
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"` // there is more than is listed
}

// Effect is something that a thread did outside itself: its Seq, its Path, and its
// Kind, which is "step", "intent" for an at-most-once step whose outcome nobody knows,
// or "spawned" for a child.
type Effect = lifecycle.Effect

// Fork creates a thread that shares the past of another up to any sequence, and is
// independent from there on. The other thread is not changed. A fork costs the
// same however long the past is, unless Input or State is given.
//
// Runs that had not ended there are paused in the fork: Resume continues them,
// Cancel ends them. Their open asks have new ids in the fork, children that had
// not been joined are spawned again, and every Key is new, so that the fork never
// repeats an effect under a key of the original thread.
//
// A decision applies to one call in one thread. So an answer, even a default one,
// counts in the fork only if it has had an effect there: a step that its question
// allows, or any step if it names none, has an outcome in the frame of the ask or
// in an enclosing one. Otherwise the answer is void, with everything that its frame
// recorded after it, and the question is asked again when the run continues. An answer
// also becomes void when a retry in the fork voids that outcome. The same holds for
// steps marked with [Allows]. Open asks with an expiry are asked again too: their time
// starts when the fork continues. Keep makes void answers count, if By may give them.
//
// The same request with the same As can be repeated. A fork keeps the other
// thread from being erased, see Erase. A new Input does not undo what the run has
// recorded: to start over with it, fork at the run's Seq.
func (r *Runtime) Fork(ctx context.Context, q ForkRequest) (*Fork, error) {
	f, err := r.life.Fork(ctx, lifecycle.ForkRequest(q))
	return (*Fork)(f), err
}

// Rewound is the result of a rewind.
type Rewound struct {
	Thread string `json:"thread"`
	To     uint64 `json:"to"`  // the sequence to which the thread was taken back
	Seq    uint64 `json:"seq"` // of the entry that records it

	// Outside lists what the thread did after that point. Its effects on the
	// world are not undone.
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"` // there is more than is listed
}

// Rewind takes a thread back to an earlier sequence: its state, deps, runs and
// signals. No run may have been active at that sequence, and none may be active
// now; otherwise use Fork. Nothing is deleted: the entries stay for audit, sequences
// and events keep growing, and what was spent stays spent.
func (r *Runtime) Rewind(ctx context.Context, thread string, to uint64, n Note) (*Rewound, error) {
	w, err := r.life.Rewind(ctx, thread, to, lifecycle.Note(n))
	return (*Rewound)(w), err
}

// Family is a thread with its ancestors and its descendants: forks, children, and
// their forks and children.
type Family struct {
	Members []Relative `json:"members"`        // each after the one it comes from, in order of creation
	More    bool       `json:"more,omitempty"` // there are more than are listed
}

// Relative is a member of a family. Its status may lag slightly.
type Relative struct {
	ID      string    `json:"id"`
	From    string    `json:"from,omitempty"` // the member that it comes from; "" for the first
	Kind    string    `json:"kind,omitempty"` // how: fork or child
	At      uint64    `json:"at,omitempty"`   // of a fork: the last sequence that both share
	Flow    string    `json:"flow,omitempty"`
	Title   string    `json:"title,omitempty"`
	Status  Status    `json:"status"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// Family returns a thread's family, beginning with its earliest ancestor in the store.
// Archived threads are omitted, as are those that the runtime may not read.
func (r *Runtime) Family(ctx context.Context, thread string) (*Family, error) {
	f, err := r.tenant.Family(ctx, thread)
	if err != nil {
		return nil, err
	}
	return &Family{Members: each(f.Members, func(m threads.Relative) Relative { return Relative(m) }), More: f.More}, nil
}
