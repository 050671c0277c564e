package journal

import (
	"maps"
	"slices"
	"strings"
)

// Status is the state of a run.
type Status string

// The statuses of a run.
const (
	StatusQueued      Status = "queued"
	StatusRunning     Status = "running"
	StatusSuspended   Status = "suspended"
	StatusPaused      Status = "paused"
	StatusBlocked     Status = "blocked"
	StatusQuarantined Status = "quarantined"
	StatusSucceeded   Status = "succeeded"
	StatusFailed      Status = "failed"
	StatusCancelled   Status = "cancelled"
)

// Final reports whether the run has ended.
func (s Status) Final() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCancelled
}

// The policies for an input that finds the thread busy.
const (
	PolicyEnqueue   = "enqueue"
	PolicyReject    = "reject"
	PolicyInterrupt = "interrupt"
	PolicySteer     = "steer"
	PolicyBeside    = "beside"
)

// Run is one run of a thread.
type Run struct {
	N       uint64           `json:",omitzero"` // the sequence of the entry that queued it
	ID      string           `json:",omitzero"`
	Flow    string           `json:",omitzero"`
	Policy  string           `json:",omitzero"`
	Key     string           `json:",omitzero"`
	Budget  map[string]int64 `json:",omitzero"`
	Trace   string           `json:",omitzero"`
	By      string           `json:",omitzero"`
	Input   Value            `json:",omitzero"`
	Created int64            `json:",omitzero"`

	Status    Status          `json:",omitzero"`
	Start     uint64          `json:",omitzero"` // sequence of its first claim, 0 before
	Started   int64           `json:",omitzero"`
	Ended     int64           `json:",omitzero"`
	EndSeq    uint64          `json:",omitzero"`
	Output    Value           `json:",omitzero"`
	Ref       uint64          `json:",omitzero"` // the entry that holds the output as its value, 0 if Output does
	Fail      *Failure        `json:",omitzero"`
	Unknown   []string        `json:",omitzero"`
	Diff      string          `json:",omitzero"`
	Version   string          `json:",omitzero"` // fingerprint of the code that claimed it last
	Misfits   map[string]bool `json:",omitzero"` // versions that have blocked it since the last retry
	Cancelled bool            `json:",omitzero"`
	Orphan    bool            `json:",omitzero"` // it was cancelled because its parent ended
	Taken     uint64          `json:",omitzero"` // the run that took this input as steering
	Wake      bool            `json:",omitzero"` // something that it waited for has happened

	Claim     Claim `json:",omitzero"` // the last one
	LostClaim Claim `json:",omitzero"` // the one before it, if its worker died or lost its lease

	Claims      int   `json:",omitzero"`
	Deaths      int   `json:",omitzero"` // claims in a row without a sign of life
	Retries     int   `json:",omitzero"`
	PausedAt    int64 `json:",omitzero"` // 0 unless it is paused or about to be
	Held        bool  `json:",omitzero"` // a fork began with it: it continues only when a person says so
	SuspendedAt int64 `json:",omitzero"` // 0 unless it waits
	Silent      bool  `json:",omitzero"` // no sign of life since the last claim
	Resting     bool  `json:",omitzero"` // silent, but only because it waits
	PostMortem  Value `json:",omitzero"` // what the worker that quarantined it knew

	Steps    int              `json:",omitzero"` // outcomes so far
	Last     string           `json:",omitzero"` // path of the newest one
	Plan     []string         `json:",omitzero"`
	PlanAt   string           `json:",omitzero"` // prefix of the paths of the plan's steps
	Reached  map[string]bool  `json:",omitzero"` // names of the plan whose steps have succeeded
	Waits    map[string]*Wait `json:",omitzero"` // by path
	Failing  map[string]Note  `json:",omitzero"` // branches whose newest outcome is a failure, by path
	Intents  map[string]bool  `json:",omitzero"` // at-most-once steps under way
	Starts   map[string]Start `json:",omitzero"` // their newest starts
	Errors   []Note           `json:",omitzero"`
	Cleaning bool             `json:",omitzero"` // a cleanup has started
	Children []*Child         `json:",omitzero"`
	Spent    map[string]int64 `json:",omitzero"`

	BaseState map[string]Item  `json:"-"`
	BaseDeps  map[string]Value `json:"-"`
	Dumps     map[string]Value `json:",omitzero"` // its own dumps, newest
	asks      []*Ask
}

