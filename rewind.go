package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/lifecycle"
)

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
