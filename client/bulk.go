package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// PlanBulk returns what a bulk job would find if it began now.
func (c *Client) PlanBulk(ctx context.Context, q perdure.BulkRequest) (*perdure.BulkPlan, error) {
	in, err := bulkRequest(&q)
	if err != nil {
		return nil, err
	}
	return Do(ctx, c, api.BulkPlan, in)
}

// StartBulk begins a job that does one thing to all threads that a filter selects:
// see [perdure.Runtime.StartBulk]. If the request has no Key, StartBulk adds one, so that
// it can be repeated after a lost connection. By is the token's subject.
func (c *Client) StartBulk(ctx context.Context, q perdure.BulkRequest) (*perdure.Bulk, error) {
	in, err := bulkRequest(&q)
	if err != nil {
		return nil, err
	}
	return Do(ctx, c, api.BulkStart, api.StartBulk{Key: cmp.Or(q.Key, newID()), BulkRequest: in})
}

// bulkRequest returns a request as it is sent. It refuses options that JSON would drop.
func bulkRequest(q *perdure.BulkRequest) (api.BulkRequest, error) {
	switch {
	case q.Filter.After != "" || q.Filter.Limit != 0:
		return api.BulkRequest{}, fmt.Errorf("%w: the filter of a bulk job has neither After nor Limit", perdure.ErrInvalid)
	case q.Filter.AsksOf != nil && len(q.Filter.AsksOf) == 0:
		return api.BulkRequest{}, fmt.Errorf("%w: asks of nobody; name who, or leave it out for anyone", perdure.ErrInvalid)
	}
	return api.BulkRequest{Verb: q.Verb, Filter: q.Filter, All: q.All, Dependents: q.Dependents, Rate: q.Rate, Reason: q.Reason}, nil
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
