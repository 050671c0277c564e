package server

import (
	"context"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

func (s *Server) threadRoutes() {
	handle(s, api.ThreadsGet, s.getThread)
}

func (s *Server) getThread(ctx context.Context, c *call, in *api.OneThread) (*perdure.Thread, error) {
	t, err := c.Get(ctx, in.Thread)
	if err != nil {
		return nil, err
	}
	c.etag(t.Seq)
	return t, nil
}

// etag tells the sequence that a write can name in If-Match.
func (c *call) etag(seq uint64) { c.header.Set("ETag", strconv.Quote(strconv.FormatUint(seq, 10))) }
