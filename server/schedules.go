package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
)

func (s *Server) scheduleRoutes() {
	threads.Behind(s.rt).All.SetWarden(s.warden)
	handle(s, api.SchedulesPut, s.putSchedule)
	handle(s, api.SchedulesList, func(ctx context.Context, c *Call, _ *api.Nothing) (*api.ScheduleList, error) {
		all, err := c.Runtime.Schedules(ctx)
		list := &api.ScheduleList{Schedules: []*api.Schedule{}}
		for _, sch := range all {
			list.Schedules = append(list.Schedules, api.NewSchedule(sch))
		}
		return list, err
	})
	for _, r := range []struct {
		op api.Op[api.OneSchedule, api.Schedule]
		do func(*perdure.Runtime, context.Context, string) (*perdure.Schedule, error)
	}{{api.SchedulesGet, (*perdure.Runtime).Schedule}, {api.SchedulesPause, (*perdure.Runtime).PauseSchedule}, {api.SchedulesResume, (*perdure.Runtime).ResumeSchedule}} {
		handle(s, r.op, func(ctx context.Context, c *Call, in *api.OneSchedule) (*api.Schedule, error) {
			sch, err := r.do(c.Runtime, ctx, in.Schedule)
			if err != nil {
				return nil, err
			}
			return api.NewSchedule(sch), nil
		})
	}
	handle(s, api.SchedulesNext, func(ctx context.Context, c *Call, in *api.NextOfSchedule) (*api.Firings, error) {
		n := in.Limit
		if n == 0 {
			n = 5
		}
		next, err := c.Runtime.NextFirings(ctx, in.Schedule, n)
		return &api.Firings{Next: next}, err
	})
	handle(s, api.SchedulesDelete, func(ctx context.Context, c *Call, in *api.OneSchedule) (*api.None, error) {
		return &api.None{}, c.Runtime.DeleteSchedule(ctx, in.Schedule)
	})
	handle(s, api.SchedulesTrigger, func(ctx context.Context, c *Call, in *api.TriggerSchedule) (*perdure.Run, error) {
		run, err := c.Runtime.TriggerSchedule(ctx, in.Schedule, in.Key)
		if err == nil {
			c.header.Set("Location", fmt.Sprintf("/v1/threads/%s/runs/%s", url.PathEscape(run.Thread), url.PathEscape(run.ID)))
		}
		return run, err
	})
}

func (s *Server) putSchedule(ctx context.Context, c *Call, in *api.PutSchedule) (*api.Schedule, error) {
	q, err := in.Request()
	if err != nil {
		return nil, err
	}
	old, err := c.Runtime.Schedule(ctx, in.Schedule)
	switch {
	case err == nil && q.User == "":
		q.User = old.User
	case err == nil || errors.Is(err, perdure.ErrNoSchedule):
		q.User = s.owner(c, q.User)
	default:
		return nil, err
	}
	if err := s.checkInput(in.Flow, in.Input); err != nil {
		return nil, err
	}
	q.Input, q.By = given(in.Input), c.Who.Subject
	sch, err := c.Runtime.PutSchedule(ctx, q)
	if err != nil {
		return nil, err
	}
	return api.NewSchedule(sch), nil
}

// warden lets the quotas of a tenant hold for what its schedules start.
func (s *Server) warden(tenant string) (threads.Guard, func(error)) {
	l := &load{s: s, tenant: tenant}
	return l, func(err error) {
		l.refused = err != nil
		l.settle()
	}
}
