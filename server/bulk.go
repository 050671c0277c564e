package server

import (
	"context"
	"fmt"
	"net/url"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

func (s *Server) bulkRoutes() {
	handle(s, api.BulkPlan, func(ctx context.Context, c *Call, in *api.BulkRequest) (*perdure.BulkPlan, error) {
		return c.Runtime.PlanBulk(ctx, c.bulk(in, ""))
	})
	handle(s, api.BulkStart, func(ctx context.Context, c *Call, in *api.StartBulk) (*perdure.Bulk, error) {
		if err := c.mayBulk(in.Verb); err != nil {
			return nil, err
		}
		job, err := c.Runtime.StartBulk(ctx, c.bulk(&in.BulkRequest, in.Key))
		if err == nil {
			c.header.Set("Location", "/v1/bulk/"+url.PathEscape(job.ID))
		}
		return job, err
	})
	handle(s, api.BulksList, func(ctx context.Context, c *Call, _ *api.Nothing) (*api.BulkList, error) {
		jobs, err := c.Runtime.Bulks(ctx)
		return &api.BulkList{Jobs: some(jobs)}, err
	})
	handle(s, api.BulkGet, func(ctx context.Context, c *Call, in *api.OneBulk) (*perdure.Bulk, error) {
		return c.Runtime.Bulk(ctx, in.Job)
	})
	for _, r := range []struct {
		op api.Op[api.OneBulk, perdure.Bulk]
		do func(*perdure.Runtime, context.Context, string) (*perdure.Bulk, error)
	}{{api.BulkStop, (*perdure.Runtime).StopBulk}, {api.BulkResume, (*perdure.Runtime).ResumeBulk}} {
		handle(s, r.op, func(ctx context.Context, c *Call, in *api.OneBulk) (*perdure.Bulk, error) {
			job, err := c.Runtime.Bulk(ctx, in.Job)
			if err == nil {
				err = c.mayBulk(job.Verb)
			}
			if err != nil {
				return nil, err
			}
			return r.do(c.Runtime, ctx, in.Job)
		})
	}
}

// mayBulk returns an error if the caller may not do to one thread what a bulk job
// does to many.
func (c *Call) mayBulk(v perdure.BulkVerb) error {
	if need := api.BulkScope(v); !c.Who.May(need) {
		return fmt.Errorf("%w: %.40q of threads needs the scope %s", api.ErrScope, v, need)
	}
	return nil
}

func (c *Call) bulk(in *api.BulkRequest, key string) perdure.BulkRequest {
	return perdure.BulkRequest{Verb: in.Verb, Filter: in.Filter, All: in.All, Dependents: in.Dependents, Rate: in.Rate, Key: key, By: c.Who.Subject, Reason: in.Reason}
}
