package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/journal"
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
	leases, err := r.others.Living(ctx, r.ownWorkers()...)
	if err != nil {
		return nil, fmt.Errorf("perdure: listing workers: %w", err)
	}
	all := make([]WorkerInfo, len(leases))
	for i, l := range leases {
		if json.Unmarshal(l.Info, &all[i]) != nil {
			all[i] = WorkerInfo{} // an older version says less
		}
		all[i].ID, all[i].Host = l.ID, l.Host
	}
	return all, nil
}

// workerInfo is what a worker tells of itself beside its id and host.
func (r *Runtime) workerInfo() json.RawMessage {
	const most = 4 << 10
	info := WorkerInfo{PID: os.Getpid(), Version: r.version, Started: clock.Now().UTC()}
	size := 0
	for _, flow := range r.Flows() {
		if size += len(flow); size > most {
			info.More = true
			break
		}
		info.Flows = append(info.Flows, flow)
	}
	// Its id is that of the lease.
	raw, err := json.Marshal(struct {
		WorkerInfo
		ID string `json:"id,omitempty"`
	}{WorkerInfo: info})
	if err != nil {
		return nil
	}
	return raw
}

// has reports whether a worker may have a flow. One of an older version does not
// say what it has.
func (w *WorkerInfo) has(flow string) bool {
	return w.More || w.PID == 0 || slices.Contains(w.Flows, flow)
}

// began notes a worker of this runtime, until over is called.
func (c *core) began(id string) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hands[id] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.hands, id)
	}
}

// ownWorkers returns the ids of the workers of this runtime.
func (c *core) ownWorkers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.hands))
}

// works reports whether this runtime has a worker, and the flow.
func (c *core) works(flow string) bool {
	_, has := c.flows[flow]
	return has && len(c.ownWorkers()) > 0
}

// staffFor is how long the workers that were found are taken for those that live.
const staffFor = time.Second

// staff is who was seen to work.
type staff struct {
	workers []WorkerInfo
	seen    time.Time
}

// unattended says why a run does not go on by itself: no living worker has its
// flow. It is "" if one has, or if the run needs none.
func (r *Runtime) unattended(ctx context.Context, run *journal.Run) string {
	if run.Status != journal.StatusQueued && run.Status != journal.StatusRunning && run.Status != journal.StatusSuspended || r.works(run.Flow) {
		return ""
	}
	r.mu.Lock()
	known := r.staff
	r.mu.Unlock()
	has := func(w WorkerInfo) bool { return w.has(run.Flow) }
	// That somebody works is believed for a moment; that nobody does is looked up.
	if time.Since(known.seen) > staffFor || !slices.ContainsFunc(known.workers, has) {
		workers, err := r.Workers(ctx)
		if err != nil {
			return "" // nobody knows
		}
		known = staff{workers, time.Now()}
		r.mu.Lock()
		r.staff = known
		r.mu.Unlock()
	}
	if slices.ContainsFunc(known.workers, has) {
		return ""
	}
	return fmt.Sprintf("no living worker has the flow %q", run.Flow)
}
