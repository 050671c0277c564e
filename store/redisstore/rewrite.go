package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// rewrites asks the server to rewrite its append-only file after drops: until then the
// file has the commands that wrote the entries.
type rewrites struct {
	s     *Store
	bell  chan struct{} // holds one: something was dropped
	ended sync.WaitGroup
}

// rewritePace is the time between a drop and the rewrite, which is one for all drops
// meanwhile. Tests change it.
var rewritePace = time.Minute

func newRewrites(s *Store) *rewrites {
	r := &rewrites{s: s, bell: make(chan struct{}, 1)}
	if s.aof {
		r.ended.Go(r.run)
	}
	return r
}

// want says that something was dropped.
func (r *rewrites) want() { ring(r.bell) }

// run asks for rewrites until the store is closed, and then at once for one that is
// due.
func (r *rewrites) run() {
	for {
		select {
		case <-r.bell:
		case <-r.s.life.Done():
			select {
			case <-r.bell:
				r.ask()
			default:
			}
			return
		}
		select {
		case <-time.After(rewritePace):
		case <-r.s.life.Done():
		}
		if redis.HasErrorPrefix(r.ask(), "Background append only file rewriting already") {
			r.want() // that one may have begun before the drop
		}
		if r.s.life.Err() != nil {
			return
		}
	}
}

// ask asks for a rewrite. A server may forbid it, or do it later: it also rewrites the
// file by itself when that has grown.
func (r *rewrites) ask() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.s.timeout)
	defer cancel()
	return r.s.link.do(ctx, func(ctx context.Context, c *redis.Client) error { return c.BgRewriteAOF(ctx).Err() })
}
