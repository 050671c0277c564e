// Package sse reads and writes event streams (text/event-stream, as the HTML
// standard defines them). It imports only the standard library.
package sse

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"strconv"
	"time"
)

// ErrTooLong is the error of an event or line over a reader's limit.
var ErrTooLong = errors.New("an event is too large")

// Event is an event of a stream.
type Event struct {
	ID   string // "" if the event has none of its own
	Kind string // "message" if the stream does not name one
	Data []byte
}

// Reader reads an event stream.
type Reader struct {
	// Alive is called for each comment, which is how a silent stream shows that
	// it is still there. It may be nil.
	Alive func()
	// Retry is how long the stream last asked readers to wait before they
	// connect again; 0 if it did not.
	Retry time.Duration

	r     *bufio.Reader
	limit int
	begun bool
	cr    bool   // the line before ended with CR, so an LF belongs to it
	line  []byte // the current line, if it spans several reads
	data  []byte // of the current event
}

// NewReader returns a reader of a stream. A line or an event's data over limit
// bytes is ErrTooLong.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 8<<10), limit: limit}
}

// Next returns the next event that has data. The data is valid until the next
// call. If the stream ends in the middle of an event, that event is dropped.
func (p *Reader) Next() (Event, error) {
	var m Event
	var hasData bool
	p.data = reuse(p.data)
	for {
		line, err := p.Line()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if hasData {
				m.Kind = cmp.Or(m.Kind, "message")
				m.Data = p.data[:len(p.data)-1] // without the last line break
				return m, nil
			}
			m = Event{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "":
			if p.Alive != nil {
				p.Alive()
			}
		case "event":
			m.Kind = string(value)
		case "data":
			if len(p.data)+len(value) > p.limit {
				return Event{}, ErrTooLong
			}
			p.data = append(append(p.data, value...), '\n')
			hasData = true
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				m.ID = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				p.Retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// Line returns the next line without its ending, which is LF, CR or CRLF. It is
// valid until the next call.
func (p *Reader) Line() ([]byte, error) {
	p.line = reuse(p.line)
	for {
		if _, err := p.r.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := p.r.Peek(p.r.Buffered())
		if p.cr {
			p.cr = false
			if chunk[0] == '\n' {
				p.discard(1)
				continue
			}
		}
		end := lineEnd(chunk)
		if len(p.line)+end > p.limit {
			return nil, ErrTooLong
		}
		line := chunk[:end]
		if len(p.line) > 0 || end == len(chunk) {
			p.line = append(p.line, line...)
			line = p.line
		}
		if end == len(chunk) {
			p.discard(end)
			continue
		}
		p.cr = chunk[end] == '\r'
		p.discard(end + 1) // the bytes of line stay in the buffer
		if !p.begun {
			p.begun = true
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		return line, nil
	}
}

// lineEnd returns where the first line of a chunk ends, or len(chunk) if it
// does not.
func lineEnd(chunk []byte) int {
	end := bytes.IndexByte(chunk, '\n')
	if end < 0 {
		end = len(chunk)
	}
	if cr := bytes.IndexByte(chunk[:end], '\r'); cr >= 0 {
		end = cr
	}
	return end
}

// reuse empties a buffer for reuse, or lets it go if a rare large event has
// grown it.
func reuse(b []byte) []byte {
	if cap(b) > 1<<20 {
		return nil
	}
	return b[:0]
}

func (p *Reader) discard(n int) { _, _ = p.r.Discard(n) } // cannot fail: n bytes were peeked at
