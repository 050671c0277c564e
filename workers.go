package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/perdure/perdure/internal/lease"
)

// WorkerInfo is a worker, one call of Work, as it tells of itself.
type WorkerInfo struct {
	ID      string    `json:"id"` // as the events of kind "claimed" have it
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Version string    `json:"version,omitempty"` // of its code, see Options
	Flows   []string  `json:"flows,omitempty"`   // that it has; the first ones, if their names are over 4 KiB
	Started time.Time `json:"started,omitzero"`  // by its clock
}

// Workers returns the workers of the store, which those of all tenants share, by
// id. One that died is listed until another worker finds that it is dead, which
// takes about a Lease of its Options; without another one it stays.
func (r *Runtime) Workers(ctx context.Context) ([]WorkerInfo, error) {
	leases, err := lease.All(ctx, r.store)
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
	info := WorkerInfo{PID: os.Getpid(), Version: r.version, Started: clock().UTC()}
	size := 0
	for _, flow := range r.Flows() {
		if size += len(flow); size > most {
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
