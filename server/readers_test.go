package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestReadersChangeBetweenRingAndJournal lets events be so large that the ring
// has few of them, and readers be faster and slower than the run in turns.
func TestReadersChangeBetweenRingAndJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const steps = 200
		s := servertest.NewPiped(t, memstore.New(), server.Options{}, true, perdure.NewFlow("large", func(ctx context.Context, n int) (int, error) {
			for i := range n {
				if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (string, error) {
					time.Sleep(10 * time.Millisecond)
					return strings.Repeat("x", (i%3)*50_000), nil
				}); err != nil {
					return 0, err
				}
			}
			return n, nil
		}))
		run := s.Begin("a", "large", steps)
		var wg sync.WaitGroup
		for i := range 6 {
			query := []string{"", "?run=newest", "?run=" + run.ID + "&until=wait"}[i%3]
			st := s.Open("/v1/threads/a/events" + query)
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				var last uint64
				for {
					b, ok := st.Event()
					if !ok {
						t.Errorf("%d ends behind %d", i, last)
						return
					}
					if b.Kind == api.KindDone {
						if b.ID != fmt.Sprintf("%d.done", last) {
							t.Errorf("%d is done at %s behind %d", i, b.ID, last)
						}
						_, more := st.Next()
						if more {
							t.Errorf("%d goes on behind done", i)
						}
						return
					}
					if last++; query != "" && last == 1 {
						last = run.Seq // nothing before it is of the run
					}
					if b.ID != fmt.Sprint(last) {
						t.Errorf("%d is told %s, and %d is next", i, b.ID, last)
						return
					}
					if query == "" && b.Kind == "ended" {
						return
					}
					if rng.IntN(20) == 0 {
						time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestManyStreamsComeAndGo opens and closes streams of many kinds at once, while
// threads come and go, and counts what is left.
func TestManyStreamsComeAndGo(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("other", "ask", "?")
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	paths := []string{"/v1/threads/%s/events", "/v1/threads/%s/events?run=newest", "/v1/threads/%s/events?run=newest&until=wait", "/v1/events", "/v1/threads/%s/events?deltas=no"}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 2))
			thread := fmt.Sprint("t", rng.IntN(4))
			if i%10 == 0 {
				_, _ = s.Runtime.Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: "count", Input: 3})
			}
			if i%25 == 0 {
				_ = s.Runtime.Erase(t.Context(), thread, perdure.EraseOptions{})
			}
			path := paths[i%len(paths)]
			if strings.Contains(path, "%s") {
				path = fmt.Sprintf(path, thread)
			}
			for range 3 {
				st := s.Open(path)
				if st.Response.StatusCode == http.StatusOK && rng.IntN(2) == 0 {
					st.Next() // its first block
				}
				st.Close()
			}
		})
	}
	wg.Wait()
	var stats api.Stats
	for i := 0; i == 0 || stats.Streams > 0; i++ {
		if s.Do("GET", "/v1/stats", "").Want(200, &stats); i > 2000 {
			t.Fatalf("%d streams are open", stats.Streams)
		}
	}
	servertest.NothingLeft(t, before)
}

func TestStreamOverHTTP10(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	run := s.Start("a", "count", 2)
	conn := slowDial(t, s.URL)
	fmt.Fprintf(conn, "GET /v1/threads/a/events?run=%s HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", run.ID)
	resp := servertest.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(data), ".done\nevent: done\n") || len(resp.TransferEncoding) > 0 {
		t.Errorf("the answer is %v %s: %v", resp, data, err)
	}
}

func TestLargestIDsAreAhead(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("a", "count", 2)
	for _, id := range []string{"9007199254740992", "9007199254740993", "9223372036854775808", "18446744073709551615"} {
		for _, end := range []string{"", ".done"} {
			for _, query := range []string{"", "?run=newest", "?run=newest&until=wait"} {
				for _, accept := range []string{"text/event-stream", "application/json"} {
					s.Do("GET", "/v1/threads/a/events"+query, "", "Accept", accept, "Last-Event-ID", id+end).Problem(400, "ahead")
				}
			}
		}
		s.Do("GET", "/v1/threads/a/events?run=newest&after="+id, "", "Accept", "text/event-stream").Problem(400, "ahead")
	}
}

// TestWaitEndsForWhateverNeedsSomeone follows runs that were stopped in other
// ways than by a question.
func TestWaitEndsForWhateverNeedsSomeone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.NewPiped(t, memstore.New(), server.Options{}, true, append(servertest.Flows(), perdure.NewFlow("sleep", func(ctx context.Context, _ string) (string, error) {
			return "slept", perdure.Sleep(ctx, "nap", time.Hour)
		}))...)
		run := s.Begin("a", "sleep", "")
		st := s.Open("/v1/threads/a/events?until=wait&run=" + run.ID)
		time.AfterFunc(time.Minute, func() {
			if err := s.Runtime.Pause(t.Context(), "a", run.ID, perdure.Note{}); err != nil {
				t.Error(err)
			}
		})
		all := st.Until("done")
		if !strings.Contains(all[len(all)-1].Data, `"paused"`) {
			t.Errorf("done is %v", all)
		}
		servertest.Check(t, s.Runtime.Resume(t.Context(), "a", run.ID, perdure.Note{}))
		rest := s.Open("/v1/threads/a/events?until=wait&run="+run.ID, "Last-Event-ID", all[len(all)-1].ID).Until("done")
		if rest[0].Kind != "resumed" || !strings.Contains(rest[len(rest)-1].Data, `"succeeded"`) {
			t.Errorf("it goes on with %v", rest)
		}
	})
}

// What is cut off in any state leaves no goroutine behind.
func TestCutOffRequestsLeaveNothingBehind(t *testing.T) {
	s := newFuzzed(t)
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	cut := func() {
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[{"text":"x"}]}}`},
			{"POST", "/run_sse", `{"appName":"asker","userId":"ann","sessionId":"t1","streaming":true,"newMessage":{"parts":[{"text":"x"}]}}`},
			{"GET", "/v1/threads/t1/runs/newest/wait?end=true&seconds=60", ""},
			{"GET", "/v1/threads/t1/events", ""},
			{"GET", "/v1/events", ""},
			{"HEAD", "/v1/events", ""},
			{"HEAD", "/v1/threads/t1/export", ""},
			{"POST", "/v1/threads/t1/runs", `{"flow":"asker","input":"x","policy":"beside"}`},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			r, _ := http.NewRequestWithContext(ctx, c.method, s.URL+c.path, strings.NewReader(c.body))
			r.Header.Set("Accept", api.TypeEvents)
			if resp, err := client.Do(r); err == nil {
				resp.Body.Close()
			}
			cancel()
		}
		transport.CloseIdleConnections()
	}
	before := runtime.NumGoroutine()
	for range 10 {
		cut()
	}
	servertest.NothingLeft(t, before)
}
