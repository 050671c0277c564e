package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// listenFlow takes one input more when it is let.
func listenFlow(let <-chan bool) perdure.Flow {
	return perdure.NewFlow("listen", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "begin", func(ctx context.Context) (bool, error) {
			select {
			case <-let:
				return true, nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}); err != nil {
			return "", err
		}
		more, _, err := perdure.Take[string](ctx, "more")
		return more, err
	})
}

func TestSteeringInputThatWasTakenIsOverOnce(t *testing.T) {
	let := make(chan bool)
	s := servertest.New(t, server.Options{}, append(testFlows(), listenFlow(let))...)
	first := s.Begin("a", "listen", "")
	s.Open("/v1/threads/a/events").Until("claimed")
	more := servertest.Must(s.Runtime.Start(t.Context(), perdure.StartRequest{Thread: "a", Flow: "listen", Input: "left", Policy: perdure.Steer}))(t)
	path := "/v1/threads/a/events?run=" + more.ID
	live, wait := s.Open(path), s.Open(path+"&until=wait")
	live.Until("queued")
	wait.Until("queued")
	close(let)
	var all []servertest.Block
	for _, st := range []*servertest.Stream{live, wait, s.Open(path)} {
		var done api.Done
		if all, done = st.Done(); done.Run != first.ID || done.Status != perdure.Succeeded {
			t.Errorf("done is %+v", done)
		}
	}
	s.Start("a", "count", 3) // is none of its business
	end := all[len(all)-1]
	for _, query := range []string{"", "&until=wait"} {
		if r := s.Do("GET", path+query, "", "Accept", "text/event-stream", "Last-Event-ID", end.ID); r.Status != 204 {
			t.Errorf("behind done%s: %d %s", query, r.Status, r.Body)
		}
	}
}

func TestNewestStaysWithItsRunAcrossReconnects(t *testing.T) {
	s := servertest.New(t, server.Options{}, testFlows()...)
	s.Start("a", "count", 1)
	run := s.Start("a", "ask", "?")
	st := s.Open("/v1/threads/a/events?run=newest")
	all := st.Until("asked")
	st.Close()
	later := s.Begin("a", "count", 2)
	last := all[len(all)-1].ID
	ask := mustThread(t, s, "a").Runs[1].Asks[0]
	servertest.Check(t, s.Runtime.Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: json.RawMessage(`"x"`)}}))
	servertest.Must(s.Runtime.WaitEnd(t.Context(), "a", later.ID))(t)
	rest, done := s.Open("/v1/threads/a/events?run=newest", "Last-Event-ID", last).Done()
	_, same := s.Open("/v1/threads/a/events?run=newest&after=" + last).Done()
	if done.Run != run.ID || same.Run != run.ID {
		t.Errorf("it goes on with runs %s and %s, not %s", done.Run, same.Run, run.ID)
	}
	before := len(mustThread(t, s, "a").Runs)
	end, stream := rest[len(rest)-1].ID, []string{"Accept", "text/event-stream", "Last-Event-ID"}
	s.Do("GET", "/v1/threads/a/events?run=newest", "", append(stream, end)...).Want(204)
	s.Do("GET", "/v1/threads/a/events?run=newest&after="+end, "", stream[:2]...).Want(204)
	if p := s.Do("GET", "/v1/threads/a/events?run=newest", "", append(stream, "99")...).Problem(400, "ahead"); !strings.Contains(string(p.Body), "99") {
		t.Errorf("an id that is ahead: %s", p.Body)
	}
	// One that repeats the request that started a run starts nothing.
	const start = `{"flow":"count","input":1}`
	s.Do("POST", "/v1/threads/a/runs", start, append(stream, end)...).Want(204)
	s.Do("POST", "/v1/runs", start, append(stream, end)...).Problem(400, "invalid")
	if n := len(mustThread(t, s, "a").Runs); n != before {
		t.Errorf("reconnects have started %d runs", n-before)
	}
	// Who has seen nothing of it follows the one that is the newest now.
	for _, c := range [][]string{{"newest"}, {"newest&after=0"}, {"newest", "Last-Event-ID", "0"}} {
		if _, done := s.Open("/v1/threads/a/events?run="+c[0], c[1:]...).Done(); done.Run != later.ID {
			t.Errorf("%v is run %s, not %s", c, done.Run, later.ID)
		}
	}
}

