package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	s := servertest.New(t, server.Options{}, append(servertest.Flows(), listenFlow(let))...)
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
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
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
		s := servertest.NewPiped(t, polledStore{memstore.New()}, server.Options{}, false, servertest.Flows()...)
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
		s := servertest.NewPiped(t, memstore.New(), server.Options{}, false, servertest.Flows()...)
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
	s := servertest.New(t, server.Options{Limits: server.Limits{Streams: 1}}, servertest.Flows()...)
	held := s.Open("/v1/events")
	var run perdure.Run
	s.Do("POST", "/v1/threads/b/runs", `{"flow":"count","input":1}`, "Accept", "text/event-stream").Want(202, &run)
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
		s := servertest.NewPiped(t, memstore.New(), server.Options{}, true, perdure.NewFlow("sleep", func(ctx context.Context, _ string) (string, error) {
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
		s := servertest.NewPiped(t, memstore.New(), server.Options{}, false, servertest.Flows()...)
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
				s := servertest.NewPiped(t, memstore.New(), server.Options{Auth: tokens}, true, servertest.Large(func(int) int { return 30 << 10 }))
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
				s := servertest.NewPiped(t, polledStore{memstore.New()}, server.Options{}, false, servertest.Flows()...)
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
