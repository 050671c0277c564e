// Package schedule starts runs at times that are known before: by cron expressions, or
// every so often. It may import store, internal/duty, bell and threads, and what these
// import.
//
// A schedule is a cell, schedule/TENANT/ID, with what to start and when, the next
// firing, and what came of the last ones. Whoever makes a firing starts its run first,
// with an idempotency key that is derived from the schedule, its life and the planned
// time, and then writes the next firing into the cell, by compare-and-swap. So a firing
// whose maker dies is made by another one, and one that two make is one run.
//
// The worker that made the last firing of a schedule makes the next one on time. Others
// look a lease later whether it has. No sign of life is needed for that.
package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Prefix is the prefix of the keys of all schedules.
const Prefix = "schedule/"

// newsKey is the key of a cell that changes when someone changes a schedule, so that
// workers look at all schedules only then.
const newsKey = "perdure/schedules"

// The policies for firings that were missed.
const (
	CatchSkip = "skip"
	CatchLast = "last"
	CatchAll  = "all"
)

// The policies for firings that come while the last run has not ended.
const (
	Allow  = "allow"
	Skip   = "skip"
	Queue  = "queue"
	Cancel = "cancel"
)

// The outcomes of firings.
const (
	Started = "started"
	Overlap = "overlap" // it was skipped, since the last run had not ended
	Missed  = "missed"  // nobody could make it in time
)

// Schedule is a schedule as its cell holds it.
type Schedule struct {
	ID     string            `json:"id"`
	Tenant string            `json:"tenant,omitempty"`
	User   string            `json:"user,omitempty"`
	Flow   string            `json:"flow"`
	Input  json.RawMessage   `json:"input"`
	Thread string            `json:"thread,omitempty"` // of all firings; "": each has its own
	Title  string            `json:"title,omitempty"`
	Meta   map[string]string `json:"meta,omitempty"`
	Budget map[string]int64  `json:"budget,omitempty"`
	Timing
	Max     int    `json:"max,omitempty"` // firings; 0: any number
	CatchUp string `json:"catch_up"`
	Most    int    `json:"most,omitempty"` // firings that CatchAll makes up for
	Overlap string `json:"overlap"`
	Paused  bool   `json:"paused,omitempty"`
	By      string `json:"by,omitempty"`

	Life    string `json:"life"` // tells apart schedules that had the id one after the other
	Created int64  `json:"created"`
	Updated int64  `json:"updated"` // by someone

	Next   int64    `json:"next,omitempty"`  // the planned time of the next firing; 0: there is none
	Last   int64    `json:"last,omitempty"`  // that of the last one that is over
	Queue  []int64  `json:"queue,omitempty"` // those that wait for the end of the last run
	Fired  int      `json:"fired"`           // runs that were started on time or later, but not by hand
	Recent []Firing `json:"recent,omitempty"`
	LastOf Run      `json:"last_of,omitzero"` // the last run

	Error  string `json:"error,omitempty"` // why the next firing cannot be made
	Since  int64  `json:"since,omitempty"`
	Worker string `json:"worker,omitempty"` // that made the last firing
	Writes uint64 `json:"writes"`           // counts them
}

// Run names a run.
type Run struct {
	Thread string `json:"thread,omitempty"`
	Run    string `json:"run,omitempty"`
}

// Firing is what came of a firing, or of several that were missed.
type Firing struct {
	At      int64  `json:"at"`              // planned
	Until   int64  `json:"until,omitempty"` // of several, the last
	Made    int64  `json:"made"`
	Outcome string `json:"outcome"`
	Manual  bool   `json:"manual,omitempty"`
	Error   string `json:"error,omitempty"`
	Run
}

// The bounds of a schedule's cell.
const (
	MostRecent = 20
	MostQueued = 100
	MostCaught = 1000
	maxInput   = 64 << 10
	mostText   = 500
)

// The bounds of how many schedules there are.
const (
	mostOfTenant = 1000
	mostOfUser   = 100
)

// Key is the key of a tenant's schedule.
func Key(t *threads.Tenant, id string) string { return Prefix + t.Part + "/" + hash(t, id, "") }

// hash returns a keyed hash, so that keys tell nothing of what people call schedules.
func hash(t *threads.Tenant, id, life string) string {
	return threads.Base32.EncodeToString(t.All.Hash("schedule", t.Name, id, life)[:15])
}