// polledStore is a store that does not tell of changes.
type polledStore struct{ store.Store }

// TestStreamOfARunThatIsTakenBackEnds lets a run end and be taken back before
// its reader has seen any of that.
func TestStreamOfARunThatIsTakenBackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPiped(t, polledStore{memstore.New()}, server.Options{}, false, testFlows()...)
		servertest.Must(s.Runtime.Create(t.Context(), perdure.CreateRequest{Thread: "a"}))(t)
		at := mustThread(t, s, "a").Seq
		run := s.Begin("a", "count", 1)
		var open []*servertest.Stream
		for _, query := range []string{"", "&until=wait"} {
			st := s.Open("/v1/threads/a/events?run=" + run.ID + query)
			st.Until("queued")
			open = append(open, st)
		}
		synctest.Wait()
		servertest.Check(t, s.Runtime.Cancel(t.Context(), "a", run.ID, perdure.Note{}))
		servertest.Must(s.Runtime.Rewind(t.Context(), "a", at, perdure.Note{}))(t)
		for _, st := range open {
			cut := time.AfterFunc(time.Minute, func() { t.Error("the stream of a run that is no more goes on"); st.Hangup() })
			for _, ok := st.Next(); ok; _, ok = st.Next() {
			}
			cut.Stop()
		}
	})
}

func TestStreamOfARunThatIsCancelledBeforeItBeganEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPiped(t, memstore.New(), server.Options{}, false, testFlows()...)
		run := s.Begin("a", "count", 1)
		for _, query := range []string{"", "&until=wait"} {
			st := s.Open("/v1/threads/a/events?run=" + run.ID + query)
			st.Until("queued")
			if err := s.Runtime.Cancel(t.Context(), "a", run.ID, perdure.Note{}); err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
				t.Fatal(err)
			}
			if _, done := st.Done(); done.Status != perdure.Cancelled {
				t.Errorf("done is %+v", done)
			}
		}
	})
}

func TestStartUnderALimitIsAnsweredWithItsRun(t *testing.T) {
	s := servertest.New(t, server.Options{Limits: server.Limits{Streams: 1}}, testFlows()...)
	held := s.Open("/v1/events")
	run := servertest.Decode[perdure.Run](s.Do("POST", "/v1/threads/b/runs", `{"flow":"count","input":1}`, "Accept", "text/event-stream"), 202)
	servertest.Must(s.Runtime.WaitEnd(t.Context(), "b", run.ID))(t)
	held.Close()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 25 {
				r := s.Do("POST", fmt.Sprintf("/v1/threads/t%d-%d/runs", i, j), `{"flow":"count","input":1}`, "Accept", "text/event-stream")
				if r.Status != 200 && r.Status != 202 {
					t.Errorf("a run that was started is answered with %d %s", r.Status, r.Body)
				}
			}
		})
	}
	wg.Wait()
}

func TestWaitingForATimerIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := true
		s := newPiped(t, memstore.New(), server.Options{}, true, perdure.NewFlow("sleep", func(ctx context.Context, _ string) (string, error) {
			if _, err := perdure.Step(ctx, "try", func(context.Context) (bool, error) {
				if fail {
					return false, errors.New("no")
				}
				return true, nil
			}); err != nil {
				return "", err
			}
			return "slept", perdure.Sleep(ctx, "nap", time.Hour)
		}))
		run := s.Start("a", "sleep", "")
		fail = false
		// The reader has seen the failure, and not what came of the retry.
		at := mustThread(t, s, "a").Seq
		servertest.Check(t, s.Runtime.Retry(t.Context(), "a", run.ID, perdure.Note{}))
		time.Sleep(time.Minute)
		if got := mustThread(t, s, "a").Runs[0].Status; got != perdure.Suspended {
			t.Fatalf("the run is %s", got)
		}
		for _, id := range []string{"0", fmt.Sprint(at - 1), fmt.Sprint(at), fmt.Sprint(at) + ".done"} {
			st := s.Open("/v1/threads/a/events?until=wait&run="+run.ID, "Last-Event-ID", id)
			all := st.Until("done")
			if end := all[len(all)-1]; !strings.Contains(end.Data, `"succeeded"`) {
				t.Errorf("behind %s: %s", id, end.Data)
			}
		}
	})
}

