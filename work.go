package perdure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/upkeep"
	"github.com/perdure/perdure/internal/worker"
)

// WorkerInfo is what a worker, one call of Work, reports about itself.
type WorkerInfo struct {
	ID      string    `json:"id"` // as in events of kind "claimed"
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Version string    `json:"version,omitempty"` // of its code, see Options
	Flows   []string  `json:"flows,omitempty"`   // that it has; only the first ones if their names exceed 4 KiB
	More    bool      `json:"more,omitempty"`    // it has other flows too
	Started time.Time `json:"started,omitzero"`  // by its clock
	Until   time.Time `json:"until,omitzero"`    // when its lease ends and others take over its runs, unless the worker renews it
}

// Workers returns the workers of the store, which all tenants share, ordered by
// id. A dead worker is listed until a worker, or this runtime, has seen no sign of
// life from it for a Lease. This runtime looks only when Workers is called, so the
// first call may still list a worker that died long ago.
func (r *Runtime) Workers(ctx context.Context) ([]WorkerInfo, error) {
	living, err := r.core.staff.Living(ctx)
	if err != nil {
		return nil, fmt.Errorf("perdure: listing workers: %w", err)
	}
	return each(living, func(w worker.Info) WorkerInfo { return WorkerInfo(w) }), nil
}

// Work executes due runs of the runtime's flows, for all tenants, until the context
// ends. Then it hands over runs that are between two steps at once, gives running steps
// Options.Grace, and returns nil. Any number of workers may share a store. A worker that
// has lost its lease, because the machine slept or the store was unreachable, starts over
// as a new worker. Work also carries out bulk jobs, see [Runtime.StartBulk], makes the
// firings of schedules, see [Runtime.PutSchedule], and archives or erases threads, see
// [Options.Retention].
func (r *Runtime) Work(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	var jobs sync.WaitGroup
	jobs.Go(func() { r.WorkBulk(working) })
	jobs.Go(func() { r.WorkSchedules(working) })
	jobs.Go(func() { r.core.keeper().Work(working, r.core.opts.Lease) })
	err := r.core.staff.Work(ctx)
	stop()
	jobs.Wait()
	return err
}

// WorkBulk carries out the bulk jobs of all tenants until the context ends. It does
// nothing else: it executes no runs. [Runtime.Work] does both.
func (r *Runtime) WorkBulk(ctx context.Context) {
	r.core.bulkVerbs().Work(ctx, r.core.opts.Lease)
}

// Rebuilt reports what a Rebuild found and did.
type Rebuilt struct {
	Threads   int `json:"threads"`   // threads in the store
	Hints     int `json:"hints"`     // missing hints of due work and of timers
	Summaries int `json:"summaries"` // missing or outdated summaries
	Damaged   int `json:"damaged"`   // threads that cannot be read to their end, and cells that cannot be repaired
	Orphans   int `json:"orphans"`   // threads that no id leads to: half imported or half erased
}

// Rebuild restores data that is derived from journals and was lost or damaged:
// hints of due work and of timers, the summaries that List shows, and the cells
// that map ids to threads; those of ended threads are repaired when the id is used.
// It reads the threads of all tenants, completes interrupted erases of threads and
// users, and drops interrupted imports after an hour. It leaves intact data alone, so
// it can be called at any time, alongside workers and as often as you like. Workers do
// the same occasionally, at a gentle pace.
//
// Call it after a store was restored from a backup or repaired. It skips damage that
// it cannot repair, and finally returns the first such damage as ErrCorrupt. It
// reports what it did even if it returns an error.
func (r *Runtime) Rebuild(ctx context.Context) (*Rebuilt, error) {
	b, err := upkeep.Rebuild(ctx, r.core.threads)
	return (*Rebuilt)(b), errors.Join(err, r.core.finishErases(ctx))
}
