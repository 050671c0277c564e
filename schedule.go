package perdure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/threads"
)

// Cron evaluates cron expressions; package cron implements it. Times are local clock
// readings, given as if they were UTC: the runtime deals with time zones.
type Cron interface {
	// Check returns an error if an expression is invalid.
	Check(expr string) error
	// Next returns the first time after the given one that fits an expression, and
	// whether there is one.
	Next(expr string, after time.Time) (time.Time, bool)
}

var cronExpressions Cron

// RegisterCron enables cron expressions in schedules. It is called by the init function
// of a package that implements them, such as cron.
func RegisterCron(c Cron) { cronExpressions = c }

// CatchUp says which missed firings of a schedule are made later: those that could not be
// made in time because no worker ran or the run could not be started. A firing is missed
// if it is late by more than a minute, or three leases if that is longer. All later
// firings that are due when firings can be made again then count as missed too.
type CatchUp string

// The policies.
const (
	CatchUpLast CatchUp = "last" // the last one; the default
	CatchUpSkip CatchUp = "skip" // none, except the last one if it is not that late
	CatchUpAll  CatchUp = "all"  // all of them, one after the other; if there are more than CatchUpMax, the latest
)

// Overlap says what happens to a firing while the schedule's last run has not ended. A
// suspended run has not ended.
type Overlap string

// The policies.
const (
	OverlapSkip   Overlap = "skip"   // it is skipped; the default, except with CatchUpAll
	OverlapAllow  Overlap = "allow"  // it starts a run; if all firings share a thread, the run waits its turn there
	OverlapQueue  Overlap = "queue"  // it starts a run when the last one has ended; up to 100 firings wait
	OverlapCancel Overlap = "cancel" // it starts a run, and the last one is cancelled
)

// The outcomes of a firing.
const (
	FiringStarted = "started" // the run was started
	FiringOverlap = "overlap" // it was skipped because the last run had not ended
	FiringMissed  = "missed"  // it was skipped because nothing could make it in time
)

// ScheduleRequest asks for a schedule. It has either Cron or Every.
type ScheduleRequest struct {
	ID       string            // 1 to 100 letters, digits, and - _ . ; "" generates one
	Flow     string            // the name of a flow that this runtime has
	Input    any               // what the flow takes, up to 64 KiB
	Thread   string            // one thread for all firings; "" gives each its own
	Title    string            // of new threads
	User     string            // owner of the schedule and of new threads
	Metadata map[string]string // of new threads; perdure.schedule, the id, is added
	Budget   map[string]int64  // of each run, by unit

	Cron  string        // cron expression of five fields, or one such as @daily: see package cron
	Zone  string        // IANA name of the time zone of Cron, such as Europe/Berlin; "" is UTC
	Every time.Duration // interval, from one second
	Start time.Time     // no firing is earlier, and intervals count from it; zero is now. From 1970 to 9999, as Until
	Until time.Time     // no firing is later; zero is never
	Max   int           // how many runs to start; 0 is any number

	CatchUp    CatchUp // "" is CatchUpLast
	CatchUpMax int     // with CatchUpAll, 1 to 1000; 0 is 100
	Overlap    Overlap // "" is OverlapSkip, or with CatchUpAll OverlapQueue
	Paused     bool    // it makes no firings until ResumeSchedule
	By         string  // who requests it
}

// Schedule is a schedule: see [Runtime.PutSchedule].
type Schedule struct {
	ID       string            `json:"id" jsonschema:"its id"`
	Flow     string            `json:"flow" jsonschema:"what it starts"`
	Input    json.RawMessage   `json:"input,omitempty" jsonschema:"what the flow takes"`
	Thread   string            `json:"thread,omitempty" jsonschema:"the thread of all firings; absent: each has its own"`
	Title    string            `json:"title,omitempty" jsonschema:"title of new threads"`
	User     string            `json:"user,omitempty" jsonschema:"owner of the schedule and of new threads"`
	Metadata map[string]string `json:"metadata,omitempty" jsonschema:"metadata of new threads"`
	Budget   map[string]int64  `json:"budget,omitempty" jsonschema:"budget of each run, by unit"`

	Cron  string        `json:"cron,omitempty" jsonschema:"cron expression"`
	Zone  string        `json:"zone,omitempty" jsonschema:"time zone of the cron expression; absent: UTC"`
	Every time.Duration `json:"-"`
	Start time.Time     `json:"start,omitzero" jsonschema:"no firing is earlier, and intervals count from it"`
	Until time.Time     `json:"until,omitzero" jsonschema:"no firing is later"`
	Max   int           `json:"max,omitempty" jsonschema:"how many runs to start; absent: any number"`

	CatchUp    CatchUp `json:"catch_up" jsonschema:"which missed firings are made later: skip, last or all"`
	CatchUpMax int     `json:"catch_up_max,omitempty" jsonschema:"with all: how many missed firings are made at most"`
	Overlap    Overlap `json:"overlap" jsonschema:"what happens to a firing while the last run has not ended: allow, skip, queue or cancel"`
	Paused     bool    `json:"paused,omitempty" jsonschema:"it makes no firings"`
	By         string  `json:"by,omitempty" jsonschema:"who requested it"`

	Created time.Time   `json:"created" jsonschema:"when it was created"`
	Updated time.Time   `json:"updated" jsonschema:"when someone last changed it"`
	Next    []time.Time `json:"next" jsonschema:"the next five firings, in its time zone; none: it has ended"`
	Queued  []time.Time `json:"queued,omitempty" jsonschema:"firings that wait for the last run to end"`
	Fired   int         `json:"fired" jsonschema:"how many runs it has started, not counting manual ones"`
	Recent  []Firing    `json:"recent,omitempty" jsonschema:"outcomes of the last 20 firings, newest first"`
	Error   string      `json:"error,omitempty" jsonschema:"why the next firing, which is due, cannot be made"`
	Since   time.Time   `json:"since,omitzero" jsonschema:"since when the next firing cannot be made"`
}

