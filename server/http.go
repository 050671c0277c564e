package server

import (
	"io"
	"net/http"
	"time"
)

// Limits on who is slow to say what they want.
const (
	headerTime  = 10 * time.Second
	idleTime    = 2 * time.Minute
	headerBytes = 32 << 10
	bodyRate    = 8 << 10 // bytes of a body for which a second more is given
)

// HTTPServer returns an http.Server for the API with limits on slow and large
// requests. It speaks HTTP/1.1 and HTTP/2, also without TLS. An answer may take
// as long as it likes, since event streams do; a reader that takes nothing is
// disconnected by Options.Stall. Shutdown tells streams to come back later.
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
	// A stream that is not read is ended by its own deadline. What the
	// connection has to write meanwhile would keep it for ever.
	h.HTTP2 = &http.HTTP2Config{WriteByteTimeout: s.opts.Stall}
	h.RegisterOnShutdown(s.Close)
	return h
}

// patient lets a body take so long as its size needs, and no longer, and an
// answer as long as its reader takes something of it.
func (s *Server) patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &paced{ResponseWriter: rw, conn: http.NewResponseController(rw), stall: s.opts.Stall}
		w.lift()        // of the request before
		defer w.limit() // of what is written when the handler is through
		if r.Body != nil && r.Body != http.NoBody {
			b := &body{ReadCloser: r.Body, conn: http.NewResponseController(w), by: time.Now().Add(s.opts.Body)}
			b.extend()
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// paced is an answer of which each piece has to be taken in time. Without that
// those who ask for much and read nothing would keep it in memory for ever.
type paced struct {
	http.ResponseWriter
	conn  *http.ResponseController
	stall time.Duration
}

// limit sets the time by which what is written now has to be taken, and lift
// lifts it: in HTTP/2 a stream ends when its time does, though nothing is
// written. A test's recorder has no such limits.
func (p *paced) limit() { _ = p.conn.SetWriteDeadline(time.Now().Add(p.stall)) }
func (p *paced) lift()  { _ = p.conn.SetWriteDeadline(time.Time{}) }

// Write writes in pieces.
func (p *paced) Write(data []byte) (n int, err error) {
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
	defer p.lift()
	p.limit()
	_ = p.conn.Flush()
}

// Unwrap is for http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// body is a request's body that has to arrive in time.
type body struct {
	io.ReadCloser
	conn  *http.ResponseController
	by    time.Time // by when it has to be there, but for what its size allows
	bytes int64
}

// extend sets the time by which the next bytes have to be there.
func (b *body) extend() {
	seconds := time.Duration(b.bytes/bodyRate) * time.Second
	_ = b.conn.SetReadDeadline(b.by.Add(seconds)) // a test's recorder has none
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	before := b.bytes / bodyRate
	b.bytes += int64(n)
	switch {
	case err == io.EOF:
		// The connection is read on while the answer is written, to see
		// whether the caller is still there. That may take any time.
		_ = b.conn.SetReadDeadline(time.Time{})
	case b.bytes/bodyRate != before:
		b.extend()
	}
	return n, err
}