func TestNewsTellWhenAThreadIsSomeoneElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPiped(t, memstore.New(), server.Options{}, false, testFlows()...)
		create := func(user string) {
			servertest.Must(s.Runtime.Create(t.Context(), perdure.CreateRequest{Thread: "a", User: user}))(t)
		}
		create("ann")
		st := s.Open("/v1/events?user=ann")
		if b, ok := st.Event(); !ok || b.Kind != api.KindOpen {
			t.Fatalf("it begins with %v", b)
		}
		servertest.Check(t, s.Runtime.Erase(t.Context(), "a", perdure.EraseOptions{}))
		create("bob")
		cut := time.AfterFunc(time.Minute, st.Hangup)
		defer cut.Stop()
		if b, ok := st.Event(); !ok || b.Kind != api.KindGone {
			t.Errorf("she is told %v", b)
		}
	})
}

// revocable can be taken away.
type revocable struct {
	mu   sync.Mutex
	gone bool
}

func (a *revocable) Authenticate(context.Context, string) (*server.Principal, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return nil, api.ErrUnauthorized
	}
	return &server.Principal{Subject: "ann", Scopes: []api.Scope{api.ScopeAdmin}}, nil
}

// TestBusyStreamIsCheckedToo lets a reader take a long past slowly: it is not
// read to its end with a token that was taken away, or by a server that stops.
func TestBusyStreamIsCheckedToo(t *testing.T) {
	for _, why := range []string{"token", "close"} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := &revocable{}
				s := newPiped(t, memstore.New(), server.Options{Auth: tokens}, true, largeFlow(func(int) int { return 30 << 10 }))
				s.Start("a", "large", 100)
				st := s.Open("/v1/threads/a/events", "Authorization", "Bearer x")
				for i := range 60 {
					if i == 6 {
						if why == "close" {
							s.Server.Close()
						}
						tokens.mu.Lock()
						tokens.gone = true
						tokens.mu.Unlock()
					}
					b, ok := st.Event()
					if !ok {
						if i < 6 || st.Err != nil {
							t.Errorf("it ends behind %d events: %v", i, st.Err)
						}
						return
					}
					if b.Kind == "step" { // slow, and fast enough
						time.Sleep(12 * time.Second)
					}
				}
				t.Error("it goes on")
			})
		})
	}
}

// TestStreamsOfThreadsWithTheSameID lets a thread be erased and another one be
// made under its id before those who follow it have noticed.
func TestStreamsOfThreadsWithTheSameID(t *testing.T) {
	for _, n := range []int{2, 3, 5, 12} { // the ring of the old one has 2 to 9
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPiped(t, polledStore{memstore.New()}, server.Options{}, false, testFlows()...)
				create := func(by string, n int) {
					t.Helper()
					servertest.Must(s.Runtime.Create(t.Context(), perdure.CreateRequest{Thread: "a", User: by, By: by}))(t)
					for range n - 1 {
						servertest.Check(t, s.Runtime.Signal(t.Context(), "a", "x", by, perdure.SignalOptions{}))
					}
				}
				create("old", 1)
				old := s.Open("/v1/threads/a/events")
				old.Event()
				synctest.Wait()
				for range 8 {
					servertest.Check(t, s.Runtime.Signal(t.Context(), "a", "x", "old", perdure.SignalOptions{}))
				}
				time.Sleep(time.Second)
				servertest.Check(t, s.Runtime.Erase(t.Context(), "a", perdure.EraseOptions{}))
				create("new", n)
				st := s.Open("/v1/threads/a/events")
				for i := range n {
					if b, ok := st.Event(); !ok || !strings.HasPrefix(b.ID, fmt.Sprint(i+1, "-")) || !strings.Contains(b.Data, "new") {
						t.Fatalf("event %d of the new thread is %v", i+1, b)
					}
				}
				cut := time.AfterFunc(time.Minute, st.Hangup)
				defer cut.Stop()
				servertest.Check(t, s.Runtime.Signal(t.Context(), "a", "x", "new", perdure.SignalOptions{}))
				if b, ok := st.Event(); !ok || !strings.HasPrefix(b.ID, fmt.Sprint(n+1, "-")) || !strings.Contains(b.Data, "new") {
					t.Errorf("the next event of the new thread is %v", b)
				}
				for b, ok := old.Event(); ok; b, ok = old.Event() {
					if strings.Contains(b.Data, "new") {
						t.Errorf("who followed the old thread is told %v", b)
					}
				}
			})
		})
	}
}

