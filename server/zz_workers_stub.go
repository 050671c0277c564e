package server

import (
	"context"

	"github.com/perdure/perdure"
)

// Workers is to come with the runtime's.
func (c *call) Workers(context.Context) ([]perdure.WorkerInfo, error) { return nil, nil }