// Claim is the claim of a run by a worker.
type Claim struct {
	Seq    uint64 `json:",omitzero"`
	Time   int64  `json:",omitzero"`
	Worker string `json:",omitzero"`
}

// Start is a start of an at-most-once step.
type Start struct {
	Limit int64 `json:",omitzero"` // how long it may take, in microseconds
	Over  int64 `json:",omitzero"` // when it cannot be running any more, since another claim came first; else 0
}

// Wait is something that a run waits for.
type Wait struct {
	Kind   Kind   `json:",omitzero"` // asked, timer, waiting, attempt
	Seq    uint64 `json:",omitzero"`
	Since  int64  `json:",omitzero"`
	Due    int64  `json:",omitzero"`
	Ask    string `json:",omitzero"` // id
	Signal string `json:",omitzero"` // name

	Cleaning bool `json:",omitzero"` // it is below a cleanup, which nothing stops
}

// Begun reports whether the run was ever claimed.
func (r *Run) Begun() bool { return r.Start != 0 }

// Due returns when the first of its waits is due, 0 for never.
func (r *Run) Due() int64 {
	var due int64
	for _, w := range r.Waits {
		if w.Due != 0 && (due == 0 || w.Due < due) {
			due = w.Due
		}
	}
	return due
}

// The names of nudges: a pass that has recorded nothing yet says that it rests while
// it only waits, and that it acts when it goes on. A worker that disappears between
// the two was not killed by the run.
const (
	NudgeRests = "rests"
	NudgeActs  = "acts"
)

// Lost returns how many claims in a row were lost, without a sign of life after
// them, if the run is claimed now. A claim that only waited does not count.
func (r *Run) Lost() int {
	switch {
	case !r.Silent:
		return 0
	case r.Resting:
		return r.Deaths
	}
	return r.Deaths + 1
}

// LostBefore is Lost for a worker that is about to claim a run. If the last claim
// was its own, that one does not count: the worker is alive.
func (t *Thread) LostBefore(r *Run, worker string) int {
	if r.Silent && r.Status == StatusRunning && t.Worker == worker {
		return r.Deaths
	}
	return r.Lost()
}

// Resumes returns how often the run was resumed.
func (r *Run) Resumes() int { return max(0, r.Claims-1) }

func (r *Run) wait(e Entry, w Wait) {
	if r.Waits == nil {
		r.Waits = map[string]*Wait{}
	}
	w.Kind, w.Seq, w.Since = e.Kind, e.Seq, e.Time
	r.Waits[e.Path] = &w
}

// settled ends all waits of the node at a path and of those below it.
func (t *Thread) settled(r *Run, path string) {
	for p, w := range r.Waits {
		if p == path || strings.HasPrefix(p, path+"/") {
			if a := t.Ask(w.Ask); a != nil && a.Open() {
				a.Closed = true
			}
			delete(r.Waits, p)
		}
	}
}

// alive reports whether an entry of a kind shows that the worker of a run makes
// progress, or gives the run what it waited for. Other things that people do to a
// run show neither, and fired and expired entries are appended without a claim.
func alive(k Kind) bool {
	switch k {
	case Answered, Signal, Retried:
		return true
	}
	return workers[k] && k != Claimed
}

