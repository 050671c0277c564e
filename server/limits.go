package server

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/perdure/perdure/api"
)

// Limits bound what is under way at a time. A field that is 0 has its default.
type Limits struct {
	// Streams are event streams, waits for runs, and whatever else is open
	// until something happens.
	Streams int
	// Requests are all others.
	Requests int
	// Bytes are those of answers that are being made or wait to be taken by
	// their readers. Answers up to 32 KiB do not count, and event streams and
	// pages of events hold no more than that of what they have read.
	Bytes int64
}

// or returns the limits with the defaults in place of zeros.
func (l Limits) or(defaults Limits) Limits {
	if l.Streams == 0 {
		l.Streams = defaults.Streams
	}
	if l.Requests == 0 {
		l.Requests = defaults.Requests
	}
	if l.Bytes == 0 {
		l.Bytes = defaults.Bytes
	}
	return l
}

// The defaults: a tenant takes at most half of a server, a token a quarter.
var (
	serverLimits = Limits{Streams: 10_000, Requests: 2000, Bytes: 256 << 20}
	tenantLimits = Limits{Streams: 5000, Requests: 1000, Bytes: 128 << 20}
	tokenLimits  = Limits{Streams: 2500, Requests: 500, Bytes: 64 << 20}
	userLimits   = Limits{Streams: 100, Requests: 50, Bytes: 32 << 20}
)

// bucket is someone for whom things are counted: the server, a tenant, a token by
// its hash, or a user with all tokens and tickets that are limited to the user.
type bucket struct{ kind, name string }

// ledger counts what is under way.
type ledger struct {
	mu   sync.Mutex
	used map[bucket]Limits // those that have something under way
}

// load is what one request takes of the limits. A nil one takes nothing, as in
// tests that have no connection.
type load struct {
	s       *Server
	write   bool // what it does is done before it is answered, so the answer is not refused
	buckets []bucket
	held    Limits
}

// enter counts a request for those who make it. Without any it is one that
// needs no token, of which only the bytes count.
func (l *load) enter(known bool, buckets ...bucket) error {
	if l == nil {
		return nil
	}
	l.buckets = append(buckets, bucket{kind: "server"}) // last: who takes too much is told so
	if !known {
		return nil
	}
	return l.take(Limits{Requests: 1}, false)
}

// hold counts bytes of the answer until the request is over.
func (l *load) hold(bytes int) error {
	if l == nil || bytes <= streamBuffer {
		return nil
	}
	return l.take(Limits{Bytes: int64(bytes)}, l.write)
}

// stream makes the request a stream, until leave is called.
func (l *load) stream() (leave func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	change := Limits{Streams: 1, Requests: -l.held.Requests}
	if err := l.take(change, false); err != nil {
		return nil, err
	}
	return func() { _ = l.take(Limits{Streams: -1, Requests: -change.Requests}, true) }, nil
}

// release gives everything back.
func (l *load) release() {
	_ = l.take(Limits{Streams: -l.held.Streams, Requests: -l.held.Requests, Bytes: -l.held.Bytes}, true)
}

// take adds to what the request holds, unless that is over a limit.
func (l *load) take(n Limits, force bool) error {
	g := &l.s.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	if !force {
		for _, b := range l.buckets {
			if err := l.s.over(b, g.used[b], n); err != nil {
				return err
			}
		}
	}
	if g.used == nil {
		g.used = map[bucket]Limits{}
	}
	for _, b := range l.buckets {
		if now := g.used[b].plus(n); now != (Limits{}) {
			g.used[b] = now
		} else {
			delete(g.used, b)
		}
	}
	l.held = l.held.plus(n)
	return nil
}

func (l Limits) plus(n Limits) Limits {
	return Limits{l.Streams + n.Streams, l.Requests + n.Requests, l.Bytes + n.Bytes}
}

// over returns why someone who uses so much cannot have more. A single answer
// may be larger than the limit if nothing else is under way, or else it could
// never be given.
func (s *Server) over(b bucket, used, more Limits) error {
	most, whose, err := s.opts.Limits, "this server has", api.ErrOverloaded
	switch b.kind {
	case "tenant":
		most, whose, err = s.opts.TenantLimits, "the tenant has", api.ErrTooMany
	case "user":
		most, whose, err = s.opts.UserLimits, "the user has", api.ErrTooMany
	case "token":
		most, whose, err = s.opts.TokenLimits, "the token has", api.ErrTooMany
	}
	switch {
	case more.Streams > 0 && used.Streams+more.Streams > most.Streams:
		return fmt.Errorf("%w: %s %d event streams open; close some, or try again", err, whose, used.Streams)
	case more.Requests > 0 && used.Requests+more.Requests > most.Requests:
		return fmt.Errorf("%w: %s %d requests under way; try again", err, whose, used.Requests)
	case more.Bytes > 0 && used.Bytes > 0 && used.Bytes+more.Bytes > most.Bytes:
		return fmt.Errorf("%w: %s %d bytes of answers that are not taken by their readers; read them, or try again", err, whose, used.Bytes)
	}
	return nil
}

// loadOf returns the load of the request that an answer is for.
func loadOf(w http.ResponseWriter) *load {
	for {
		switch t := w.(type) {
		case *paced:
			return t.load
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}
