package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// PutSchedule creates or replaces a schedule: see [perdure.Runtime.PutSchedule]. If the
// request has no ID, PutSchedule adds one. By is the token's subject.
func (c *Client) PutSchedule(ctx context.Context, q perdure.ScheduleRequest) (*perdure.Schedule, error) {
	in := api.PutSchedule{Schedule: cmp.Or(q.ID, newID()), Flow: q.Flow, Cron: q.Cron, Zone: q.Zone, Start: q.Start, Until: q.Until, Max: q.Max, Thread: q.Thread, Title: q.Title,
		User: q.User, Metadata: q.Metadata, Budget: q.Budget, CatchUp: q.CatchUp, CatchUpMax: q.CatchUpMax, Overlap: q.Overlap, Paused: q.Paused}
	if q.Every != 0 {
		in.Every = q.Every.String()
	}
	if q.Input != nil {
		var err error
		if in.Input, err = json.Marshal(q.Input); err != nil {
			return nil, fmt.Errorf("%w: the input of flow %s: %w", perdure.ErrNotJSON, q.Flow, err)
		}
	}
	return scheduleOf(Do(ctx, c, api.SchedulesPut, in))
}

func scheduleOf(s *api.Schedule, err error) (*perdure.Schedule, error) {
	if err != nil {
		return nil, err
	}
	v, err := s.Value()
	if err != nil {
		return nil, fmt.Errorf("a schedule of the server: %w", err)
	}
	return v, nil
}

// Schedule returns a schedule.
func (c *Client) Schedule(ctx context.Context, id string) (*perdure.Schedule, error) {
	return scheduleOf(Do(ctx, c, api.SchedulesGet, api.OneSchedule{Schedule: id}))
}

// Schedules returns the tenant's schedules, ordered by id.
func (c *Client) Schedules(ctx context.Context) ([]*perdure.Schedule, error) {
	list, err := Do(ctx, c, api.SchedulesList, api.Nothing{})
	if err != nil {
		return nil, err
	}
	all := make([]*perdure.Schedule, len(list.Schedules))
	for i, s := range list.Schedules {
		if all[i], err = scheduleOf(s, nil); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// NextFirings returns the next n firings of a schedule, at most 1000, in its time zone.
func (c *Client) NextFirings(ctx context.Context, id string, n int) ([]time.Time, error) {
	f, err := Do(ctx, c, api.SchedulesNext, api.NextOfSchedule{OneSchedule: api.OneSchedule{Schedule: id}, Limit: n})
	if err != nil {
		return nil, err
	}
	return f.Next[:min(len(f.Next), max(n, 0))], nil
}

// PauseSchedule stops a schedule from making firings.
func (c *Client) PauseSchedule(ctx context.Context, id string) (*perdure.Schedule, error) {
	return scheduleOf(Do(ctx, c, api.SchedulesPause, api.OneSchedule{Schedule: id}))
}

// ResumeSchedule makes a paused schedule continue with its first firing from now on.
func (c *Client) ResumeSchedule(ctx context.Context, id string) (*perdure.Schedule, error) {
	return scheduleOf(Do(ctx, c, api.SchedulesResume, api.OneSchedule{Schedule: id}))
}

// DeleteSchedule removes a schedule. Its threads and runs stay.
func (c *Client) DeleteSchedule(ctx context.Context, id string) error {
	_, err := Do(ctx, c, api.SchedulesDelete, api.OneSchedule{Schedule: id})
	return err
}

// TriggerSchedule starts a run of a schedule now: see [perdure.Runtime.TriggerSchedule].
// If key is "", TriggerSchedule makes one, so that it can be repeated after a lost
// connection.
func (c *Client) TriggerSchedule(ctx context.Context, id, key string) (*perdure.Run, error) {
	return Do(ctx, c, api.SchedulesTrigger, api.TriggerSchedule{OneSchedule: api.OneSchedule{Schedule: id}, Key: cmp.Or(key, newID())})
}