func (t *Thread) applyRun(r *Run, e Entry, b *Body) {
	if r.Status.Final() && e.Kind != Retried && e.Kind != Queued {
		return
	}
	r = t.own(r)
	if alive(e.Kind) {
		r.Silent, r.Resting = false, false
	}
	t.commit(r, e, b)
	r.Failing = Failing(r.Failing, e, b)
	switch e.Kind {
	case Claimed:
		if !r.Begun() {
			r.Start, r.Started = e.Seq, e.Time
			for _, old := range t.ended { // it can no longer be retried
				old.BaseState, old.BaseDeps, old.Dumps = nil, nil, nil
			}
			r.BaseState, r.BaseDeps, t.shared = t.State, t.Deps, true
		}
		r.LostClaim = Claim{}
		if r.Status == StatusRunning && t.Worker != "" {
			r.LostClaim = r.Claim
		}
		r.Claim = Claim{Seq: e.Seq, Time: e.Time, Worker: b.Worker}
		for path, s := range r.Starts {
			r.Starts[path] = Start{Limit: s.Limit, Over: e.Time + s.Limit}
		}
		r.Deaths = t.LostBefore(r, b.Worker)
		r.Silent, r.Resting = true, false
		r.Claims++
		r.Status, r.SuspendedAt, r.Version, r.Diff = StatusRunning, 0, b.Version, ""
		t.Epoch, t.Worker = e.Epoch, b.Worker
	case Nudge:
		switch b.Name {
		case NudgeRests:
			r.Resting = r.Silent
		case NudgeActs:
			r.Silent, r.Resting = true, false
		}
	case Suspended:
		t.Worker, r.Wake, r.SuspendedAt, r.Status = "", false, e.Time, StatusSuspended
		if r.PausedAt != 0 {
			r.Status = StatusPaused
		}
	case Released:
		t.Worker = ""
	case Blocked:
		t.Worker, r.Status, r.Diff, r.Version, r.Wake = "", StatusBlocked, b.Diff, b.Version, false
		if r.Misfits == nil {
			r.Misfits = map[string]bool{}
		}
		r.Misfits[b.Version] = true
	case Quarantined:
		t.Worker, r.Status, r.Fail, r.PostMortem = "", StatusQuarantined, b.Fail, b.Value
	case Ended:
		t.end(r, e, b)
	case Step:
		r.Steps++
		r.Last = e.Path
		if b.Fail == nil || b.NotDone {
			delete(r.Intents, e.Path)
			delete(r.Starts, e.Path)
		}
		if name, ok := strings.CutPrefix(e.Path, r.PlanAt); ok && b.Fail == nil && slices.Contains(r.Plan, name) {
			if r.Reached == nil {
				r.Reached = map[string]bool{}
			}
			r.Reached[name] = true
		}
		t.settled(r, e.Path)
		if b.Verb == VerbCleanup {
			r.Cleaning = true
		}
		if b.Fail != nil {
			r.Errors = append(r.Errors, Note{Seq: e.Seq, Time: e.Time, Path: e.Path, Fail: b.Fail})
		}
	case Attempt:
		delete(r.Intents, e.Path)
		delete(r.Starts, e.Path)
		if b.Timer {
			r.wait(e, Wait{Due: b.Due, Cleaning: b.Cleaning})
		}
		r.Errors = append(r.Errors, Note{Seq: e.Seq, Time: e.Time, Path: e.Path, Fail: b.Fail})
	case Intent:
		if r.Intents == nil {
			r.Intents = map[string]bool{}
		}
		r.Intents[e.Path] = true
		if r.Starts == nil {
			r.Starts = map[string]Start{}
		}
		r.Starts[e.Path] = Start{Limit: b.Due - e.Time}
		t.settled(r, e.Path)
	case Closed:
		t.closeBeside(r, e.Path)
	case Problem:
		r.Errors = append(r.Errors, Note{Seq: e.Seq, Time: e.Time, Path: e.Path, Fail: b.Fail})
	case Asked:
		a := &Ask{ID: e.ID, Run: r, Path: e.Path, Seq: e.Seq, Time: e.Time, Due: b.Due, Question: *b.Ask}
		t.asks.set(a.ID, a)
		r.asks = append(r.asks, a)
		r.wait(e, Wait{Due: b.Due, Ask: e.ID, Cleaning: b.Cleaning})
	case Timer:
		r.wait(e, Wait{Due: b.Due, Cleaning: b.Cleaning})
	case Waiting:
		r.wait(e, Wait{Due: b.Due, Signal: b.Name, Cleaning: b.Cleaning})
		if c := r.Child(b.Name); c != nil {
			c.Joined = false // it is awaited again
		}
	case Spawned:
		if old, _ := r.ChildAt(e.Path); old != nil {
			old.Stale = true
		}
		r.Children = append(r.Children, &Child{ID: b.Child, Path: e.Path, Seq: e.Seq, Flow: b.Flow, Input: b.Value, Budget: b.Budget})
	case Received:
		t.Signals = removeSignal(t.Signals, b.Ref)
		r.joined(e, b)
		delete(r.Waits, e.Path) // of a Join whose child's end another Join received
	case Took:
		for i, in := range t.Inbox {
			if in.N == b.Ref {
				in.Taken = r.N
				t.Inbox = append(t.Inbox[:i:i], t.Inbox[i+1:]...)
				break
			}
		}
	case Answered, Expired:
		// Whichever comes first counts.
		if a := t.Ask(b.Of); a != nil && a.Run == r && a.Open() {
			a.Answer, a.AnswerAt, a.Expired = b.Answer, e.Time, e.Kind == Expired
			delete(r.Waits, a.Path)
			r.Wake = true
		}
	case Fired, Signal:
		t.hear(b.Key, e.Seq)
		r.joined(e, b)
		if e.Path != "" { // "" if nothing waits for the end of a child
			delete(r.Waits, e.Path)
			r.Wake = true
		}
	case Progress:
		if a := t.Ask(b.Of); a != nil && a.Run == r {
			a.Progress = append(a.Progress, Note{Seq: e.Seq, Time: e.Time, Value: b.Value})
		}
	case Planned:
		// A plan inside another is not the plan of the run.
		if at := e.Path[:strings.LastIndex(e.Path, "/")+1]; r.Plan == nil || len(at) <= len(r.PlanAt) {
			r.Plan, r.PlanAt, r.Reached = b.Plan, at, nil
		}
	case Cancel:
		r.Orphan = r.Orphan || b.Name == ParentEnded && !r.Cancelled
		r.Cancelled, r.Wake, r.Held = true, true, false
		if !r.Begun() {
			t.end(r, e, &Body{Status: string(StatusCancelled)})
		}
	case Paused:
		r.PausedAt = e.Time
		if r.Status == StatusSuspended || r.Status == StatusQueued {
			r.Status = StatusPaused
		}
	case Resumed:
		r.PausedAt, r.Wake, r.Held = 0, true, false
		if r.Status == StatusPaused {
			r.Status = StatusSuspended
			if !r.Begun() {
				r.Status = StatusQueued
			}
		}
	case Retried:
		r.Retries++
		if r.Held {
			r.PausedAt, r.Held = 0, false
		}
		if r.Status.Final() {
			t.ended = without(t.ended, r)
			t.insert(r)
		}
		r.Misfits, r.Failing, r.Unknown = nil, nil, nil
		r.Wake, r.Deaths, r.Fail, r.Diff, r.Ended, r.Status = true, 0, nil, "", 0, StatusQueued
	}
}

