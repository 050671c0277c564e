package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/perdure/perdure"
)

// PutSchedule creates or replaces a schedule. It has either cron or every.
type PutSchedule struct {
	Schedule   string            `path:"schedule" json:"-" jsonschema:"id of the schedule: letters, digits, and - _ ."`
	Flow       string            `json:"flow" jsonschema:"name of the flow to start"`
	Input      json.RawMessage   `json:"input,omitempty" jsonschema:"what the flow takes, up to 64 KiB"`
	Cron       string            `json:"cron,omitempty" jsonschema:"cron expression: minute, hour, day of the month, month, day of the week; or one such as @daily"`
	Zone       string            `json:"zone,omitempty" jsonschema:"time zone of the cron expression, such as Europe/Berlin; UTC by default"`
	Every      string            `json:"every,omitempty" jsonschema:"interval, such as 15m, 12h or 7d"`
	Start      time.Time         `json:"start,omitzero" jsonschema:"no firing is earlier, and intervals count from it; now by default"`
	Until      time.Time         `json:"until,omitzero" jsonschema:"no firing is later"`
	Max        int               `json:"max,omitempty" jsonschema:"how many runs to start; any number by default"`
	Thread     string            `json:"thread,omitempty" jsonschema:"one thread for all firings; by default each has its own"`
	Title      string            `json:"title,omitempty" jsonschema:"title of new threads"`
	User       string            `json:"user,omitempty" jsonschema:"who owns the schedule and new threads; by default its current owner or, for a new schedule, the token's subject"`
	Metadata   map[string]string `json:"metadata,omitempty" jsonschema:"metadata of new threads"`
	Budget     map[string]int64  `json:"budget,omitempty" jsonschema:"what each run may spend, by unit"`
	CatchUp    perdure.CatchUp   `json:"catch_up,omitempty" jsonschema:"which missed firings to make later: last (default), skip or all"`
	CatchUpMax int               `json:"catch_up_max,omitempty" jsonschema:"how many, with all; 100 by default"`
	Overlap    perdure.Overlap   `json:"overlap,omitempty" jsonschema:"what to do with a firing while the last run has not ended: skip (default), allow, queue (default with all) or cancel"`
	Paused     bool              `json:"paused,omitempty" jsonschema:"make no firings until it is resumed"`
}

// Request returns the request.
func (p *PutSchedule) Request() (q perdure.ScheduleRequest, err error) {
	q = perdure.ScheduleRequest{ID: p.Schedule, Flow: p.Flow, Cron: p.Cron, Zone: p.Zone, Start: p.Start, Until: p.Until, Max: p.Max, Thread: p.Thread, Title: p.Title,
		User: p.User, Metadata: p.Metadata, Budget: p.Budget, CatchUp: p.CatchUp, CatchUpMax: p.CatchUpMax, Overlap: p.Overlap, Paused: p.Paused}
	if p.Every != "" {
		if q.Every, err = ParseAge(p.Every); err != nil {
			return q, fmt.Errorf("%w: every: %w", perdure.ErrInvalid, err)
		}
	}
	return q, nil
}

// Schedule is a schedule.
type Schedule struct {
	Every string `json:"every,omitempty" jsonschema:"interval, such as 15m, 12h or 7d"`
	perdure.Schedule
}

// NewSchedule returns a schedule in the form of the API.
func NewSchedule(s *perdure.Schedule) *Schedule {
	out := &Schedule{Schedule: *s}
	if s.Every > 0 {
		out.Every = FormatAge(s.Every)
	}
	return out
}

// Value returns the schedule.
func (s *Schedule) Value() (*perdure.Schedule, error) {
	v := s.Schedule
	if s.Every != "" {
		var err error
		if v.Every, err = ParseAge(s.Every); err != nil {
			return nil, fmt.Errorf("every: %w", err)
		}
	}
	return &v, nil
}

// ScheduleList holds the schedules of a tenant.
type ScheduleList struct {
	Schedules []*Schedule `json:"schedules" jsonschema:"the schedules, by id"`
}

// OneSchedule names a schedule.
type OneSchedule struct {
	Schedule string `path:"schedule" json:"-" jsonschema:"id of the schedule"`
}

// NextOfSchedule asks for the next firings of a schedule.
type NextOfSchedule struct {
	OneSchedule
	Limit int `query:"limit" json:"-" jsonschema:"how many to return, up to 1000; 5 by default"`
}

// Firings are times at which a schedule fires.
type Firings struct {
	Next []time.Time `json:"next" jsonschema:"the times, in order, in the time zone of the schedule"`
}

// TriggerSchedule starts a run of a schedule.
type TriggerSchedule struct {
	OneSchedule
	Key string `header:"Idempotency-Key" json:"-" jsonschema:"the same key gives the same run"`
}

// Operations on schedules.
var (
	SchedulesPut = define[PutSchedule, Schedule]("schedules.put", "PUT /v1/schedules/{schedule}", ScopeRun,
		"start a flow at given times: create or replace a schedule",
		doc("Each firing starts one run, however many workers there are and whenever they die. When clocks go forward, a firing in the skipped hour is made right after it; when they go back, a firing in the repeated hour is made the first time only. If the times stay the same, so does the next firing; otherwise it is the first one after now. A tenant may have 1000 schedules, and a user 100."))
	SchedulesList = define[Nothing, ScheduleList]("schedules.list", "GET /v1/schedules", ScopeRead,
		"list schedules", doc("It returns all of them, by id."))
	SchedulesGet = define[OneSchedule, Schedule]("schedules.get", "GET /v1/schedules/{schedule}", ScopeRead,
		"get a schedule, its next firings, and the outcome of the last ones")
	SchedulesNext = define[NextOfSchedule, Firings]("schedules.next", "GET /v1/schedules/{schedule}/next", ScopeRead,
		"list the next firings of a schedule")
	SchedulesPause = define[OneSchedule, Schedule]("schedules.pause", "POST /v1/schedules/{schedule}/pause", ScopeRun,
		"pause a schedule until it is resumed")
	SchedulesResume = define[OneSchedule, Schedule]("schedules.resume", "POST /v1/schedules/{schedule}/resume", ScopeRun,
		"resume a paused schedule", doc("It continues with the first firing from now on. Firings that fell into the pause do not count as missed."))
	SchedulesDelete = define[OneSchedule, None]("schedules.delete", "DELETE /v1/schedules/{schedule}", ScopeRun,
		"remove a schedule", doc("Its threads and runs stay."))
	SchedulesTrigger = define[TriggerSchedule, perdure.Run]("schedules.trigger", "POST /v1/schedules/{schedule}/trigger", ScopeRun,
		"start a run of a schedule now", status(http.StatusAccepted), doc("The run starts regardless of the schedule's times and policies, even if the schedule is paused."))
)
