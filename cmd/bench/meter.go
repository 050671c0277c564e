package main

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
)

// A meter stands between clients and a server and counts round trips: how often a
// client sends something to which the server then answers. What is sent before the
// answer comes, as in a pipeline, belongs to the same trip.
type meter struct {
	listener net.Listener
	server   string
	answer   []byte // is in every answer, but not in what the server sends by itself
	trips    atomic.Int64
}

func newMeter(server, answer string) (*meter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &meter{listener: l, server: server, answer: []byte(answer)}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			go m.pass(client)
		}
	}()
	return m, nil
}

func (m *meter) close() { m.listener.Close() }

// before returns a URL in which the server's address is replaced by that of the meter.
func (m *meter) before(where string) string {
	own := m.listener.Addr().String()
	return strings.NewReplacer(m.server, own, url.QueryEscape(m.server), url.QueryEscape(own)).Replace(where)
}

// pass passes one connection on, until either end closes it.
func (m *meter) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", m.server)
	if err != nil {
		return // the client sees a closed connection
	}
	defer server.Close()
	var sent atomic.Bool // by the client, since the server's last answer
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, watched{client, func([]byte) { sent.Store(true) }})
	}()
	_, _ = io.Copy(client, watched{server, func(data []byte) {
		if bytes.Contains(data, m.answer) && sent.Swap(false) {
			m.trips.Add(1)
		}
	}})
}

// watched is a reader that tells what was read.
type watched struct {
	from io.Reader
	read func(data []byte)
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	if n > 0 {
		w.read(p[:n])
	}
	return n, err
}
