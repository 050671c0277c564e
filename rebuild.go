package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/upkeep"
)

// Rebuilt is what a Rebuild found and did.
type Rebuilt struct {
	Threads   int `json:"threads"`   // that are there
	Hints     int `json:"hints"`     // of due work and of timers that were missing
	Summaries int `json:"summaries"` // that were missing or behind
	Damaged   int `json:"damaged"`   // threads that cannot be read to their end, and cells that cannot be mended
	Orphans   int `json:"orphans"`   // that no id leads to: half imported or half erased
}

// Rebuild writes what follows from the journals and was lost or damaged: hints
// of due work and of timers, the summaries that List shows, and the cells that
// lead from ids to threads; those of threads that have ended are mended when the
// id is used. It reads the threads of all
// tenants, finishes erases that were cut off, and drops imports that were, after
// an hour. What is there stays, so it can be called at any time, beside workers
// and as often as one likes. Workers do the same now and then, at a gentle pace.
//
// Call it after a store was restored from a backup or repaired. It goes on
// behind damage that it cannot mend, and tells the first such at its end:
// ErrCorrupt. Beside an error it returns what it did.
func (r *Runtime) Rebuild(ctx context.Context) (*Rebuilt, error) {
	b, err := upkeep.Rebuild(ctx, r.threads)
	return (*Rebuilt)(b), err
}
