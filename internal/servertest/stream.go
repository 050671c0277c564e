package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	run, err := s.Runtime.Start(s.T.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: input})
	if err == nil {
		run, err = s.Runtime.Wait(s.T.Context(), run.Thread, run.ID)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	return run
}

// Journal returns the events of a thread by their ids, as a stream has them.
func Journal(t testing.TB, rt *perdure.Runtime, thread string) (all []string) {
	t.Helper()
	for _, ev := range All(t, rt.Events(t.Context(), thread, perdure.EventOptions{Replay: true})) {
		data := Must(json.Marshal(ev))(t)
		checkMembers(t, ev.Kind, data)
		all = append(all, fmt.Sprintf("%d %s %s", ev.Seq, ev.Kind, data))
	}
	return all
}

// checkMembers fails if an event has members that its kind is not said to have.
func checkMembers(t testing.TB, kind string, data []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	Check(t, json.Unmarshal(data, &members))
	i := slices.IndexFunc(api.EventKinds, func(k api.EventKind) bool { return k.Name == kind })
	if i < 0 {
		t.Fatalf("the kind %s is not described", kind)
	}
	for name := range members {
		if !slices.Contains(api.CommonFields, name) && !slices.Contains(api.EventKinds[i].Fields, name) {
			t.Errorf("the kind %s is not said to have the member %s", kind, name)
		}
	}
}

// Begin starts a run and returns it as it is then.
func (s *Site) Begin(thread, flow string, input any) *perdure.Run {
	s.T.Helper()
	return Must(s.Runtime.Start(s.T.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: input}))(s.T)
}

// Large is the flow large, which has as many steps as it is told to, whose
// results have so many bytes.
func Large(size func(step int) int) perdure.Flow {
	return perdure.NewFlow("large", func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (string, error) { return strings.Repeat("x", size(i)), nil }); err != nil {
				return i, err
			}
		}
		return n, nil
	})
}

// Flows returns the flows whose events tests follow: count has as many steps as
// it is told to, and ask waits for an answer.
func Flows() []perdure.Flow {
	return []perdure.Flow{
		perdure.NewFlow("count", func(ctx context.Context, n int) (int, error) {
			sum := 0
			for i := range n {
				v, err := perdure.Step(ctx, fmt.Sprint("step-", i), func(context.Context) (int, error) { return i, nil })
				if err != nil {
					return 0, err
				}
				sum += v
			}
			return sum, nil
		}),
		perdure.NewFlow("ask", func(ctx context.Context, prompt string) (string, error) {
			return perdure.Ask[string](ctx, "question", perdure.Question{Prompt: prompt})
		}),
	}
}