// CheckID returns an error if something cannot be the id of a schedule.
func CheckID(id string) error {
	if id == "" || id == "." || id == ".." || len(id) > 100 || strings.ContainsFunc(id, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}) {
		return fmt.Errorf("%w: %.40q cannot be the id of a schedule: use 1 to 100 letters, digits, and - _ . but not . or .. alone", fault.ErrInvalid, id)
	}
	return nil
}

// Check returns what is wrong with a new schedule, except for what a start would refuse.
func (s *Schedule) Check(cron Cron) error {
	if err := CheckID(s.ID); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{CatchSkip, CatchLast, CatchAll}, s.CatchUp):
		return fmt.Errorf("%w: there is no catch-up policy %.40q; there are %s, %s and %s", fault.ErrInvalid, s.CatchUp, CatchSkip, CatchLast, CatchAll)
	case !slices.Contains([]string{Allow, Skip, Queue, Cancel}, s.Overlap):
		return fmt.Errorf("%w: there is no overlap policy %.40q; there are %s, %s, %s and %s", fault.ErrInvalid, s.Overlap, Allow, Skip, Queue, Cancel)
	case s.CatchUp != CatchAll && s.Most != 0:
		return fmt.Errorf("%w: a bound on what is made up for needs the catch-up policy %s", fault.ErrInvalid, CatchAll)
	case s.Most < 0 || s.Most > MostCaught:
		return fmt.Errorf("%w: %s catches up with 1 to %d firings, not %d", fault.ErrInvalid, CatchAll, MostCaught, s.Most)
	case s.Max < 0:
		return fmt.Errorf("%w: a maximum of %d firings; use 1 or more, or 0 for no bound", fault.ErrInvalid, s.Max)
	case len(s.Input) > maxInput:
		return fmt.Errorf("%w: the input of a schedule has %d bytes; the limit is %d: keep large values elsewhere, and give their name", fault.ErrInvalid, len(s.Input), maxInput)
	}
	return s.Timing.Check(cron)
}

// reaches reports whether someone with access to the tenant's threads may know of the
// schedule.
func (s *Schedule) reaches(t *threads.Tenant) bool { return t.Owner == nil || *t.Owner == s.User }

// sameTiming reports whether two schedules fire at the same times.
func (s *Schedule) sameTiming(o *Schedule) bool {
	a, b := s.Timing, o.Timing
	if a.Every == b.Every && a.Every > 0 && a.Start == 0 {
		a.Start = b.Start // it counts from when it was created
	}
	return a == b && s.Max == o.Max
}

// plan sets the next firing, after a time and after all that were.
func (s *Schedule) plan(cron Cron, after int64) {
	s.Next = 0
	if at, ok := s.Timing.Next(cron, max(after, s.Last)); ok && (s.Max == 0 || s.Fired+len(s.Queue) < s.Max) {
		s.Next = at
	}
}

// Put writes a schedule, a new one or in the place of an old one. If the times are the
// same, the next firing stays; otherwise it is the first one from now on.
func Put(ctx context.Context, t *threads.Tenant, cron Cron, s Schedule) (*Schedule, error) {
	if err := t.All.CheckMoved(ctx); err != nil {
		return nil, err
	}
	if _, err := t.All.Store.Get(ctx, Key(t, s.ID)); errors.Is(err, store.ErrNotFound) {
		if err := room(ctx, t, s.User); err != nil {
			return nil, err
		}
	}
	life := threads.NewRunID()
	return change(ctx, t, s.ID, true, func(old *Schedule) (*Schedule, error) {
		now := clock.Micros()
		n := s
		n.Life, n.Created, n.Updated = life, now, now
		if old != nil {
			same := n.sameTiming(old)
			n.Created, n.Last, n.Fired, n.Recent, n.Worker, n.Writes = old.Created, old.Last, old.Fired, old.Recent, old.Worker, old.Writes
			if n.User == old.User && n.Thread == old.Thread {
				n.Life, n.LastOf, n.Queue = old.Life, old.LastOf, old.Queue
				if same && old.Next != 0 && !old.Paused {
					n.Start, n.Next = old.Start, old.Next
					return &n, nil
				}
			} else {
				n.Recent = nil // they may be another user's
			}
			if same {
				n.Start = old.Start
			}
		}
		if n.Every > 0 && n.Start == 0 {
			n.Start = now / 1e6 * 1e6
			n.Last = max(n.Last, n.Start) // the first one is an interval later
		}
		n.plan(cron, now)
		if n.Until != 0 && n.Until <= now && (old == nil || !n.sameTiming(old)) {
			return nil, fmt.Errorf("%w: the schedule would end at %v, which is over", fault.ErrInvalid, time.UnixMicro(n.Until).UTC())
		}
		if _, ok := n.Timing.Next(cron, now); !ok && (old == nil || !n.sameTiming(old)) {
			return nil, fmt.Errorf("%w: the schedule would never fire: it ends before its first firing", fault.ErrInvalid)
		}
		return &n, nil
	})
}

