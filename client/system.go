package client

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// Flows returns the names of the flows that the server can start, in order.
func (c *Client) Flows(ctx context.Context) ([]string, error) {
	list, err := Do(ctx, c, api.FlowsList, api.Nothing{})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list.Flows))
	for i, f := range list.Flows {
		names[i] = f.Name
	}
	return names, nil
}

// Workers returns the workers that are alive.
func (c *Client) Workers(ctx context.Context) ([]perdure.WorkerInfo, error) {
	list, err := Do(ctx, c, api.WorkersList, api.Nothing{})
	if err != nil {
		return nil, err
	}
	return list.Workers, nil
}
