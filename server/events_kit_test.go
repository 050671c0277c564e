package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// sseBlock is a block of a stream as it was sent.
type sseBlock struct {
	id, kind, data, retry string
	comment               bool
}

// sseStream is an open stream.
type sseStream struct {
	t      testing.TB
	resp   *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// sseOpen opens a stream. Headers are pairs of name and value.
func sseOpen(s *site, path string, headers ...string) *sseStream {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return sseDo(s.t, http.DefaultClient, r, cancel, append([]string{"Accept", "text/event-stream"}, headers...))
}

func sseDo(t testing.TB, c *http.Client, r *http.Request, cancel context.CancelFunc, headers []string) *sseStream {
	t.Helper()
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	st := &sseStream{t, resp, lines, cancel}
	t.Cleanup(st.close)
	if resp.StatusCode == 200 && resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the media type is %s", resp.Header.Get("Content-Type"))
	}
	return st
}

func (st *sseStream) close() {
	st.cancel()
	st.resp.Body.Close()
}

// next returns the next block, or the comment or retry that stands between two;
// false at the end. Blocks without data are a flaw: some clients pass them on.
func (st *sseStream) next() (b sseBlock, ok bool) {
	for st.lines.Scan() {
		line := st.lines.Text()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if b.data == "" {
				st.t.Errorf("a block has no data: %+v", b)
			}
			return b, true
		case name == "":
			return sseBlock{comment: true}, true
		case name == "id":
			b.id = value
		case name == "event":
			b.kind = value
		case name == "data":
			b.data += value
		case name == "retry":
			return sseBlock{retry: value}, true
		default:
			st.t.Errorf("a line is %q", line)
		}
	}
	return b, false
}

// event returns the next block with data that is no delta; false at the end.
func (st *sseStream) event() (sseBlock, bool) {
	for {
		b, ok := st.next()
		if !ok || b.data != "" && b.kind != "delta" {
			return b, ok
		}
	}
}

// until reads up to an event of a kind, and returns all of them.
func (st *sseStream) until(kind string) []sseBlock {
	st.t.Helper()
	var all []sseBlock
	for {
		b, ok := st.event()
		if !ok {
			st.t.Fatalf("the stream ended before %s, behind %d events: %v", kind, len(all), st.lines.Err())
		}
		if all = append(all, b); b.kind == kind {
			return all
		}
	}
}

// sseStart starts a run and returns it when it stands still.
func sseStart(s *site, thread, flow string, input any) *perdure.Run {
	s.t.Helper()
	run, err := s.rt.Start(s.t.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: input})
	if err == nil {
		run, err = s.rt.Wait(s.t.Context(), run.Thread, run.ID)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// sseJournal returns the events of a thread by their ids, as a stream has them.
func sseJournal(t testing.TB, rt *perdure.Runtime, thread string) (all []string) {
	t.Helper()
	for ev, err := range rt.Events(t.Context(), thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		sseMembers(t, ev.Kind, data)
		all = append(all, fmt.Sprintf("%d %s %s", ev.Seq, ev.Kind, data))
	}
	return all
}

// sseMembers fails if an event has members that its kind is not said to have.
func sseMembers(t testing.TB, kind string, data []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		t.Fatal(err)
	}
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

func (b sseBlock) String() string { return b.id + " " + b.kind + " " + b.data }

// sseFlows are what the tests follow.
func sseFlows() []perdure.Flow {
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
