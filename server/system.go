package server

import (
	"context"

	"github.com/perdure/perdure/api"
)

func (s *Server) systemRoutes() {
	handle(s, api.FlowsList, s.listFlows)
	handle(s, api.MeGet, s.me)
	handle(s, api.HealthGet, func(context.Context, *call, *api.Nothing) (*api.Health, error) {
		return &api.Health{Status: "ok"}, nil
	})
}

func (s *Server) listFlows(context.Context, *call, *api.Nothing) (*api.FlowList, error) {
	out := &api.FlowList{Flows: []api.FlowInfo{}}
	for _, name := range s.rt.Flows() {
		out.Flows = append(out.Flows, api.FlowInfo{Name: name})
	}
	return out, nil
}

func (s *Server) me(_ context.Context, c *call, _ *api.Nothing) (*api.Me, error) {
	return &api.Me{Tenant: c.who.Tenant, Subject: c.who.Subject, Groups: c.who.Groups, Scopes: c.who.Scopes, Expires: c.who.Expires}, nil
}