// TimeOver is the name of the problem of an attempt that exceeded its timeout.
const TimeOver = "timeout"

// VerbCleanup marks the step entries of cleanups.
const VerbCleanup = "cleanup"

// end ends a run, closes its waits, and queues the steering that it did not take.
func (t *Thread) end(r *Run, e Entry, b *Body) {
	t.settled(r, "")
	for _, c := range r.Children {
		c.Stale = c.Stale || !c.Joined || c.Lost // it was cancelled before this entry
	}
	for _, a := range r.asks {
		a.Closed = a.Closed || a.Open()
	}
	r.Waits, r.Failing = nil, nil
	if e.Epoch != 0 {
		t.Worker = ""
	}
	r.Status, r.Ended, r.EndSeq = Status(b.Status), e.Time, e.Seq
	r.Output, r.Ref, r.Fail, r.Unknown = b.Value.placed(placeOf(e.Seq, 0)), b.Ref, b.Fail, b.Unknown
	r.PausedAt, r.SuspendedAt, r.Wake = 0, 0, false
	if r.Status != StatusFailed { // a failed one may be retried
		r.BaseState, r.BaseDeps = nil, nil
	}
	t.open, t.ended = without(t.open, r), append(t.ended, r)
	if t.Active() == nil {
		for _, in := range t.Inbox {
			t.insert(in)
		}
		t.Runs = append(t.Runs, t.Inbox...)
		slices.SortFunc(t.Runs, byNumber)
		t.Inbox = nil
	}
}

func removeSignal(list []Pending, seq uint64) []Pending {
	for i, s := range list {
		if s.Seq == seq {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// DumpsAt returns the deps as the run sees them: those at its start, overlaid with
// its own dumps.
func (r *Run) DumpsAt() map[string]Value {
	deps := maps.Clone(r.BaseDeps)
	if deps == nil {
		deps = map[string]Value{}
	}
	maps.Copy(deps, r.Dumps)
	return deps
}
