package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/store"
)

func TestNewRefusesWhatIsNoAddressOrToken(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:7373", "ftp://x", "http://", "http://u:secret@x", "http://x?a=b", "http://x#f", "http://[", "unix:/tmp/x"} {
		if _, err := client.New(address, client.Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, token := range []string{"secret\n", "secret x", "secretä"} {
		if _, err := client.New("http://x", client.Options{Token: token}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestServerThatWasNeverReachedIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		c := w.client(t, client.Options{})
		_, err := c.Flows(t.Context())
		if err == nil || !strings.Contains(err.Error(), "flows.list") || !strings.Contains(err.Error(), "is the server running? perdure dev") {
			t.Error(err)
		}
		for _, err := range c.Events(t.Context(), "x", perdure.EventOptions{}) {
			if err == nil || !strings.Contains(err.Error(), "is the server running?") {
				t.Error(err)
			}
		}
		if w.dials != 2 {
			t.Errorf("%d connections, want 2", w.dials)
		}
	})
}

// flaky answers after some connections were cut, and counts what arrives.
type flaky struct {
	cuts   atomic.Int32
	status int    // in place of a cut
	answer string // of success
	seen   atomic.Int32
	keys   []string
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	f.seen.Add(1)
	f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	if f.cuts.Add(-1) >= 0 {
		if f.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(f.status)
		kind := "unavailable"
		if f.status == 503 {
			kind = "stopping"
		}
		fmt.Fprintf(w, `{"type":"urn:perdure:problem:%s","title":"x","status":%d}`, kind, f.status)
		return
	}
	w.Header().Set("Content-Type", api.TypeJSON)
	w.Write([]byte(f.answer))
}

func TestOnlyWhatCanBeRepeatedIsSentAgain(t *testing.T) {
	calls := map[string]struct {
		again bool
		do    func(context.Context, *client.Client) error
	}{
		"read": {true, func(ctx context.Context, c *client.Client) error { _, err := c.Get(ctx, "t"); return err }},
		"start": {true, func(ctx context.Context, c *client.Client) error {
			_, err := c.Start(ctx, perdure.StartRequest{Flow: "f"})
			return err
		}},
		"answer": {true, func(ctx context.Context, c *client.Client) error { return c.Answer(ctx, perdure.AskAnswer{Ask: "a"}) }},
		"fork": {true, func(ctx context.Context, c *client.Client) error {
			_, err := c.Fork(ctx, perdure.ForkRequest{Thread: "t"})
			return err
		}},
		"keyed signal": {true, func(ctx context.Context, c *client.Client) error {
			return c.Signal(ctx, "t", "s", 1, perdure.SignalOptions{Key: "k"})
		}},
		"signal": {false, func(ctx context.Context, c *client.Client) error {
			return c.Signal(ctx, "t", "s", 1, perdure.SignalOptions{})
		}},
		"again": {false, func(ctx context.Context, c *client.Client) error {
			_, err := c.StartAgain(ctx, "t", "", perdure.Note{})
			return err
		}},
		"cancel": {false, func(ctx context.Context, c *client.Client) error { return c.Cancel(ctx, "t", "", perdure.Note{}) }},
		"import": {false, func(ctx context.Context, c *client.Client) error {
			_, err := c.Import(ctx, strings.NewReader("{}"), perdure.ImportOptions{})
			return err
		}},
	}
	for name, call := range calls {
		for _, status := range []int{0, 502, 504} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &flaky{answer: "{}", status: status}
					w := served(t, f)
					f.cuts.Store(3)
					err := call.do(t.Context(), w.client(t, client.Options{}))
					want := int32(1)
					if call.again {
						want = 4
					}
					if f.seen.Load() != want || (err == nil) != call.again {
						t.Errorf("it was sent %d times, want %d: %v", f.seen.Load(), want, err)
					}
					for _, key := range f.keys {
						if key != f.keys[0] {
							t.Errorf("the keys are %q", f.keys)
						}
					}
				})
			})
		}
	}
}

func TestServerThatIsStoppingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{answer: "{}", status: 503}
		w := served(t, f)
		f.cuts.Store(5)
		c := w.client(t, client.Options{Attempts: 4})
		var p *api.Problem
		if err := c.Cancel(t.Context(), "t", "r", perdure.Note{}); !errors.As(err, &p) || !errors.Is(err, api.ErrStopping) || p.Status != 503 {
			t.Errorf("%v", err)
		}
		if err := c.Cancel(t.Context(), "t", "r", perdure.Note{}); err != nil || f.seen.Load() != 6 {
			t.Errorf("%d requests: %v", f.seen.Load(), err)
		}
	})
}

func TestAttemptsAreBoundedAndEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		w := served(t, f)
		f.cuts.Store(1 << 20)
		for attempts, want := range map[int]int32{-1: 1, 1: 2, 0: 11} {
			f.seen.Store(0)
			_, err := w.client(t, client.Options{Attempts: attempts}).Get(t.Context(), "t")
			if err == nil || f.seen.Load() != want || !strings.Contains(err.Error(), "threads.get: the connection to perdure.localhost is lost") {
				t.Errorf("%d: %d requests, want %d: %v", attempts, f.seen.Load(), want, err)
			}
		}
		f.seen.Store(0)
		if _, err := w.client(t, client.Options{Attempts: 1, StreamAttempts: 3}).Wait(t.Context(), "t", "r"); err == nil || f.seen.Load() != 4 {
			t.Errorf("%d requests of a wait: %v", f.seen.Load(), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.client(t, client.Options{}).Get(ctx, "t"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestAnswerThatIsCutOffIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{answer: `{"id":"t","title":"` + strings.Repeat("x", 5000) + `"}`}
		w := served(t, f)
		left := []int{0, 100, 2000, 4000, 1 << 20}
		w.keep = func() int { n := left[0]; left = left[1:]; return n }
		got, err := w.client(t, client.Options{}).Get(t.Context(), "t")
		if err != nil || len(got.Title) != 5000 || len(left) != 0 {
			t.Errorf("%v, left %d", err, left)
		}
	})
}

func TestTokenGoesNowhereElseAndWritesAreNotRedirected(t *testing.T) {
	leaked := atomic.Int32{}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { leaked.Add(1) }))
	defer other.Close()
	seen := atomic.Int32{}
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			t.Errorf("%s %s has no token", r.Method, r.URL)
		case r.URL.Path == "/moved/t":
			w.Header().Set("Content-Type", api.TypeJSON)
			w.Write([]byte(`{"id":"t"}`))
		case r.URL.Path == "/v1/threads/inside":
			http.Redirect(w, r, "/moved/t", http.StatusFound)
		case r.Method == "GET":
			http.Redirect(w, r, other.URL+"/x?token=1", http.StatusFound)
		default:
			http.Redirect(w, r, "/moved/t", http.StatusTemporaryRedirect)
		}
	}))
	defer here.Close()
	c := servertest.Must(client.New(here.URL, client.Options{Token: "secret"}))(t)
	if got, err := c.Get(t.Context(), "inside"); err != nil || got.ID != "t" {
		t.Errorf("%v %v", got, err)
	}
	if _, err := c.Get(t.Context(), "outside"); err == nil || !strings.Contains(err.Error(), "use the address "+other.URL+" if") {
		t.Error(err)
	}
	for _, err := range c.Events(t.Context(), "outside", perdure.EventOptions{}) {
		if err == nil || !strings.Contains(err.Error(), "use the address "+other.URL) {
			t.Error(err)
		}
	}
	before := seen.Load()
	if _, err := c.Start(t.Context(), perdure.StartRequest{Flow: "f"}); err == nil || !strings.Contains(err.Error(), "runs.new: ") {
		t.Error(err)
	}
	if leaked.Load() != 0 || seen.Load() != before+1 {
		t.Errorf("%d requests went elsewhere, %d here", leaked.Load(), seen.Load()-before)
	}
}

