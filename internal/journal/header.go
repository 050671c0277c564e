package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// header reads the fields before the body and returns where the body begins. It
// stops at an unknown format, because anything may follow.
func (e *Entry) header(b []byte) (int, error) {
	if n := e.plainHeader(b); n > 0 {
		return n, nil
	}
	return e.anyHeader(b)
}

// plainHeader is anyHeader for fields as Encode writes them, without escapes. It
// returns 0, and does not change the entry, for any other header.
func (e *Entry) plainHeader(b []byte) int {
	r := fields{rest: b}
	kind := kinds[string(r.text(`{"v":1,"k":`))]
	id := r.text(`,"id":`)
	time := r.number(`,"t":`)
	run, epoch := uint64(0), uint64(0)
	if r.at(`,"r":`) {
		run = r.number(`,"r":`)
	}
	if r.at(`,"e":`) {
		epoch = r.number(`,"e":`)
	}
	path := []byte(`""`)
	if r.at(`,"p":`) {
		path = r.text(`,"p":`)
	}
	if r.bad || kind == "" || len(id) < 3 || !r.at(bodyMark) {
		return 0
	}
	e.Kind, e.ID, e.Time, e.Run, e.Epoch = kind, string(id[1:len(id)-1]), int64(time), run, epoch
	e.Path = string(path[1 : len(path)-1])
	return len(b) - len(r.rest) + len(bodyMark)
}

// fields reads fields in the order in which they are expected.
type fields struct {
	rest []byte
	bad  bool // something else was there
}

// at reports whether the field comes next whose bytes before its value are mark.
func (r *fields) at(mark string) bool {
	return len(r.rest) > len(mark) && string(r.rest[:len(mark)]) == mark
}

// text reads a field and returns its value, including the quotes.
func (r *fields) text(mark string) []byte {
	if r.bad = r.bad || !r.at(mark) || r.rest[len(mark)] != '"'; r.bad {
		return nil
	}
	value := r.rest[len(mark):]
	n := bytes.IndexByte(value[1:], '"') + 2
	if r.bad = n < 2 || bytes.IndexByte(value[:n], '\\') >= 0; r.bad {
		return nil
	}
	r.rest = value[n:]
	return value[:n]
}

// number reads a field whose value has few enough digits to fit a uint64.
func (r *fields) number(mark string) (n uint64) {
	if r.bad = r.bad || !r.at(mark); r.bad {
		return 0
	}
	value := r.rest[len(mark):]
	digits := 0
	for digits < len(value) && value[digits] >= '0' && value[digits] <= '9' {
		n = 10*n + uint64(value[digits]-'0')
		digits++
	}
	r.bad = digits == 0 || digits > 18
	r.rest = value[digits:]
	return n
}

// anyHeader is header for fields in any order.
func (e *Entry) anyHeader(b []byte) (int, error) {
	if len(b) == 0 || b[0] != '{' {
		return 0, errors.New("it is not a JSON object")
	}
	var format int64
	for at := 1; ; {
		key, next, err := token(b, at)
		if err != nil {
			return 0, err
		}
		if next >= len(b) || b[next] != ':' {
			return 0, fmt.Errorf("no value at byte %d", next)
		}
		if string(key) == `"b"` {
			if format < 1 || e.Kind == "" || e.ID == "" {
				return 0, errors.New("it has no format, kind or id")
			}
			return next + 1, nil
		}
		value, after, err := token(b, next+1)
		if err != nil {
			return 0, err
		}
		switch string(key) {
		case `"v"`:
			if at != 1 {
				return 0, errors.New("its format does not come first")
			}
			if format, err = strconv.ParseInt(string(value), 10, 64); format > Format && err == nil {
				return 0, fmt.Errorf("%w: format %d, this one reads up to %d", ErrNewer, format, Format)
			}
		case `"k"`:
			var known bool
			if e.Kind, known = kinds[string(value)]; !known {
				var kind string
				kind, err = text(value)
				e.Kind = Kind(kind)
			}
		case `"id"`:
			e.ID, err = text(value)
		case `"t"`:
			e.Time, err = strconv.ParseInt(string(value), 10, 64)
		case `"r"`:
			e.Run, err = strconv.ParseUint(string(value), 10, 64)
		case `"e"`:
			e.Epoch, err = strconv.ParseUint(string(value), 10, 64)
		case `"p"`:
			e.Path, err = text(value)
		}
		if err != nil {
			return 0, fmt.Errorf("field %s: %w", key, err)
		}
		if after >= len(b) || b[after] != ',' {
			return 0, fmt.Errorf("no comma at byte %d", after)
		}
		at = after + 1
	}
}

// token returns the JSON value at b[at:], and where it ends.
func token(b []byte, at int) ([]byte, int, error) {
	end := span(b, at)
	if end <= at {
		return nil, at, fmt.Errorf("no value at byte %d", at)
	}
	return b[at:end], end, nil
}

// span returns where the JSON value at b[at:] ends, -1 if it does not end. It looks
// only at quotes, brackets, commas and colons.
func span(b []byte, at int) int {
	depth := 0
	for i := at; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = unquote(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i
			}
		case ',', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

// unquote returns the index of the quote that closes the string at b[at:], -1 if
// there is none.
func unquote(b []byte, at int) int {
	for i := at + 1; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

// text decodes a JSON string.
func text(b []byte) (string, error) {
	if len(b) < 2 || b[0] != '"' {
		return "", errors.New("not a string")
	}
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1]), nil
	}
	var s string
	err := json.Unmarshal(b, &s)
	return s, err
}
