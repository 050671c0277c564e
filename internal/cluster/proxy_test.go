//go:build unix

package cluster_test

import (
	"net"
	"sync"
	"testing"
)

// proxy is the network between a node and the server, which can fail.
type proxy struct {
	net.Listener
	to string

	mu    sync.Mutex
	held  chan struct{} // nothing passes until it is closed; nil: everything passes
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		l.Close()
		p.release()
		p.cut()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(c)
		}
	}()
	return p
}

func (p *proxy) port() string {
	_, port, _ := net.SplitHostPort(p.Addr().String())
	return port
}

// carry passes on what both sides say until one of them ends.
func (p *proxy) carry(c net.Conn) {
	p.wait()
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	pass := func(from, to net.Conn) {
		defer from.Close()
		defer to.Close()
		for buf := make([]byte, 32<<10); ; {
			n, err := from.Read(buf)
			p.wait()
			if n > 0 {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	both.Go(func() { pass(c, s) })
	both.Go(func() { pass(s, c) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, s)
	p.mu.Unlock()
}

func (p *proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// hold lets nothing pass, and nobody notice, until release.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		c.Close()
	}
}
