package perdure

import (
	"context"
	"fmt"
	"time"
)

// WorkerInfo is a worker, one call of Work, as it tells of itself.
type WorkerInfo struct {
	ID      string    `json:"id"` // as the events of kind "claimed" have it
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Version string    `json:"version,omitempty"` // of its code, see Options
	Flows   []string  `json:"flows,omitempty"`   // that it has; the first ones, if their names are over 4 KiB
	More    bool      `json:"more,omitempty"`    // it has other flows too
	Started time.Time `json:"started,omitzero"`  // by its clock
}

// Workers returns the workers of the store, which those of all tenants share, by
// id. One that died is listed until a worker, or this runtime, has seen for a
// Lease of its Options that it does not move. The runtime looks when it is asked,
// so a first call may still list one that has been dead for long.
func (r *Runtime) Workers(ctx context.Context) ([]WorkerInfo, error) {
	living, err := r.staff.Living(ctx)
	if err != nil {
		return nil, fmt.Errorf("perdure: listing workers: %w", err)
	}
	all := make([]WorkerInfo, len(living))
	for i, w := range living {
		all[i] = WorkerInfo(w)
	}
	return all, nil
}

// Work executes runs that are due, of the flows that the runtime has, until
// the context ends. Then it hands over what is between two steps at once,
// gives running steps Options.Grace, and returns nil. Runs of all tenants are
// executed. Any number of workers may share a store. One that has lost its
// lease, because the machine slept or the store was away, begins anew as another
// worker.
func (r *Runtime) Work(ctx context.Context) error { return r.staff.Work(ctx) }