// Firing is the outcome of a firing of a schedule.
type Firing struct {
	At      time.Time `json:"at" jsonschema:"when it was planned"`
	Until   time.Time `json:"until,omitzero" jsonschema:"the last one, if this stands for several missed firings"`
	Made    time.Time `json:"made" jsonschema:"when this outcome was recorded"`
	Outcome string    `json:"outcome" jsonschema:"started; overlap: skipped because the last run had not ended; missed: skipped because nothing could make it in time"`
	Manual  bool      `json:"manual,omitempty" jsonschema:"it was triggered by hand"`
	Thread  string    `json:"thread,omitempty" jsonschema:"thread of the run"`
	Run     string    `json:"run,omitempty" jsonschema:"id of the run"`
	Error   string    `json:"error,omitempty" jsonschema:"why it could not be made"`
}

// shownNext is how many firings a schedule shows, and maxNext how many NextFirings.
const shownNext, maxNext = 5, 1000

// PutSchedule creates a schedule, or replaces the one with the same id. Workers start its
// runs: each firing once, however many workers there are and whenever they die. A firing
// that cannot be made is tried again until it counts as missed, see [CatchUp], and the
// schedule's Error says why. It does not hold up other schedules.
//
// A cron expression follows the local time of its time zone. When clocks go forward, a
// firing in the skipped hour is made once, right after it. When they go back, a firing in
// the repeated hour is made the first time only.
//
// If the times are those of the replaced schedule, its next firing stays. Otherwise the
// first firing is after now, and firings that are due but have not been made are dropped.
// A tenant may have 1000 schedules, and a user 100; beyond that PutSchedule returns
// ErrQuota. A schedule that would never fire is ErrInvalid, unless its times are those of
// the one that it replaces.
func (r *Runtime) PutSchedule(ctx context.Context, q ScheduleRequest) (*Schedule, error) {
	owner, err := r.tenant.NewOwner(q.User)
	if err != nil {
		return nil, err
	}
	in, err := r.checkStart(StartRequest{Flow: q.Flow, Input: q.Input, Thread: q.Thread, Title: q.Title, User: owner, Metadata: q.Metadata, Budget: q.Budget, By: q.By})
	if err != nil {
		return nil, err
	}
	if err := threads.CheckNewUser(owner); err != nil {
		return nil, err
	}
	if err := fault.CheckMetadata(q.Metadata); err != nil {
		return nil, err
	}
	for _, at := range []time.Time{q.Start, q.Until} {
		if !at.IsZero() && (at.Unix() <= 0 || at.UTC().Year() > 9999) {
			return nil, fmt.Errorf("%w: a schedule starts and ends after 1970-01-01 and before the year 10000, not at %v", fault.ErrInvalid, at.UTC())
		}
	}
	if q.Thread != "" {
		if err := r.tenant.CheckNewID(ctx, q.Thread); err != nil {
			return nil, err
		}
		o, err := r.core.threads.Tenant(r.tenant.Name).Open(ctx, q.Thread)
		if err == nil && owner != "" && o.Thread.User != owner {
			err = fmt.Errorf("%w: %q is not a thread of user %q", fault.ErrExists, q.Thread, owner)
		}
		if err != nil && !threads.IsAway(err) {
			return nil, err
		}
	}
	s := schedule.Schedule{ID: cmp.Or(q.ID, threads.NewRunID()), Tenant: r.tenant.Name, User: owner, Flow: q.Flow, Input: in, Thread: q.Thread, Title: q.Title,
		Meta: q.Metadata, Budget: q.Budget, Max: q.Max, CatchUp: string(cmp.Or(q.CatchUp, CatchUpLast)), Most: q.CatchUpMax,
		Overlap: string(cmp.Or(q.Overlap, OverlapSkip)), Paused: q.Paused, By: q.By,
		Timing: schedule.Timing{Cron: q.Cron, Zone: q.Zone, Every: q.Every.Microseconds(), Start: micros(q.Start), Until: micros(q.Until)}}
	if q.Every != 0 && q.Every%time.Microsecond != 0 {
		return nil, fmt.Errorf("%w: an interval of %v; use whole microseconds", fault.ErrInvalid, q.Every)
	}
	if q.CatchUp == CatchUpAll {
		s.Most, s.Overlap = cmp.Or(q.CatchUpMax, 100), string(cmp.Or(q.Overlap, OverlapQueue))
	}
	if err := errors.Join(s.Check(cronExpressions), fault.CheckMetadataSize(s.Metadata())); err != nil {
		return nil, err
	}
	kept, err := schedule.Put(ctx, r.tenant, cronExpressions, s)
	switch {
	case errors.Is(err, fault.ErrInvalid) || errors.Is(err, fault.ErrExists):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("perdure: writing schedule %s: %w", s.ID, err)
	}
	return scheduleInfo(kept), nil
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Schedule returns a schedule. An unknown one is ErrNoSchedule.
func (r *Runtime) Schedule(ctx context.Context, id string) (*Schedule, error) {
	s, err := schedule.Get(ctx, r.tenant, id)
	if err != nil {
		return nil, err
	}
	return scheduleInfo(s), nil
}

// Schedules returns the tenant's schedules, ordered by id.
func (r *Runtime) Schedules(ctx context.Context) ([]*Schedule, error) {
	list, err := schedule.List(ctx, r.tenant)
	if err != nil {
		return nil, err
	}
	all := make([]*Schedule, len(list))
	for i, s := range list {
		all[i] = scheduleInfo(s)
	}
	return all, nil
}

// NextFirings returns the next n firings of a schedule, at most 1000, in its time zone.
func (r *Runtime) NextFirings(ctx context.Context, id string, n int) ([]time.Time, error) {
	if n < 0 || n > maxNext {
		return nil, fmt.Errorf("%w: %d firings; use 0 to %d", fault.ErrInvalid, n, maxNext)
	}
	s, err := schedule.Get(ctx, r.tenant, id)
	if err != nil {
		return nil, err
	}
	return stamps(s, s.Firings(cronExpressions, n)), nil
}

// PauseSchedule stops a schedule from making firings, including those in its queue, until
// ResumeSchedule.
func (r *Runtime) PauseSchedule(ctx context.Context, id string) (*Schedule, error) {
	return r.setPaused(ctx, id, true)
}

// ResumeSchedule makes a paused schedule continue with its first firing from now on.
// Firings that fell into the pause do not count as missed.
func (r *Runtime) ResumeSchedule(ctx context.Context, id string) (*Schedule, error) {
	return r.setPaused(ctx, id, false)
}

func (r *Runtime) setPaused(ctx context.Context, id string, paused bool) (*Schedule, error) {
	s, err := schedule.SetPaused(ctx, r.tenant, cronExpressions, id, paused)
	if err != nil {
		return nil, err
	}
	return scheduleInfo(s), nil
}

// DeleteSchedule removes a schedule. Its threads and runs stay. A schedule that is put
// later under the same id is a new one.
func (r *Runtime) DeleteSchedule(ctx context.Context, id string) error {
	return schedule.Delete(ctx, r.tenant, id)
}

// TriggerSchedule starts a run of a schedule now, regardless of its times and policies, even
// if it is paused. Calls with the same key, unless it is "", return the same run.
func (r *Runtime) TriggerSchedule(ctx context.Context, id, key string) (*Run, error) {
	if err := fault.CheckText("the key", key, 200); err != nil {
		return nil, err
	}
	s, err := schedule.Get(ctx, r.tenant, id)
	if err != nil {
		return nil, err
	}
	q := startOf(s)
	q.Key = s.ManualKey("by hand/" + cmp.Or(key, threads.NewRunID()))
	run, err := r.core.ownerOf(s).start(ctx, q)
	if err != nil {
		return nil, err
	}
	_, err = schedule.NoteManual(ctx, r.tenant, id, s.Life, schedule.Run{Thread: run.Thread, Run: run.ID})
	if errors.Is(err, fault.ErrNoSchedule) { // it was removed meanwhile
		err = nil
	}
	return run, err
}

// startOf returns the start of a schedule's run, without a key.
func startOf(s *schedule.Schedule) StartRequest {
	return StartRequest{Flow: s.Flow, Input: s.Input, Thread: s.Thread, Title: s.Title, User: s.User, Metadata: s.Metadata(), Budget: s.Budget, By: "schedule:" + s.ID}
}

// ownerOf returns a runtime that reaches what the schedule's owner does.
func (c *core) ownerOf(s *schedule.Schedule) *Runtime {
	t := c.threads.Tenant(s.Tenant)
	if s.User != "" {
		t.Owner = &s.User
	}
	return c.runtime(t)
}

// starter starts the runs of schedules.
type starter struct{ core *core }

var _ schedule.Starter = starter{}

// Has reports whether the runtime has a flow.
func (st starter) Has(flow string) bool {
	_, ok := st.core.flows[flow]
	return ok
}

// Start starts the run of a firing.
func (st starter) Start(ctx context.Context, s *schedule.Schedule, at int64) (schedule.Run, error) {
	q := startOf(s)
	q.Key = s.Key(at)
	ctx, settle := st.core.threads.Guarded(ctx, s.Tenant)
	run, err := st.core.ownerOf(s).start(ctx, q)
	settle(err)
	if err != nil {
		return schedule.Run{}, err
	}
	return schedule.Run{Thread: run.Thread, Run: run.ID}, nil
}

// Find returns the run of a firing, if it was started.
func (st starter) Find(ctx context.Context, s *schedule.Schedule, at int64) (schedule.Run, error) {
	thread, run, err := st.core.ownerOf(s).life.FindStarted(ctx, s.Thread, s.Key(at))
	if threads.IsAway(err) {
		err = nil
	}
	return schedule.Run{Thread: thread, Run: run}, err
}

// Ended reports whether a run has ended, or is gone.
func (st starter) Ended(ctx context.Context, s *schedule.Schedule, r schedule.Run) (bool, error) {
	o, err := st.core.ownerOf(s).tenant.Open(ctx, r.Thread)
	if threads.IsAway(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	run := o.Thread.RunByID(r.Run)
	return run == nil || run.Status.Final(), nil
}

// Await waits until a run has ended.
func (st starter) Await(ctx context.Context, s *schedule.Schedule, r schedule.Run) error {
	_, _, err := st.core.staff.WaitEnd(ctx, st.core.ownerOf(s).tenant, r.Thread, r.Run)
	return err
}

// Cancel cancels a run that has not ended.
func (st starter) Cancel(ctx context.Context, s *schedule.Schedule, r schedule.Run) error {
	err := st.core.ownerOf(s).life.Cancel(ctx, r.Thread, r.Run, lifecycle.Note{By: "schedule:" + s.ID, Reason: "the schedule fires again, or was removed"})
	if errors.Is(err, fault.ErrNothingToDo) || errors.Is(err, fault.ErrRunNotFound) || threads.IsAway(err) {
		return nil
	}
	return err
}

// WorkSchedules makes the firings of the schedules of all tenants until the context ends.
// It does nothing else: it executes no runs. [Runtime.Work] does both.
func (r *Runtime) WorkSchedules(ctx context.Context) {
	schedule.Work(ctx, r.core.threads, r.core.opts.Lease, cronExpressions, starter{r.core})
}

func stamps(s *schedule.Schedule, all []int64) []time.Time {
	times := make([]time.Time, len(all))
	for i, us := range all {
		times[i] = s.Local(us)
	}
	return times
}

func scheduleInfo(s *schedule.Schedule) *Schedule {
	info := &Schedule{ID: s.ID, Flow: s.Flow, Input: s.Input, Thread: s.Thread, Title: s.Title, User: s.User, Metadata: s.Meta, Budget: s.Budget,
		Cron: s.Cron, Zone: s.Zone, Every: time.Duration(s.Every) * time.Microsecond, Start: clock.Stamp(s.Start), Until: clock.Stamp(s.Until), Max: s.Max,
		CatchUp: CatchUp(s.CatchUp), CatchUpMax: s.Most, Overlap: Overlap(s.Overlap), Paused: s.Paused, By: s.By,
		Created: clock.Stamp(s.Created), Updated: clock.Stamp(s.Updated), Next: stamps(s, s.Firings(cronExpressions, shownNext)),
		Fired: s.Fired, Error: s.Error, Since: clock.Stamp(s.Since)}
	if len(s.Queue) > 0 {
		info.Queued = stamps(s, s.Queue)
	}
	for _, f := range s.Recent {
		info.Recent = append(info.Recent, Firing{At: clock.Stamp(f.At), Until: clock.Stamp(f.Until), Made: clock.Stamp(f.Made), Outcome: f.Outcome,
			Manual: f.Manual, Thread: f.Thread, Run: f.Run.Run, Error: f.Error})
	}
	return info
}
