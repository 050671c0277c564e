package server

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/prometheus/client_golang/prometheus"
)

func (s *Server) retentionRoutes() {
	handle(s, api.RetentionGet, func(ctx context.Context, c *Call, _ *api.Nothing) (*api.Retention, error) {
		status, err := c.Runtime.Retention(ctx)
		if err != nil {
			return nil, err
		}
		out := &api.Retention{Rules: []api.RetentionRule{}, RetentionStatus: *status}
		for _, r := range status.Rules {
			out.Rules = append(out.Rules, api.NewRetentionRule(r))
		}
		return out, nil
	})
	handle(s, api.RetentionDue, s.listDue)
	handle(s, api.ThreadsSee, func(ctx context.Context, c *Call, in *api.SeeThread) (*api.None, error) {
		return nil, c.Runtime.MarkSeen(ctx, in.Thread, c.note(in.Reason, in.IfMatch))
	})
}

func (s *Server) listDue(ctx context.Context, c *Call, in *api.ListDue) (*api.DuePage, error) {
	limit, err := pageSize(in.Limit)
	if err == nil {
		err = checkCursor(in.After)
	}
	if err != nil {
		return nil, err
	}
	page := &api.DuePage{Threads: []perdure.RetentionItem{}}
	for item, err := range c.Runtime.RetentionDue(ctx, perdure.RetentionOptions{After: in.After, Limit: limit + 1}) {
		if err != nil {
			return nil, err
		}
		if n := len(page.Threads); n == limit {
			page.Next = page.Threads[n-1].Cursor
			break
		}
		page.Threads = append(page.Threads, item)
	}
	return page, nil
}

// writeRetention writes what became of the threads of the default tenant by rules.
func writeRetention(e *exposition, st *perdure.RetentionStatus) {
	if st == nil {
		return
	}
	e.family("perdure_retention_removed_total", prometheus.CounterValue, "Threads of the tenant that were archived, erased, or erased from the archive (expired) by rules.")
	e.sample(float64(st.Total.Archived), "action", "archived")
	e.sample(float64(st.Total.Erased), "action", "erased")
	e.sample(float64(st.Total.Expired), "action", "expired")
	e.family("perdure_retention_skipped", prometheus.GaugeValue, "Threads of the tenant whose time has come and that stay, by reason.")
	for _, reason := range []string{perdure.RetentionPinned, perdure.RetentionUnseen, perdure.RetentionChild, perdure.RetentionDamaged, perdure.RetentionChanged, perdure.RetentionFailed} {
		e.sample(float64(st.Skipped[reason]), "reason", reason)
	}
	if !st.Begun.IsZero() {
		e.gauge("perdure_retention_look_time_seconds", "When a worker last looked for threads to remove, since the epoch.", float64(st.Begun.UnixMilli())/1000)
	}
}
