package filestore

import (
	"bytes"
	"io"
)

// chunk is how much of a file is read at once.
const chunk = 64 << 10

// lines reads a file line by line, between two offsets.
type lines struct {
	read func(b []byte, at int64) error // fills b
	next int64                          // what is read next
	end  int64                          // where to stop
	buf  []byte                         // what is read but not returned
	room []byte                         // the memory under buf
}

// line returns the next line with its newline, and its offset, or io.EOF at the
// end. A piece without a newline is the rest before the end, or is longer than any
// line. The bytes are valid until the next call.
func (l *lines) line() (line []byte, at int64, err error) {
	searched := 0
	for {
		at = l.next - int64(len(l.buf))
		if i := bytes.IndexByte(l.buf[searched:], '\n'); i >= 0 {
			return l.take(searched + i + 1), at, nil
		}
		searched = len(l.buf)
		switch {
		case searched >= maxLine || l.next >= l.end && searched > 0:
			return l.take(searched), at, nil
		case l.next >= l.end:
			return nil, at, io.EOF
		}
		if err := l.fill(); err != nil {
			return nil, at, err
		}
	}
}

func (l *lines) take(n int) []byte {
	line := l.buf[:n]
	l.buf = l.buf[n:]
	return line
}

func (l *lines) fill() error {
	have := len(l.buf)
	want := int(min(chunk, l.end-l.next))
	if have+want > len(l.room) {
		room := make([]byte, max(have+want, 2*len(l.room)))
		copy(room, l.buf)
		l.room = room
	} else {
		copy(l.room, l.buf)
	}
	if err := l.read(l.room[have:have+want], l.next); err != nil {
		return err
	}
	l.buf = l.room[:have+want]
	l.next += int64(want)
	return nil
}