// room refuses another schedule if the user, or the tenant, has too many. Those that are
// written at the same moment may exceed the bound.
func room(ctx context.Context, t *threads.Tenant, user string) error {
	all, n := 0, 0
	for s, err := range each(ctx, t) {
		if err != nil {
			return err
		}
		if all++; s.User == user {
			n++
		}
	}
	switch {
	case user != "" && n >= mostOfUser:
		return &fault.QuotaError{Quota: "schedules for a user", Limit: mostOfUser, Help: "remove some that are no longer needed"}
	case all >= mostOfTenant:
		return &fault.QuotaError{Quota: "schedules", Limit: mostOfTenant, Help: "remove some that are no longer needed"}
	}
	return nil
}

// unknown is the error for a schedule that is not there.
func unknown(id string) error { return fmt.Errorf("%w: %.100q", fault.ErrNoSchedule, id) }

// change replaces a schedule with what f returns, nil to remove it. A missing one is nil
// for f, or an error.
func change(ctx context.Context, t *threads.Tenant, id string, create bool, f func(*Schedule) (*Schedule, error)) (*Schedule, error) {
	var result *Schedule
	_, err := store.Update(ctx, t.All.Store, Key(t, id), func(cell store.Cell) ([]byte, error) {
		var old *Schedule
		if cell.Version != "" {
			var err error
			if old, err = parse(cell.Value); err != nil {
				return nil, err
			}
		}
		switch {
		case old != nil && !old.reaches(t) && create:
			return nil, takenError(id)
		case old != nil && !old.reaches(t), old == nil && !create:
			return nil, unknown(id)
		}
		s, err := f(old)
		if err != nil {
			return nil, err
		}
		s.Writes++
		result = s
		return json.Marshal(s)
	})
	if err != nil {
		return nil, err
	}
	if err := t.All.CheckKept(ctx); err != nil {
		return nil, err
	}
	return result, tell(ctx, t.All.Store)
}

// takenError is the error for the id of another user's schedule.
type takenError string

func (e takenError) Error() string {
	return fmt.Sprintf("there is another user's schedule %q; choose another id", string(e))
}

// Is makes it the error for something that exists.
func (e takenError) Is(target error) bool { return target == fault.ErrExists }

// tell tells workers that a schedule was changed.
func tell(ctx context.Context, s store.Store) error {
	_, err := store.Update(ctx, s, newsKey, func(store.Cell) ([]byte, error) { return []byte(threads.NewRunID()), nil })
	return err
}

