package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parsed is what a reader makes of a stream.
type parsed struct {
	Events   []Event
	Retry    time.Duration
	Comments int
	Err      error
}

func parse(r io.Reader, limit int) parsed {
	var got parsed
	p := NewReader(r, limit)
	p.Alive = func() { got.Comments++ }
	for {
		m, err := p.Next()
		if err != nil {
			got.Retry, got.Err = p.Retry, err
			return got
		}
		m.Data = bytes.Clone(m.Data)
		got.Events = append(got.Events, m)
	}
}

// chunks is a reader that returns a text in pieces.
type chunks struct {
	text string
	cuts []byte // sizes, taken in turn
	n    int
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	size := 1
	if len(c.cuts) > 0 {
		size = 1 + int(c.cuts[c.n%len(c.cuts)])
		c.n++
	}
	n := copy(b, c.text[:min(size, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}

func event(id, kind, data string) Event { return Event{id, kind, []byte(data)} }

func TestStreamIsReadAsTheHTMLStandardSays(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       parsed
	}{
		{"nothing", "", parsed{}},
		{"one event", "id: 7\nevent: step\ndata: {}\n\n", parsed{Events: []Event{event("7", "step", "{}")}}},
		{"CRLF", "id: 7\r\nevent: step\r\ndata: {}\r\n\r\n", parsed{Events: []Event{event("7", "step", "{}")}}},
		{"CR", "id: 7\revent: step\rdata: {}\r\rdata: x\r\r", parsed{Events: []Event{event("7", "step", "{}"), event("", "message", "x")}}},
		{"mixed line ends", "data: a\r\ndata: b\rdata: c\n\r\n", parsed{Events: []Event{event("", "message", "a\nb\nc")}}},
		{"byte order mark", "\ufeffdata: a\n\n", parsed{Events: []Event{event("", "message", "a")}}},
		{"only the first mark is none", "\ufeff\ufeffdata: a\n\n\ufeffdata: b\n\ndata: c\n\n", parsed{Events: []Event{event("", "message", "c")}}},
		{"one space belongs to the colon", "data:a\ndata: b\ndata:  c\ndata:\td\n\n", parsed{Events: []Event{event("", "message", "a\nb\n c\n\td")}}},
		{"empty data is data", "data\n\ndata:\ndata:\n\n", parsed{Events: []Event{event("", "message", ""), event("", "message", "\n")}}},
		{"no data is no event", "id: 3\nevent: step\n\ndata: x\n\n", parsed{Events: []Event{event("", "message", "x")}}},
		{"cut off", "data: a\n\ndata: b\n", parsed{Events: []Event{event("", "message", "a")}}},
		{"cut off in a line", "data: a\n\ndata: b", parsed{Events: []Event{event("", "message", "a")}}},
		{"comments", ": a\n:\n\ndata: x\n: b\ndata: y\n\n", parsed{Events: []Event{event("", "message", "x\ny")}, Comments: 3}},
		{"unknown fields", "Data: a\n data: b\nfoo\ndata: x:y\n\n", parsed{Events: []Event{event("", "message", "x:y")}}},
		{"an id with a zero is none", "id: 1\x002\ndata: x\n\n", parsed{Events: []Event{event("", "message", "x")}}},
		{"the last id counts", "id: 1\nid: 2\ndata: x\n\n", parsed{Events: []Event{event("2", "message", "x")}}},
		{"retry", "retry: 1500\n\n", parsed{Retry: 1500 * time.Millisecond}},
		{"retry in other words", "retry: 20\n\nretry: -1\nretry: 1.5\nretry: +3\nretry: 0x10\nretry: 99999999999999999999\n\n", parsed{Retry: 20 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Err = io.EOF
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text)),
				"data with the end": iotest.DataErrReader(strings.NewReader(c.text)),
			} {
				got := parse(r, 1<<20)
				if d := cmp.Diff(c.want, got, cmp.Comparer(errors.Is)); d != "" {
					t.Errorf("%s: %s", name, d)
				}
			}
		})
	}
}

func TestStreamKeepsNoMoreOfAnEventThanItMay(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, text := range map[string]string{
		"a line": "data: " + long, "several lines": strings.Repeat("data: xxxxxxxxx\n", 20),
		"an id": "id: " + long, "a comment": ":" + long, "a name": long,
	} {
		if got := parse(strings.NewReader(text), 90); !errors.Is(got.Err, ErrTooLong) || len(got.Events) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	// What is not kept counts for nothing.
	heartbeats := strings.Repeat(": still there\n", 50) + strings.Repeat("data: xxxxxxxxx\n\n", 20)
	if got := parse(strings.NewReader(heartbeats), 90); len(got.Events) != 20 || got.Comments != 50 {
		t.Errorf("%d events and %d comments: %v", len(got.Events), got.Comments, got.Err)
	}
}

func FuzzStream(f *testing.F) {
	for _, text := range []string{
		"id: 7\nevent: step\ndata: {}\n\n", "\ufeffdata: a\r\n\r\ndata: b\r\r", "retry: 5\n:\n\n", "data\n\ndata: " + strings.Repeat("x", 70),
		"data: a\r\n\n\r\r\n\n", "id\x00: 1\nid: \x00\n\n",
	} {
		f.Add(text, []byte{0})
		f.Add(text, []byte{1, 0, 5})
	}
	f.Fuzz(func(t *testing.T, text string, cuts []byte) {
		const limit = 64
		whole := parse(strings.NewReader(text), limit)
		got := parse(&chunks{text: text, cuts: cuts}, limit)
		if d := cmp.Diff(whole, got, cmp.Comparer(errors.Is)); d != "" {
			t.Fatal(d)
		}
		for _, m := range whole.Events {
			if len(m.Data) > limit || strings.ContainsAny(m.ID+m.Kind, "\r\n\x00") && !strings.Contains(m.Kind, "\x00") {
				t.Fatalf("%q", m)
			}
		}
	})
}