// TestReadersChangeBetweenRingAndJournal lets events be so large that the ring
// has few of them, and readers be faster and slower than the run in turns.
func TestReadersChangeBetweenRingAndJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const steps = 200
		s := newPiped(t, memstore.New(), server.Options{}, true, perdure.NewFlow("large", func(ctx context.Context, n int) (int, error) {
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
	s := servertest.New(t, server.Options{}, testFlows()...)
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
	nothingLeft(t, before)
}

func TestStreamOverHTTP10(t *testing.T) {
	s := servertest.New(t, server.Options{}, testFlows()...)
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
	s := servertest.New(t, server.Options{}, testFlows()...)
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
		s := newPiped(t, memstore.New(), server.Options{}, true, append(testFlows(), perdure.NewFlow("sleep", func(ctx context.Context, _ string) (string, error) {
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
	nothingLeft(t, before)
}

// deltaLate is a store whose messages take a second, as they may between
// processes.
type deltaLate struct {
	*memstore.Store
	mu   sync.Mutex
	sent [][]byte
}

func (d *deltaLate) Cast(_ context.Context, _ string, message []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = append(d.sent, message)
	return nil
}

func (d *deltaLate) Hear(ctx context.Context, _ string, hear func([]byte)) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		d.mu.Lock()
		sent := d.sent
		d.sent = nil
		d.mu.Unlock()
		for _, m := range sent {
			hear(m)
		}
	}
}

// deltaFlow fails once behind a step that speaks, and then waits inside it.
func deltaFlow(let <-chan bool) perdure.Flow {
	return perdure.NewFlow("say", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "once", func(ctx context.Context) (string, error) {
			perdure.Delta(ctx, "once")
			return "once", nil
		}); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "twice", func(ctx context.Context) (string, error) {
			perdure.Delta(ctx, "twice")
			select {
			case ok := <-let:
				if !ok {
					return "", errors.New("not now")
				}
				return "twice", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
	})
}

func TestNoDeltaComesBehindItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan bool)
		s := newPiped(t, &deltaLate{Store: memstore.New()}, server.Options{}, true, deltaFlow(let))
		s.Begin("a", "say", "")
		time.Sleep(time.Minute)
		st := s.Open("/v1/threads/a/events")
		time.AfterFunc(time.Minute, st.Close)
		told := map[string]bool{}
		for b, ok := st.Next(); ok; b, ok = st.Next() {
			if b.Kind == "delta" {
				for _, word := range []string{"once", "twice"} {
					told[word] = told[word] || strings.Contains(b.Data, `"data":"`+word)
				}
			}
		}
		if told["once"] || !told["twice"] {
			t.Errorf("deltas are told of %v", told)
		}
	})
}

// TestDeltasOfARetryAreTold lets a step fail, which ends the run, and run again.
func TestDeltasOfARetryAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan bool)
		s := newPiped(t, &deltaLate{Store: memstore.New()}, server.Options{}, true, deltaFlow(let))
		run := s.Begin("a", "say", "")
		let <- false
		servertest.Must(s.Runtime.WaitEnd(t.Context(), "a", run.ID))(t)
		servertest.Check(t, s.Runtime.Retry(t.Context(), "a", run.ID, perdure.Note{}))
		time.Sleep(time.Minute)
		st := s.Open("/v1/threads/a/events")
		time.AfterFunc(time.Minute, st.Close)
		told := false
		for b, ok := st.Next(); ok; b, ok = st.Next() {
			told = told || b.Kind == "delta" && strings.Contains(b.Data, "twice")
		}
		if !told {
			t.Error("a step that runs again is not heard")
		}
	})
}

