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

	mu     sync.Mutex
	hands  map[string]*Worker // of this runtime, by id; nil before it has a lease
	leases []lease.Worker     // of the workers seen last
	seen   time.Time          // when
}

// Options of workers.
type Options struct {
	Version     string                     // of the code
	Flows       map[string]engine.FlowFunc // the flows to execute, by name
	Concurrency int                        // how many runs a worker executes at a time
	Lease       time.Duration              // how long a worker may be silent
	Grace       time.Duration              // how long running steps may continue when a worker is stopped
	// Finish completes what others left half done. It is called from time to time.
	Finish func(context.Context) error
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
	Until   time.Time `json:"until,omitzero"`
}

// Living returns the live workers of the store, ordered by id.
func (s *Staff) Living(ctx context.Context) ([]Info, error) {
	leases, err := s.others.Living(ctx, s.ownIDs()...)
	if err != nil {
		return nil, err
	}
	return infos(leases), nil
}

// infos returns what workers say about themselves.
func infos(leases []lease.Worker) []Info {
	all := make([]Info, len(leases))
	now := clock.Now().UTC()
	for i, l := range leases {
		if json.Unmarshal(l.Info, &all[i]) != nil {
			all[i] = Info{} // an older version says less
		}
		all[i].ID, all[i].Host, all[i].Until = l.ID, l.Host, now.Add(l.Left)
	}
	return all
}

// Holder is what is known about a worker that holds runs.
type Holder struct {
	Gone  bool      // it has no lease
	Late  bool      // it has missed renewals
	Until time.Time // when its lease ends if it does not renew it
}

// Holder returns what is known about a worker, as of a moment ago.
func (s *Staff) Holder(ctx context.Context, id string) (Holder, error) {
	s.mu.Lock()
	_, own := s.hands[id]
	s.mu.Unlock()
	if own {
		return Holder{}, nil
	}
	leases, seen, err := s.living(ctx, func(l []lease.Worker, seen time.Time) bool {
		return slices.ContainsFunc(l, func(w lease.Worker) bool { return w.ID == id && time.Since(seen) < w.Left })
	})
	for _, w := range leases {
		if w.ID == id {
			return Holder{Late: w.Late, Until: seen.Add(w.Left)}, err
		}
	}
	return Holder{Gone: err == nil}, err
}

// living returns the leases of live workers, and when they were seen. Those seen last
// are trusted for a moment if they will do.
func (s *Staff) living(ctx context.Context, will func([]lease.Worker, time.Time) bool) ([]lease.Worker, time.Time, error) {
	s.mu.Lock()
	leases, seen := s.leases, s.seen
	s.mu.Unlock()
	if time.Since(seen) <= staffFor && will(leases, seen) {
		return leases, seen, nil
	}
	leases, err := s.others.Living(ctx, s.ownIDs()...)
	if err != nil {
		return nil, seen, err
	}
	seen = time.Now()
	s.mu.Lock()
	s.leases, s.seen = leases, seen
	s.mu.Unlock()
	return leases, seen, nil
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
	has := func(leases []lease.Worker, _ time.Time) bool {
		return slices.ContainsFunc(infos(leases), func(w Info) bool { return w.has(run.Flow) })
	}
	leases, seen, err := s.living(ctx, has)
	if err != nil || has(leases, seen) { // an error: nobody knows
		return ""
	}
	return fmt.Sprintf("no living worker has the flow %q", run.Flow)
}