func TestAnswersOfOtherServersAreNamed(t *testing.T) {
	for name, answer := range map[string]struct {
		status      int
		media, body string
	}{
		"a page": {200, "text/html", "<html>"}, "a page that is not there": {404, "text/html", "<html>"},
		"JSON of another": {404, "application/json", `{"error":"x"}`}, "half a problem": {404, api.TypeProblem, `{"type":`},
		"nothing": {200, "", ""}, "not JSON": {200, api.TypeJSON, "{"}, "other JSON": {200, api.TypeJSON, `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", answer.media)
					w.WriteHeader(answer.status)
					w.Write([]byte(answer.body))
				}))
				c := w.client(t, client.Options{Attempts: 2})
				if _, err := c.Get(t.Context(), "t"); err == nil || !strings.Contains(err.Error(), "threads.get") {
					t.Error(err)
				}
				n := 0
				for _, err := range c.Events(t.Context(), "t", perdure.EventOptions{}) {
					if n++; err == nil || !strings.Contains(err.Error(), "not Perdure's API") {
						t.Error(err)
					}
				}
				if n != 1 {
					t.Errorf("%d items", n)
				}
			})
		})
	}
}

// TestAnswersOfGateways says what happened, whether a change may have, and what to do.
func TestAnswersOfGateways(t *testing.T) {
	const maybe = "may have happened"
	for status, want := range map[int]struct {
		text  string
		maybe bool
	}{
		302: {"302 Found and sends elsewhere, and has not carried it out: use the address https://login.example", false},
		303: {"303 See Other and sends elsewhere: use the address https://login.example", true},
		308: {"308 Permanent Redirect and sends elsewhere, and has not carried it out", false},
		429: {"429 Too Many Requests, and has not passed it on: try again later, in 7 s", false},
		500: {"500 Internal Server Error, which is not Perdure's API", true},
		504: {"504 Gateway Timeout: it does not reach the server", true},
		521: {"answers 521: it does not reach the server", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			w := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				w.Header().Set("Location", "https://login.example/secret")
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
			}))
			c := w.client(t, client.Options{Attempts: 2})
			if _, err := c.Get(t.Context(), "t"); err == nil || !strings.Contains(err.Error(), want.text) || strings.Contains(err.Error(), maybe) {
				t.Errorf("%d of a read: %v", status, err)
			}
			if repeats := status > 500; repeats != (asked == 3) {
				t.Errorf("%d: a read was sent %d times", status, asked)
			}
			asked = 0
			err := c.Pause(t.Context(), "t", "r", perdure.Note{})
			if err == nil || !strings.Contains(err.Error(), want.text) || strings.Contains(err.Error(), maybe) != want.maybe || strings.Contains(err.Error(), "secret") {
				t.Errorf("%d of a write: %v", status, err)
			}
		})
	}
}

func TestEveryProblemIsTheErrorThatItStandsFor(t *testing.T) {
	const seven = 7
	seq := uint64(seven)
	errs := map[string]error{
		"unauthorized": api.ErrUnauthorized, "scope": api.ErrScope, "origin": api.ErrOrigin, "not-found": api.ErrNotFound, "method": api.ErrMethod,
		"media-type": api.ErrMedia, "body-too-large": api.ErrBodyTooLarge, "body": api.ErrBody, "too-many": api.ErrTooMany, "overloaded": api.ErrOverloaded, "stopping": api.ErrStopping,
		"no-thread": perdure.ErrNoThread, "no-run": perdure.ErrRunNotFound, "no-ask": perdure.ErrNoAsk, "no-bulk": perdure.ErrNoBulk, "no-schedule": perdure.ErrNoSchedule, "no-flow": perdure.ErrNoFlow,
		"no-memory": memory.ErrNotFound, "erased": perdure.ErrErased, "archived": perdure.ErrArchived, "thawing": archive.ErrThawing, "ask-over": perdure.ErrAskOver, "answered": perdure.ErrAnswered,
		"answer": perdure.ErrAnswer, "forbidden": perdure.ErrForbidden, "busy": perdure.ErrBusy, "queue-full": perdure.ErrQueueFull,
		"key-reused": perdure.ErrKeyReused, "nothing-to-do": perdure.ErrNothingToDo, "exists": perdure.ErrExists, "pinned": perdure.ErrPinned,
		"stale": perdure.ErrStale, "version": memory.ErrConflict, "ahead": perdure.ErrAhead, "newer": perdure.ErrNewer,
		"corrupt": perdure.ErrCorrupt, "too-large": perdure.ErrTooLarge, "not-json": perdure.ErrNotJSON, "invalid": perdure.ErrInvalid,
		"unavailable": store.ErrUnavailable, "full": store.ErrFull, "quota": perdure.ErrQuota,
	}
	for _, p := range api.Problems() {
		want, listed := errs[p.Kind()]
		delete(errs, p.Kind())
		if !listed {
			if want = p.Unwrap(); want == nil {
				continue // it stands for none
			}
		}
		synctest.Test(t, func(t *testing.T) {
			w := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				told := api.ProblemOf(map[string]error{
					"busy":     &perdure.BusyError{Thread: "t", Run: "r"},
					"stale":    &perdure.StaleError{Thread: "t", Seq: seq},
					"archived": &perdure.ArchivedError{Thread: "t", At: time.Unix(seven, 0)},
					"pinned":   &perdure.PinnedError{Thread: "t", By: []string{"a", "b"}},
					"quota":    &perdure.QuotaError{Quota: "starts", Limit: 7, Retry: 3 * time.Second, Help: "try again later"},
				}[p.Kind()])
				if told.Kind() == "internal" {
					told = api.ProblemOf(fmt.Errorf("what happened: %w", want))
				}
				w.Header().Set("Content-Type", api.TypeProblem)
				w.WriteHeader(told.Status)
				fmt.Fprint(w, jsonOf(t, told))
			}))
			c := w.client(t, client.Options{Attempts: -1})
			_, err := c.Get(t.Context(), "t")
			var got *api.Problem
			if !errors.Is(err, want) || !errors.As(err, &got) || got.Kind() != p.Kind() || got.Status != p.Status {
				t.Errorf("%s: %v", p.Kind(), err)
			}
			for _, err := range c.Events(t.Context(), "t", perdure.EventOptions{}) {
				if !errors.Is(err, want) {
					t.Errorf("events, %s: %v", p.Kind(), err)
				}
			}
			var busy *perdure.BusyError
			var stale *perdure.StaleError
			var pinned *perdure.PinnedError
			var away *perdure.ArchivedError
			switch p.Kind() {
			case "busy":
				if !errors.As(err, &busy) || busy.Run != "r" || busy.Thread != "t" {
					t.Errorf("%v", busy)
				}
			case "stale":
				if !errors.As(err, &stale) || stale.Seq != seq || stale.Thread != "t" {
					t.Errorf("%v", stale)
				}
			case "archived":
				if !errors.As(err, &away) || away.Thread != "t" || away.At.Unix() != seven {
					t.Errorf("%v", away)
				}
			case "pinned":
				if !errors.As(err, &pinned) || len(pinned.By) != 2 || pinned.Thread != "t" {
					t.Errorf("%v", pinned)
				}
			case "quota":
				if over, ok := errors.AsType[*perdure.QuotaError](err); !ok || over.Quota != "starts" || over.Limit != 7 || over.Retry != 3*time.Second || over.Help != "try again later" {
					t.Errorf("%v", over)
				}
			}
		})
	}
	for kind := range errs {
		t.Errorf("there is no kind %s", kind)
	}
}

func TestWhatAHeaderOrPathCannotCarryIsRefused(t *testing.T) {
	w := &wire{}
	c := w.client(t, client.Options{})
	for _, key := range []string{" k", "k\n", "a\x00b", "k\u0085"} {
		if _, err := c.Start(t.Context(), perdure.StartRequest{Flow: "f", Key: key}); !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := c.Get(t.Context(), ""); !errors.Is(err, perdure.ErrInvalid) {
		t.Error(err)
	}
	if _, err := c.Start(t.Context(), perdure.StartRequest{Flow: "f", Input: "a\xff"}); !errors.Is(err, perdure.ErrNotJSON) {
		t.Error(err)
	}
	if w.dials != 0 {
		t.Errorf("%d connections", w.dials)
	}
}

func TestWaitDoesNotPressAServerThatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{answer: `{"run":{"id":"r","status":"running"},"over":false}`}
		w := served(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := w.client(t, client.Options{}).Wait(ctx, "t", "")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "run r, which is running") || f.seen.Load() > 100 {
			t.Errorf("%d requests: %v", f.seen.Load(), err)
		}
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestImportLeavesTheReaderOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{answer: `{"id":"t"}`}
		w := served(t, f)
		file := &closing{Reader: strings.NewReader("{}")}
		if id, err := w.client(t, client.Options{}).Import(t.Context(), file, perdure.ImportOptions{}); id != "t" || err != nil || file.closed {
			t.Errorf("%s %v, closed: %v", id, err, file.closed)
		}
	})
}
