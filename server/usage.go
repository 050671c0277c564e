package server

import (
	"context"

	"github.com/perdure/perdure/api"
	"github.com/prometheus/client_golang/prometheus"
)

func (s *Server) usageRoutes() { handle(s, api.UsageGet, s.getUsage) }

// getUsage returns the counts of the caller's tenant, or of the one user that the
// caller is limited to.
func (s *Server) getUsage(ctx context.Context, c *Call, _ *api.Nothing) (*api.Usage, error) {
	n, err := s.sums.ofCaller(ctx, c)
	if err != nil {
		return nil, err
	}
	u := &api.Usage{Tenant: c.Who.Tenant, User: c.Who.User, Threads: n.threads, Statuses: n.statuses, Runs: n.runs, Bytes: n.bytes, Uploads: n.uploads, Spent: n.spent, Counted: n.at}
	if c.Who.User != "" { // a user does not see what others do
		return u, nil
	}
	if u.Active, err = s.quotas.busyOf(ctx, c.Who.Tenant, 1); err != nil {
		return nil, err
	}
	u.Starts, u.Streams = s.quotas.tally(c.Who.Tenant)
	u.Quota = s.quotas.quotaOf(c.Who.Tenant).bounds()
	return u, nil
}

// writeTenants writes what the tenants use that metrics name. The store is not
// read for it: the counts may be old, and are made anew in the background.
func (q *quotas) writeTenants(e *exposition) {
	tenants := q.named()
	counts := map[string]*account{}
	for _, tenant := range tenants {
		q.count(tenant, func(int64, int64) bool { return false })
		q.mu.Lock()
		a := *q.account(tenant)
		q.mu.Unlock()
		counts[tenant] = &a
	}
	counted := func(name, help string, sample func(tenant string, n *count)) {
		e.family(name, prometheus.GaugeValue, help)
		for _, tenant := range tenants {
			if n := counts[tenant].last; n != nil {
				sample(tenant, n)
			}
		}
	}
	counted("perdure_tenant_threads", "Threads of a tenant.", func(t string, n *count) { e.sample(float64(n.threads), "tenant", t) })
	counted("perdure_tenant_runs", "Runs of a tenant's threads.", func(t string, n *count) { e.sample(float64(n.runs), "tenant", t) })
	counted("perdure_tenant_bytes", "Bytes that a tenant keeps.", func(t string, n *count) { e.sample(float64(n.bytes), "tenant", t) })
	counted("perdure_tenant_spent", "What a tenant's threads have spent by unit.", func(t string, n *count) {
		for _, unit := range []string{"tokens", "cost"} { // flows could name any number of others
			e.sample(float64(n.spent[unit]), "tenant", t, "unit", unit)
		}
	})
	e.family("perdure_tenant_streams", prometheus.GaugeValue, "Event streams of a tenant that are open on this server.")
	for _, tenant := range tenants {
		e.sample(float64(counts[tenant].streams), "tenant", tenant)
	}
	e.family("perdure_quota_refused_total", prometheus.CounterValue, "Requests of a tenant that this server has refused by quota.")
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, tenant := range tenants {
		for _, name := range []string{"threads", "bytes", "runs", "starts", "streams"} {
			e.sample(float64(q.account(tenant).refused[name]), "tenant", tenant, "quota", name)
		}
	}
}