// Get returns a schedule.
func Get(ctx context.Context, t *threads.Tenant, id string) (*Schedule, error) {
	if CheckID(id) != nil {
		return nil, unknown(id)
	}
	cell, err := t.All.Store.Get(ctx, Key(t, id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, unknown(id)
	}
	if err != nil {
		return nil, err
	}
	s, err := parse(cell.Value)
	if err == nil && !s.reaches(t) {
		return nil, unknown(id)
	}
	return s, err
}

// List returns the schedules of a tenant, by id.
func List(ctx context.Context, t *threads.Tenant) (all []*Schedule, err error) {
	for s, err := range each(ctx, t) {
		if err != nil {
			return nil, err
		}
		if s.reaches(t) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Schedule) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func each(ctx context.Context, t *threads.Tenant) func(yield func(*Schedule, error) bool) {
	return func(yield func(*Schedule, error) bool) {
		for cell, err := range t.All.Store.List(ctx, Prefix+t.Part+"/", "") {
			if err != nil {
				yield(nil, err)
				return
			}
			if s, err := parse(cell.Value); err == nil && !yield(s, nil) {
				return
			}
		}
	}
}

// SetPaused pauses a schedule, or lets it continue with the first firing from now on.
func SetPaused(ctx context.Context, t *threads.Tenant, cron Cron, id string, paused bool) (*Schedule, error) {
	if CheckID(id) != nil {
		return nil, unknown(id)
	}
	return change(ctx, t, id, false, func(s *Schedule) (*Schedule, error) {
		if s.Paused != paused {
			now := clock.Micros()
			s.Paused, s.Updated, s.Error, s.Since = paused, now, "", 0
			if !paused {
				if err := s.Timing.Check(cron); err != nil {
					return nil, err
				}
				s.plan(cron, now)
			}
		}
		return s, nil
	})
}

// Delete removes a schedule. Its runs stay.
func Delete(ctx context.Context, t *threads.Tenant, id string) error {
	if _, err := Get(ctx, t, id); err != nil {
		return err
	}
	return t.All.Remove(ctx, Key(t, id), "")
}

// NoteManual writes down that a run was started by hand.
func NoteManual(ctx context.Context, t *threads.Tenant, id, life string, r Run) (*Schedule, error) {
	return change(ctx, t, id, false, func(s *Schedule) (*Schedule, error) {
		if s.Life == life && !slices.ContainsFunc(s.Recent, func(f Firing) bool { return f.Run == r }) {
			now := clock.Micros()
			s.note(Firing{At: now, Made: now, Outcome: Started, Manual: true, Run: r})
			s.LastOf = r
		}
		return s, nil
	})
}

// note adds what came of a firing.
func (s *Schedule) note(f Firing) {
	s.Recent = append([]Firing{f}, s.Recent[:min(len(s.Recent), MostRecent-1)]...)
}

// Firings returns the next firings, up to n.
func (s *Schedule) Firings(cron Cron, n int) []int64 {
	all := []int64{}
	if s.Max > 0 {
		n = min(n, s.Max-s.Fired-len(s.Queue))
	}
	for at, ok := s.Next, s.Next != 0; ok && len(all) < n; at, ok = s.Timing.Next(cron, at) {
		all = append(all, at)
	}
	return all
}

// Local returns a time in the zone of the schedule, if JSON can hold it there.
func (s *Schedule) Local(at int64) time.Time {
	t := clock.Stamp(at)
	if local := t.In(s.Location()); local.Year() <= 9999 {
		return local
	}
	return t
}

// Key returns the idempotency key of a firing.
func (s *Schedule) Key(at int64) string {
	return s.ManualKey(time.UnixMicro(at).UTC().Format(time.RFC3339Nano))
}

// ManualKey returns the idempotency key of a start by hand.
func (s *Schedule) ManualKey(key string) string { return "schedule/" + s.ID + "/" + s.Life + "/" + key }

// Metadata returns the metadata of a new thread.
func (s *Schedule) Metadata() map[string]string {
	m := maps.Clone(s.Meta)
	if m == nil {
		m = map[string]string{}
	}
	m[journal.ScheduleMeta] = s.ID
	return m
}

func parse(value []byte) (*Schedule, error) {
	s := new(Schedule)
	if err := json.Unmarshal(value, s); err != nil {
		return nil, fmt.Errorf("%w: a schedule: %w", fault.ErrCorrupt, err)
	}
	// A time that JSON cannot hold would keep all lists of schedules from being sent.
	for _, us := range []*int64{&s.Start, &s.Until, &s.Next} {
		*us = min(max(*us, firstTime), lastTime)
	}
	return s, nil
}

// Forget removes the schedules of the users of a tenant that of selects. It first calls
// each with the id of each.
func Forget(ctx context.Context, t *threads.Tenant, of func(user string) bool, each func(id string) error) error {
	all, err := ofUser(ctx, t, of)
	for _, s := range all {
		if err == nil {
			err = each(hash(t, s.ID, s.Life))
		}
		if err == nil {
			err = t.All.Remove(ctx, Key(t, s.ID), "")
		}
	}
	return err
}

// Count returns how many schedules Forget would remove.
func Count(ctx context.Context, t *threads.Tenant, of func(user string) bool) (int, error) {
	all, err := ofUser(ctx, t, of)
	return len(all), err
}

func ofUser(ctx context.Context, t *threads.Tenant, of func(user string) bool) (mine []*Schedule, err error) {
	for s, err := range each(ctx, t) {
		if err != nil {
			return nil, err
		}
		if s.User != "" && of(s.User) {
			mine = append(mine, s)
		}
	}
	return mine, nil
}
