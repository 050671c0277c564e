package server_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestStreamsEndWhenTheThreadMoves follows a thread and its runs while the store is
// migrated. Every stream ends with the event moved, except that of a run that has
// ended, and a reader that has seen it and connects again gets nothing.
func TestStreamsEndWhenTheThreadMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := memstore.New()
		s := newPiped(t, from, server.Options{}, false, testFlows()...)
		over := s.Begin("a", "count", 1)
		servertest.Check(t, s.Runtime.Cancel(t.Context(), "a", over.ID, perdure.Note{}))
		run := s.Begin("a", "count", 1)
		steers := servertest.Must(s.Runtime.Start(t.Context(), perdure.StartRequest{Thread: "a", Flow: "count", Input: 2, Policy: perdure.Steer}))(t)
		paths := []string{"/v1/threads/a/events"}
		for _, id := range []string{run.ID, steers.ID} {
			path := "/v1/threads/a/events?run=" + id
			paths = append(paths, path, path+"&until=wait")
		}
		bounded := func(st *servertest.Stream) *servertest.Stream {
			cut := time.AfterFunc(time.Hour, func() { t.Error("a stream does not end"); st.Hangup() })
			t.Cleanup(func() { cut.Stop() })
			return st
		}
		var open []*servertest.Stream
		for _, path := range paths {
			st := bounded(s.Open(path))
			st.Until("queued")
			open = append(open, st)
		}
		synctest.Wait()
		servertest.Must(migrate.Run(t.Context(), from, memstore.New(), migrate.Options{To: "there"}))(t)
		for i, path := range paths {
			for what, st := range map[string]*servertest.Stream{"open": open[i], "later": bounded(s.Open(path))} {
				var last servertest.Block
				for b, ok := st.Next(); ok; b, ok = st.Next() {
					if b.Kind != "" {
						last = b
					}
				}
				var ev perdure.Event
				if err := json.Unmarshal([]byte(last.Data), &ev); last.Kind != "moved" || err != nil || ev.Name != "there" {
					t.Errorf("%s, %s: it ends with %v, %v", path, what, last, err)
				}
				s.Do("GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", last.ID).Want(204)
			}
		}
		if _, done := bounded(s.Open("/v1/threads/a/events?run=" + over.ID)).Done(); done.Status != perdure.Cancelled {
			t.Errorf("the run that had ended is %+v", done)
		}
		if stats := servertest.Decode[api.Stats](s.Do("GET", "/v1/stats", ""), 200); stats.Threads != 1 || len(stats.Statuses) != 1 || stats.Statuses["moved"] != 1 {
			t.Errorf("the numbers are %+v", stats)
		}
	})
}
