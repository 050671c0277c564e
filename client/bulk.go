package client

import (
	"cmp"
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// PlanBulk returns what a bulk job would find if it began now.
func (c *Client) PlanBulk(ctx context.Context, q perdure.BulkRequest) (*perdure.BulkPlan, error) {
	return Do(ctx, c, api.BulkPlan, bulkRequest(&q))
}

// StartBulk begins a job that does one thing to all threads that a filter selects:
// see [perdure.Runtime.StartBulk]. A request without a Key is given one, so that it
// can be repeated after a lost connection. By is the token's subject.
func (c *Client) StartBulk(ctx context.Context, q perdure.BulkRequest) (*perdure.Bulk, error) {
	return Do(ctx, c, api.BulkStart, api.StartBulk{Key: cmp.Or(q.Key, newID()), BulkRequest: bulkRequest(&q)})
}

func bulkRequest(q *perdure.BulkRequest) api.BulkRequest {
	return api.BulkRequest{Verb: q.Verb, Filter: q.Filter, All: q.All, Dependents: q.Dependents, Rate: q.Rate, Reason: q.Reason}
}

// Bulk returns a bulk job.
func (c *Client) Bulk(ctx context.Context, id string) (*perdure.Bulk, error) {
	return Do(ctx, c, api.BulkGet, api.OneBulk{Job: id})
}

// Bulks returns the tenant's bulk jobs, newest first.
func (c *Client) Bulks(ctx context.Context) ([]*perdure.Bulk, error) {
	list, err := Do(ctx, c, api.BulksList, api.Nothing{})
	if err != nil {
		return nil, err
	}
	return list.Jobs, nil
}

// StopBulk stops a bulk job.
func (c *Client) StopBulk(ctx context.Context, id string) (*perdure.Bulk, error) {
	return Do(ctx, c, api.BulkStop, api.OneBulk{Job: id})
}

// ResumeBulk continues a bulk job that was stopped.
func (c *Client) ResumeBulk(ctx context.Context, id string) (*perdure.Bulk, error) {
	return Do(ctx, c, api.BulkResume, api.OneBulk{Job: id})
}
