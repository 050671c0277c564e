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

// streamCounts holds the counts of event streams.
type streamCounts struct {
	open atomic.Int64  // streams
	sent atomic.Uint64 // events of threads
}

// Sizes and times of a stream.
const (
	streamBuffer = 32 << 10 // written when it is full and when there is nothing to add
	idleBuffer   = 4 << 10
	recheckEvery = time.Minute
	stopRetry    = 200 * time.Millisecond // of a stopping server: another one may be running
)

// stream is a response of events. It is used by one goroutine.
type stream struct {
	s     *Server
	w     http.ResponseWriter
	conn  *http.ResponseController
	buf   []byte
	dirty bool        // something was written and not yet flushed
	quiet *time.Timer // fires when a comment is due
	apart bool        // only data, and comments as separate blocks, see Call.Stream
}

// admitStream counts a stream, unless there are too many or the server is
// stopping. Call leave when it ends.
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

// begin writes the head of a stream, with the reader's position in a header unless
// it is "". A stream has no blocks without data, which some readers pass on as
// messages: the retry line and comments are part of the block that follows.
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

// end stops the timer of the stream.
func (st *stream) end() { st.quiet.Stop() }

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

// idle releases a large buffer: most readers wait most of the time.
func (st *stream) idle() {
	if cap(st.buf) > idleBuffer {
		st.buf = nil
	}
}

// write writes a block, each piece of which must be read in time: see paced.
func (st *stream) write(block []byte) error {
	if len(block) == 0 {
		return nil
	}
	st.dirty = true
	_, err := st.w.Write(block)
	return err
}

// heartbeat shows that the connection is alive.
func (st *stream) heartbeat() error { return st.comment(":\n") }

// bye tells the reader to reconnect soon.
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

// wantsStream reports whether a request asks for events rather than JSON. If both
// are equally acceptable, the first one wins.
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
