package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/lifecycle"
)

// ForkRequest asks for a fork of a thread.
type ForkRequest struct {
	Thread string         // that is forked
	At     uint64         // the sequence of the last entry that both share; 0: as it is now
	As     string         // id of the fork; "": a generated one
	Title  string         // of the fork; "": the same
	Input  any            // replaces the input of the newest run that had not ended there, if not nil
	State  map[string]any // keys to be set, or removed if nil, as if the newest outcome there had changed them
	Keep   bool           // answers that would be void count in the fork; By has to be one who may give them
	By     string         // who asks for it
	Groups []string       // that By is in, as the caller says; they are not recorded
	Reason string
	IfSeq  uint64 // fork it only if this is still the thread's last sequence, else StaleError; 0: in any case
}

// Fork is a thread that was forked.
type Fork struct {
	Thread string `json:"thread"` // its id
	From   string `json:"from"`   // id of the thread that it was forked from
	At     uint64 `json:"at"`     // the last sequence that both share

	// Outside lists what was done in the other thread behind that point. It is
	// not in the fork, and what it did outside is not undone.
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"` // there is more than is listed
}

// Effect is something that a thread did which reaches outside of it: its Seq, its
// Path, and its Kind, which is "step", "intent" for an at-most-once step of which
// nobody knows, or "spawned" for a child.
type Effect = lifecycle.Effect

// Fork makes a new thread that shares the past of another up to a sequence, any
// one, and goes on by itself. The other is not changed by it. It costs the same
// however long that is, unless Input or State is given.
//
// Runs that had not ended there are paused in the fork: Resume lets them go on,
// Cancel ends them. Their open asks have ids of their own in the fork, children
// that had not been joined are spawned anew, and every Key is another, so that
// the fork never repeats an effect under a key of the thread that it comes from.
//
// A decision is for one call in one thread. So an answer, also one by default,
// counts in the fork only if something has come of it there: a step that its
// question allows has an outcome, or any step where it names none, in the frame
// of the ask or in one around it. Otherwise it is void, with what its frame
// recorded behind it, and asked anew when the run goes on; and so it becomes
// when a retry in the fork voids that outcome. The same holds for steps marked
// with [Allows]. Open asks that expire are asked anew too: their time begins
// when the fork goes on. Keep lets answers count, for someone who may give them.
//
// The same request with the same As can be repeated. A fork keeps the other
// thread from being erased, see Erase. An edited input does not undo what the
// run has recorded: to begin with it, fork at the sequence of the run's entry.
func (r *Runtime) Fork(ctx context.Context, q ForkRequest) (*Fork, error) {
	f, err := r.life.Fork(ctx, lifecycle.ForkRequest(q))
	return (*Fork)(f), err
}

// Rewound says what a rewind did.
type Rewound struct {
	Thread string `json:"thread"`
	To     uint64 `json:"to"`  // as the thread was at this sequence it is again
	Seq    uint64 `json:"seq"` // of the entry that says so

	// Outside lists what the thread did behind that point. What it did outside
	// is not undone.
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"` // there is more than is listed
}

// Rewind takes a thread back to what it was at an earlier sequence: its state,
// deps, runs and signals. The sequence has to be one at which no run had begun
// or waited, and none may have now; for everything else there is Fork. Nothing
// is deleted: the entries stay for audit, sequences and events go on, and what
// was spent stays spent.
func (r *Runtime) Rewind(ctx context.Context, thread string, to uint64, n Note) (*Rewound, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	w, err := r.life.Rewind(ctx, thread, to, lifecycle.Note(n))
	return (*Rewound)(w), err
}
