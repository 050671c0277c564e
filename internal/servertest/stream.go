package servertest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// Block is a block of a stream as it was sent.
type Block struct {
	ID, Kind, Data, Retry string
	Comment               bool
}

// String shows the block in a line.
func (b Block) String() string { return b.ID + " " + b.Kind + " " + b.Data }

// Stream is an open stream.
type Stream struct {
	Response *http.Response
	Err      error // why it ended; nil: as it should
	Hangup   context.CancelFunc

	t     testing.TB
	lines *sse.Reader
}

// Open opens a stream. Headers are pairs of name and value.
func (s *Site) Open(path string, headers ...string) *Stream {
	s.T.Helper()
	ctx, cancel := context.WithCancel(s.T.Context())
	r := Must(http.NewRequestWithContext(ctx, "GET", s.URL+path, nil))(s.T)
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.Client.Do(r)
	if err != nil {
		cancel()
		s.T.Fatal(err)
	}
	st := &Stream{Response: resp, t: s.T, lines: sse.NewReader(resp.Body, 64<<20), Hangup: cancel}
	s.T.Cleanup(st.Close)
	if resp.StatusCode == 200 && resp.Header.Get("Content-Type") != "text/event-stream" {
		s.T.Fatalf("the media type is %s", resp.Header.Get("Content-Type"))
	}
	return st
}

// Close closes the stream.
func (st *Stream) Close() {
	st.Hangup()
	st.Response.Body.Close()
}

// Next returns the next block, or the comment or retry between two; false at the
// end. Blocks without data are a flaw: some clients pass them on.
func (st *Stream) Next() (b Block, ok bool) {
	for {
		raw, err := st.lines.Line()
		if err != nil {
			if err != io.EOF {
				st.Err = err
			}
			return b, false
		}
		line := string(raw)
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if b.Data == "" {
				st.t.Errorf("a block has no data: %+v", b)
			}
			return b, true
		case name == "":
			return Block{Comment: true}, true
		case name == "id":
			b.ID = value
		case name == "event":
			b.Kind = value
		case name == "data":
			b.Data += value
		case name == "retry":
			return Block{Retry: value}, true
		default:
			st.t.Errorf("a line is %q", line)
		}
	}
}

// Event returns the next block with data that is no delta; false at the end.
func (st *Stream) Event() (Block, bool) {
	for {
		b, ok := st.Next()
		if !ok || b.Data != "" && b.Kind != "delta" {
			return b, ok
		}
	}
}

// Until reads up to an event of a kind, and returns all of them.
func (st *Stream) Until(kind string) []Block {
	st.t.Helper()
	var all []Block
	for {
		b, ok := st.Event()
		if !ok {
			st.t.Fatalf("the stream ended before %s, after %d events: %v", kind, len(all), st.Err)
		}
		if all = append(all, b); b.Kind == kind {
			return all
		}
	}
}

// Done reads up to the end of a stream that must have one soon.
func (st *Stream) Done() (all []Block, done api.Done) {
	st.t.Helper()
	cut := time.AfterFunc(10*time.Second, st.Hangup)
	defer cut.Stop()
	all = st.Until("done")
	Check(st.t, json.Unmarshal([]byte(all[len(all)-1].Data), &done))
	return all, done
}

// Start starts a run and returns it when it stands still.
func (s *Site) Start(thread, flow string, input any) *perdure.Run {
	s.T.Helper()
	run := s.Begin(thread, flow, input)
	return Must(s.Runtime.Wait(s.T.Context(), run.Thread, run.ID))(s.T)
}

// Begin starts a run and returns it as it is then.
func (s *Site) Begin(thread, flow string, input any) *perdure.Run {
	s.T.Helper()
	return Must(s.Runtime.Start(s.T.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: input}))(s.T)
}
