package server

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// streamCounts are what a server counts of its event streams.
type streamCounts struct {
	open atomic.Int64  // streams
	sent atomic.Uint64 // events of threads
}

// Sizes and times of a stream.
const (
	streamBuffer = 32 << 10 // is written when it is full, and when there is nothing to add
	idleBuffer   = 4 << 10
	recheckEvery = time.Minute
	stopRetry    = 200 * time.Millisecond // of a server that stops: another one may be there
)

// stream is an answer of events. It is used by one goroutine.
type stream struct {
	s     *Server
	w     http.ResponseWriter
	conn  *http.ResponseController
	buf   []byte
	dirty bool        // something was written and may not be on its way
	quiet *time.Timer // fires when a comment is due
	apart bool        // nothing but data, and comments as blocks of their own, see Call.Stream
}

// admitStream counts a stream, unless there are too many or the server is about
// to stop. Call leave when it is over.
func (s *Server) admitStream(c *Call) (leave func(), err error) {
	if s.stopped() {
		return nil, api.ErrStopping
	}
	done, err := c.load.stream()
	if err != nil {
		return nil, err
	}
	s.events.open.Add(1)
	return func() {
		s.events.open.Add(-1)
		done()
	}, nil
}

// begin writes the head of a stream. It says where the reader stands in a
// header; "" is nowhere. There are no blocks without data in a stream, since
// some readers pass them on as messages: what comes before the first event, and
// comments, are lines of the block that follows.
func (s *Server) begin(w http.ResponseWriter, id api.EventID) (*stream, error) {
	st := s.newStream(w, id)
	st.buf = sse.AppendRetry(st.buf, s.opts.Retry)
	if err := st.flush(); err != nil {
		st.end()
		return nil, err
	}
	return st, nil
}

// newStream sets the headers of a stream.
func (s *Server) newStream(w http.ResponseWriter, id api.EventID) *stream {
	st := &stream{s: s, w: w, conn: http.NewResponseController(w), quiet: time.NewTimer(s.opts.Heartbeat)}
	h := w.Header()
	h.Set("Content-Type", api.TypeEvents)
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	if id != "" {
		h.Set("Last-Event-ID", string(id))
	}
	return st
}

// end gives the connection back: the next request on it is not a stream.
func (st *stream) end() {
	st.quiet.Stop()
	_ = st.conn.SetWriteDeadline(time.Time{})
}

// add adds a block.
func (st *stream) add(block []byte) error {
	if len(st.buf) > 0 && len(st.buf)+len(block) > streamBuffer {
		if err := st.flush(); err != nil {
			return err
		}
	}
	if len(block) > streamBuffer {
		return st.write(block)
	}
	st.buf = append(st.buf, block...)
	return nil
}

// encode adds an event whose data is JSON.
func (st *stream) encode(id api.EventID, kind string, data any) error {
	block, err := sse.Encode(string(id), kind, data)
	if err != nil {
		return err
	}
	return st.add(block)
}

// flush writes what was added.
func (st *stream) flush() error {
	if err := st.write(st.buf); err != nil {
		return err
	}
	st.buf = st.buf[:0]
	if !st.dirty {
		return nil
	}
	if err := st.conn.Flush(); err != nil {
		return err
	}
	st.dirty = false
	st.quiet.Reset(st.s.opts.Heartbeat)
	return nil
}

// idle gives up a large buffer: many readers mostly wait.
func (st *stream) idle() {
	if cap(st.buf) > idleBuffer {
		st.buf = nil
	}
}

// write writes a block in pieces, each of which has to be taken in time.
func (st *stream) write(block []byte) error {
	for len(block) > 0 {
		piece := block[:min(len(block), streamBuffer)]
		// Without deadlines (a recorder in a test has none) a reader can only
		// stall itself.
		_ = st.conn.SetWriteDeadline(time.Now().Add(st.s.opts.Stall))
		if _, err := st.w.Write(piece); err != nil {
			return err
		}
		block, st.dirty = block[len(piece):], true
	}
	return nil
}

// heartbeat shows that the connection lives.
func (st *stream) heartbeat() error { return st.comment(":\n") }

// bye tells the reader to come back soon.
func (st *stream) bye() {
	_ = st.comment(string(sse.AppendRetry(nil, stopRetry)) + ": the server is stopping, connect again\n")
}

// comment sends lines that make no event.
func (st *stream) comment(lines string) error {
	if st.apart {
		lines += "\n"
	}
	if err := st.add([]byte(lines)); err != nil {
		return err
	}
	return st.flush()
}

// wantsStream reports whether a request asks for events rather than for JSON.
// Who takes both alike gets what they name first.
func wantsStream(r *http.Request) bool {
	best, stream := 0.0, false
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil || media != api.TypeEvents && media != api.TypeJSON {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		if q > best {
			best, stream = q, media == api.TypeEvents
		}
	}
	return stream
}
