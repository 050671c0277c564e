// Package inproc lets an HTTP client talk to a handler in the same process, over
// pipes in place of a network: streams, cancellation and limits are as they are
// everywhere.
package inproc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// Serve serves a handler and returns a client that reaches it under any
// address, and what ends both.
func Serve(h http.Handler) (*http.Client, func()) {
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t := &http.Transport{DialContext: l.dial}
	return &http.Client{Transport: t}, func() {
		t.CloseIdleConnections()
		srv.Close()
		l.Close() // which the server did, unless it has not begun
	}
}

type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, errors.New("inproc: the server is closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "127.0.0.1:0", Net: "pipe"} }
