package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link is the way to the server that has the store. If that is another one than
// before, because a node of a cluster says so or because a replica took over, the
// link moves there.
type link struct {
	options   *redis.Options
	addresses []string // of servers to ask

	mu     sync.Mutex
	now    *redis.Client
	at     string // its address
	closed bool
}

// maxHops limits how often a call follows the store to another server.
const maxHops = 8

func newLink(o *redis.Options, addresses []string) *link {
	l := &link{options: o, addresses: addresses}
	l.now, l.at = l.connect(addresses[0]), addresses[0]
	return l
}

// connect returns a client of a server. It connects when it is used.
func (l *link) connect(address string) *redis.Client {
	o := *l.options
	o.Addr = address
	if o.TLSConfig != nil {
		o.TLSConfig = towards(address, o.TLSConfig)
	}
	return redis.NewClient(&o)
}

func (l *link) client() *redis.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// do makes a call, and repeats it as long as the server did not execute it and another
// may.
func (l *link) do(ctx context.Context, call func(context.Context, *redis.Client) error) error {
	for hops := 0; ; hops++ {
		c := l.client()
		err := call(ctx, c)
		if err == nil || hops == maxHops || ctx.Err() != nil || !l.redirect(c, err) {
			return err
		}
	}
}

// redirect reports whether a call that failed, and was not executed, should be made
// again, on the server to which it moves the link.
func (l *link) redirect(failed *redis.Client, err error) bool {
	address, moved := redis.IsMovedError(err)
	if !moved && !absent(err) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false
	case l.now != failed:
		return true // another call was faster
	case moved:
		if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
			host, _, _ = net.SplitHostPort(l.at)
			address = net.JoinHostPort(host, port) // the node does not know its own name
		}
		if address == l.at {
			return false
		}
	case len(l.addresses) < 2:
		return false
	default:
		i := slices.Index(l.addresses, l.at) // -1 for a node that the URL does not name
		address = l.addresses[(i+1)%len(l.addresses)]
	}
	old := l.now
	l.now, l.at = l.connect(address), address
	time.AfterFunc(l.options.ReadTimeout, func() { old.Close() }) // when its calls are over
	return true
}

// absent reports whether an error says that nothing was executed, and that another
// server may be the right one.
func absent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, ErrReplica) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err)
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	_ = l.now.Close() // only connections, which it does not write to
}
