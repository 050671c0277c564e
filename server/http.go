package server

import (
	"container/list"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/threads"
)

// Limits on slow and large requests.
const (
	headerTime  = 10 * time.Second
	idleTime    = 2 * time.Minute
	headerBytes = 32 << 10
	bodyRate    = 8 << 10 // bytes of a body for which it is given another second
	lingerTime  = 500 * time.Millisecond

	// What someone who has not shown a token may send, such as the token.
	strangerBytes = 16 << 10
	strangerTime  = 3 * time.Second
)

// HTTPServer returns an http.Server for the API with limits on connections and
// on slow and large requests. It speaks HTTP/1.1 and HTTP/2, also without TLS. An
// answer may take any time, since event streams do; a reader that does not read
// is disconnected after Options.Stall. Shutdown tells readers of streams to
// reconnect later.
func (s *Server) HTTPServer() *http.Server {
	h := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		Protocols:         new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	// A stream that is not read ends by its own deadline. What the connection
	// itself has to write would otherwise keep it open for ever.
	h.HTTP2 = &http.HTTP2Config{WriteByteTimeout: s.opts.Stall}
	all := &conns{most: s.opts.Connections, idle: list.New(), all: map[net.Conn]*list.Element{}}
	h.ConnState = func(conn net.Conn, state http.ConnState) {
		if surplus := all.note(conn, state); surplus != nil {
			surplus.Close()
		}
	}
	h.RegisterOnShutdown(s.Close)
	return h
}

// conns bounds the connections of a server. If there are too many, the one that
// has been idle the longest makes room for a new one.
type conns struct {
	most int

	mu   sync.Mutex
	idle *list.List                 // of net.Conn, in the order in which they became idle
	all  map[net.Conn]*list.Element // nil: a request is under way
}

// note returns a connection to close, nil if there is room.
func (c *conns) note(conn net.Conn, state http.ConnState) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[conn]; e != nil {
		c.idle.Remove(e)
		c.all[conn] = nil
	}
	switch state {
	case http.StateActive:
		return nil
	case http.StateClosed, http.StateHijacked:
		delete(c.all, conn)
		return nil
	}
	if _, there := c.all[conn]; !there && len(c.all) >= c.most {
		oldest := c.idle.Front()
		if oldest == nil {
			return conn
		}
		surplus = c.idle.Remove(oldest).(net.Conn)
		delete(c.all, surplus)
	}
	c.all[conn] = c.idle.PushBack(conn)
	return surplus
}

// patient lets a body take as long as its size allows, and a response as long as
// its reader keeps reading. A body that was not read when the response begins is
// not waited for: the connection ends with the response.
func (s *Server) patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &paced{ResponseWriter: rw, conn: http.NewResponseController(rw), stall: s.opts.Stall, lasting: r.ProtoMajor == 1,
			load: &load{s: s, ctx: r.Context(), write: r.Method != http.MethodGet && r.Method != http.MethodHead}}
		defer w.load.release()
		_ = w.conn.SetWriteDeadline(time.Time{})                                             // the limit of the previous request
		defer w.limit()                                                                      // for what is written after the handler returns
		r = r.WithContext(threads.WithGuard(threads.WithScale(r.Context(), w.load), w.load)) // a copy: net/http inspects the body of its own request
		if r.Body != nil && r.Body != http.NoBody {
			b := &body{ReadCloser: r.Body, conn: w.conn, by: time.Now().Add(s.opts.Body)}
			b.extend()
			if r.ProtoMajor == 1 {
				w.unread = b
				defer b.linger()
			}
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// paced is a response of which each piece must be read in time. Without that,
// clients that request much and read nothing would keep it in memory for ever.
type paced struct {
	http.ResponseWriter
	conn    *http.ResponseController
	stall   time.Duration
	limited time.Time // when the limit was last set
	lasting bool      // the limit needs no lift
	load    *load
	begun   bool
	unread  *body // the request's body, until it is read or the response begins; nil: none
}

// begin makes the connection end with the response if the body was not read: a
// refused client could hold the connection by sending slowly.
func (p *paced) begin() {
	if p.unread != nil && !p.unread.done {
		p.Header().Set("Connection", "close")
	}
	if p.unread = nil; !p.begun {
		p.begun = true
		p.load.begin()
	}
}

// WriteHeader begins the response.
func (p *paced) WriteHeader(status int) {
	if status >= 200 {
		p.load.refused = status >= 400 && status < 500 && !p.begun
		p.begin()
	}
	p.ResponseWriter.WriteHeader(status)
}

// limit sets the time by which what is written now must be read, and lift removes
// it: in HTTP/2 a stream ends at its deadline even if nothing is written. In HTTP/1
// only a write does, so that a limit that was set a moment ago is as good as a new
// one. A test's recorder has no deadlines.
func (p *paced) limit() {
	now := time.Now()
	if p.lasting && now.Sub(p.limited) < p.stall/16 {
		return
	}
	p.limited = now
	_ = p.conn.SetWriteDeadline(now.Add(p.stall))
}

func (p *paced) lift() {
	if !p.lasting {
		_ = p.conn.SetWriteDeadline(time.Time{})
	}
}

// Write writes in pieces.
func (p *paced) Write(data []byte) (n int, err error) {
	p.begin()
	defer p.lift()
	for {
		p.limit()
		wrote, err := p.ResponseWriter.Write(data[n:min(len(data), n+streamBuffer)])
		if n += wrote; err != nil || n == len(data) {
			return n, err
		}
	}
}

// Flush sends what was written.
func (p *paced) Flush() {
	p.begin()
	defer p.lift()
	p.limit()
	_ = p.conn.Flush()
}

// Unwrap is for http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// body is a request's body that must arrive in time.
type body struct {
	io.ReadCloser
	conn  *http.ResponseController
	by    time.Time // when it must have arrived, not counting what its size allows
	bytes int64
	done  bool // all of it was read
}

// linger gives the rest of a body a moment after the response is written, so that
// a caller that is still sending reads the response rather than an error.
func (b *body) linger() {
	if !b.done {
		_ = b.conn.SetReadDeadline(time.Now().Add(lingerTime))
	}
}

// extend sets the time by which the next bytes must arrive.
func (b *body) extend() {
	seconds := time.Duration(b.bytes/bodyRate) * time.Second
	_ = b.conn.SetReadDeadline(b.by.Add(seconds)) // a test's recorder has none
}

// hurry gives the body less time.
func (b *body) hurry(within time.Duration) {
	if by := time.Now().Add(within); by.Before(b.by) {
		b.by = by
	}
	b.extend()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	before := b.bytes / bodyRate
	b.bytes += int64(n)
	switch {
	case err == io.EOF:
		b.done = true
		// The connection is still read while the response is written, to notice
		// when the caller leaves. That may take any time.
		_ = b.conn.SetReadDeadline(time.Time{})
	case b.bytes/bodyRate != before:
		b.extend()
	}
	return n, err
}
