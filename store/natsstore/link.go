package natsstore

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// A link ends calls that wait for an answer when the connection is lost: the answer
// cannot come any more.
type link struct {
	mu   sync.Mutex
	up   context.Context // ends when the connection is lost
	lose context.CancelFunc
}

// follow watches a connection until ctx ends.
func (l *link) follow(ctx context.Context, nc *nats.Conn) {
	l.up, l.lose = context.WithCancel(ctx)
	changes := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	go func() {
		defer nc.RemoveStatusListener(changes)
		for {
			select {
			case <-ctx.Done():
				return
			case _, ok := <-changes:
				l.mu.Lock()
				l.lose()
				l.up, l.lose = context.WithCancel(ctx)
				l.mu.Unlock()
				if !ok {
					return
				}
			}
		}
	}()
}

// call returns a context that bounds one request.
func (s *Store) call(ctx context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(ctx, s.timeout)
	s.link.mu.Lock()
	up := s.link.up
	s.link.mu.Unlock()
	if up == nil {
		return call, cancel
	}
	stop := context.AfterFunc(up, cancel)
	return call, func() { stop(); cancel() }
}
