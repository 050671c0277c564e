package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// maxEvent bounds what is kept of one event of a stream.
const maxEvent = 64 << 20

// errTooLong: an event of a stream is over the limit.
var errTooLong = errors.New("an event is too large")

// message is an event of a stream.
type message struct {
	id    string // of this event; "" if it has none of its own
	event string // "message" if it is not said
	data  []byte
}

// parser reads an event stream (text/event-stream, as the HTML standard defines
// it).
type parser struct {
	r     *bufio.Reader
	limit int
	begun bool
	cr    bool // the line before ended with CR, so an LF belongs to it
	line  []byte
	retry time.Duration // what the stream asked for last; 0: nothing
	alive func()        // called for each comment, which is how a silent stream shows that it is there
}

func newParser(r io.Reader) *parser {
	return &parser{r: bufio.NewReaderSize(r, 32<<10), limit: maxEvent, alive: func() {}}
}

// next returns the next event with data. What the stream ends in the middle of
// is no event.
func (p *parser) next() (message, error) {
	var m message
	var hasData bool
	for {
		line, err := p.readLine()
		if err != nil {
			return message{}, err
		}
		if len(line) == 0 {
			if hasData {
				if m.event == "" {
					m.event = "message"
				}
				m.data = m.data[:len(m.data)-1] // the last line break
				return m, nil
			}
			m = message{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "":
			p.alive()
		case "event":
			m.event = string(value)
		case "data":
			if len(m.data)+len(value) > p.limit {
				return message{}, errTooLong
			}
			m.data = append(append(m.data, value...), '\n')
			hasData = true
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				m.id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				p.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readLine returns the next line, which ends with LF, CR or both. It is valid
// until the next call.
func (p *parser) readLine() ([]byte, error) {
	if p.line = p.line[:0]; cap(p.line) > 1<<20 {
		p.line = nil // of a large event, which is seldom
	}
	for {
		chunk, err := p.peek()
		if err != nil {
			return nil, err
		}
		if p.cr {
			p.cr = false
			if chunk[0] == '\n' {
				p.discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			end = len(chunk)
		}
		if p.line = append(p.line, chunk[:end]...); len(p.line) > p.limit {
			return nil, errTooLong
		}
		if end == len(chunk) {
			p.discard(end)
			continue
		}
		p.cr = chunk[end] == '\r'
		p.discard(end + 1)
		if !p.begun {
			p.begun = true
			p.line = bytes.TrimPrefix(p.line, []byte("\ufeff"))
		}
		return p.line, nil
	}
}

// peek returns what has arrived, at least a byte.
func (p *parser) peek() ([]byte, error) {
	if _, err := p.r.Peek(1); err != nil {
		return nil, err
	}
	return p.r.Peek(p.r.Buffered())
}

func (p *parser) discard(n int) { _, _ = p.r.Discard(n) } // it has been peeked at