// TestNoDeltaOfAReplacedWorkerIsTold lets a worker speak on that does not know
// yet that another one has taken over.
func TestNoDeltaOfAReplacedWorkerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &deltaLate{Store: memstore.New()}
		s := newPiped(t, late, server.Options{}, true, deltaFlow(make(chan bool)))
		run := s.Begin("a", "say", "")
		st := s.Open("/v1/threads/a/events")
		time.AfterFunc(time.Minute, st.Close)
		time.Sleep(10 * time.Second)
		for i, pass := range []int{2, 1, 2} {
			servertest.Check(t, late.Cast(t.Context(), "", fmt.Appendf(nil, `{"run":%q,"path":"/twice","pass":%d,"attempt":1,"offset":%d,"data":"pass %d"}`, run.ID, pass, i, pass)))
		}
		told := map[string]int{}
		for b, ok := st.Next(); ok; b, ok = st.Next() {
			var d perdure.DeltaEvent
			if b.Kind == "delta" && json.Unmarshal([]byte(b.Data), &d) == nil {
				told[fmt.Sprint(d.Pass, " ", string(d.Data))]++
			}
		}
		if told[`1 "twice"`] != 1 || told[`1 "pass 1"`] != 0 || told[`2 "pass 2"`] != 2 {
			t.Errorf("deltas are told of %v", told)
		}
	})
}

// TestLateReadersGetWhatWasSaid lets readers come before a step speaks and between
// its words.
func TestLateReadersGetWhatWasSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := make(chan string)
		s := newPiped(t, memstore.New(), server.Options{}, true, liveSpeaker(words))
		s.Begin("a", "speak", 1)
		var readers sync.WaitGroup
		for i := range 3 {
			st := s.Open("/v1/threads/a/events?run=newest")
			readers.Go(func() {
				next := int64(0)
				for b, ok := st.Next(); ok && b.Kind != "step"; b, ok = st.Next() {
					if b.Kind != "delta" {
						continue
					}
					var d perdure.DeltaEvent
					if err := json.Unmarshal([]byte(b.Data), &d); err != nil || d.Offset != next {
						t.Errorf("reader %d gets %s after %d deltas: %v", i, b.Data, next, err)
					}
					next++
				}
				if next != 6 {
					t.Errorf("reader %d gets %d of 6 deltas before the step", i, next)
				}
			})
			time.Sleep(time.Second)
			words <- "x"
			words <- "y"
			time.Sleep(time.Second)
		}
		words <- "."
		readers.Wait()
	})
}

// attentive is a store that tells when a stream waits to hear other processes.
type attentive struct {
	store.Store
	attend func()
}

func (a *attentive) Unwrap() store.Store    { return a.Store }
func (a *attentive) Attend(context.Context) { a.attend() }

// TestStreamsAttendFirst looks at when streams wait to hear the deltas of other processes:
// before the run that they start, and before they begin.
func TestStreamsAttendFirst(t *testing.T) {
	on := &attentive{Store: memstore.New()}
	s := servertest.NewOn(t, on, server.Options{}, testFlows()...)
	before := make(chan error, 10) // what there was of the thread
	on.attend = func() {
		_, err := s.Runtime.Get(context.Background(), "a")
		before <- err
	}
	s.Do("POST", "/v1/threads/a/runs", `{"flow":"count","input":1}`, "Accept", "text/event-stream").Want(200)
	if err := <-before; !errors.Is(err, perdure.ErrNoThread) {
		t.Errorf("a run was started before its stream could hear it: %v", err)
	}
	<-before // of its stream
	s.Open("/v1/threads/a/events?deltas=no").Until("ended")
	if len(before) > 0 {
		t.Error("a stream without deltas waited for them")
	}
	s.Open("/v1/threads/a/events").Until("ended")
	if len(before) != 1 {
		t.Error("a stream did not wait until it hears other processes")
	}
}
