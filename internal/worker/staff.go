package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/internal/threads"
)

// Staff is the workers of a runtime, and what they know about others.
type Staff struct {
	threads *threads.Threads
	engine  *engine.Engine
	opts    Options
	others  *lease.Watcher // for callers that only look; each worker has its own

	mu    sync.Mutex
	hands map[string]*Worker // of this runtime, by id; nil before it has a lease
	known []Info             // the workers seen last
	seen  time.Time          // when
}

// Options of workers.
type Options struct {
	Version     string                     // of the code
	Flows       map[string]engine.FlowFunc // the flows to execute, by name
	Concurrency int                        // how many runs a worker executes at a time
	Lease       time.Duration              // how long a worker may be silent
	Grace       time.Duration              // how long running steps may continue when a worker is stopped
}

// New returns the workers of a runtime.
func New(t *threads.Threads, e *engine.Engine, o Options) *Staff {
	return &Staff{threads: t, engine: e, opts: o, others: lease.NewWatcher(t.Store), hands: map[string]*Worker{}}
}

// Info is what a worker says about itself: see perdure.WorkerInfo.
type Info struct {
	ID      string    `json:"id"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Version string    `json:"version,omitempty"`
	Flows   []string  `json:"flows,omitempty"`
	More    bool      `json:"more,omitempty"`
	Started time.Time `json:"started,omitzero"`
}

// Living returns the live workers of the store, ordered by id.
func (s *Staff) Living(ctx context.Context) ([]Info, error) {
	leases, err := s.others.Living(ctx, s.ownIDs()...)
	if err != nil {
		return nil, err
	}
	all := make([]Info, len(leases))
	for i, l := range leases {
		if json.Unmarshal(l.Info, &all[i]) != nil {
			all[i] = Info{} // an older version says less
		}
		all[i].ID, all[i].Host = l.ID, l.Host
	}
	return all, nil
}

// info returns what a worker says about itself, besides its id and host.
func (s *Staff) info() json.RawMessage {
	const most = 4 << 10
	info := Info{PID: os.Getpid(), Version: s.opts.Version, Started: clock.Now().UTC()}
	size := 0
	for _, flow := range slices.Sorted(maps.Keys(s.opts.Flows)) {
		if size += len(flow); size > most {
			info.More = true
			break
		}
		info.Flows = append(info.Flows, flow)
	}
	// The id is in the lease already.
	raw, err := json.Marshal(struct {
		Info
		ID string `json:"id,omitempty"`
	}{Info: info})
	if err != nil {
		return nil
	}
	return raw
}

// has reports whether a worker may have a flow; older versions do not say.
func (w *Info) has(flow string) bool {
	return w.More || w.PID == 0 || slices.Contains(w.Flows, flow)
}

// began notes a worker of this runtime, until over is called.
func (s *Staff) began(id string) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hands[id] = nil
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.hands, id)
	}
}

// has notes that a worker has its lease.
func (s *Staff) has(w *Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hands[w.id] = w
}

func (s *Staff) ownIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.hands))
}

// Works reports whether this runtime has a worker and the flow.
func (s *Staff) Works(flow string) bool {
	_, has := s.opts.Flows[flow]
	return has && len(s.ownIDs()) > 0
}

// staffFor is how long the workers seen last are assumed to be alive.
const staffFor = time.Second

// Unattended says why a run does not continue by itself: no live worker has its
// flow. It returns "" if one has, or if the run needs none.
func (s *Staff) Unattended(ctx context.Context, run *journal.Run) string {
	if run.Status != journal.StatusQueued && run.Status != journal.StatusRunning && run.Status != journal.StatusSuspended || s.Works(run.Flow) {
		return ""
	}
	s.mu.Lock()
	known, seen := s.known, s.seen
	s.mu.Unlock()
	has := func(w Info) bool { return w.has(run.Flow) }
	// A match among the workers seen last is trusted for a moment; otherwise
	// look again.
	if time.Since(seen) > staffFor || !slices.ContainsFunc(known, has) {
		workers, err := s.Living(ctx)
		if err != nil {
			return "" // nobody knows
		}
		known = workers
		s.mu.Lock()
		s.known, s.seen = known, time.Now()
		s.mu.Unlock()
	}
	if slices.ContainsFunc(known, has) {
		return ""
	}
	return fmt.Sprintf("no living worker has the flow %q", run.Flow)
}
