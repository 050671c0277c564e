package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestThreadsAreListedPageByPage(t *testing.T) {
	s := plainSite(t)
	var want []string
	for i := range 7 {
		id := fmt.Sprintf("t%d", i)
		user := []string{"ann", "bob"}[i%2]
		s.Do("POST", "/v1/threads/"+id+"/runs", fmt.Sprintf(`{"flow":"echo","input":"x","user":%q}`, user)).Want(202)
		plainWait(s, &perdure.Run{Thread: id, ID: api.Newest})
		want = append(want, id)
	}
	asked := plainWait(s, plainStart(s, "asked", "ask", "{}"))
	want = append(want, "asked")
	var got []string
	after := ""
	for range 10 {
		var page api.ThreadPage
		s.Do("GET", "/v1/threads?limit=3&after="+after, "").Want(200, &page)
		for _, sum := range page.Threads {
			got = append(got, sum.ID)
		}
		if after = page.Next; after == "" {
			break
		}
		if len(page.Threads) != 3 {
			t.Errorf("a page that is not the last has %d threads", len(page.Threads))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the threads are %q, want %q", got, want)
	}
	for query, n := range map[string]int{"user=ann": 4, "user=bob": 3, "user=eve": 0, "flow=echo": 7, "flow=ask": 1, "asks=true": 1, "": 8, "limit=8": 8, "limit=1000": 8, "status=idle": 0,
		"updated=2100-01-01T00:00:00Z": 0, "updated=" + asked.Created.UTC().Format(time.RFC3339Nano): 1} {
		var page api.ThreadPage
		s.Do("GET", "/v1/threads?"+query, "").Want(200, &page)
		if len(page.Threads) != n || page.Next != "" {
			t.Errorf("%s: %d threads, want %d; next %q", query, len(page.Threads), n, page.Next)
		}
	}
	for _, query := range []string{"limit=1001", "limit=-1", "limit=x", "status=well", "after=%00", "after=../x", "asks=perhaps", "updated=now", "sort=up", "limit=1&limit=2"} {
		s.Do("GET", "/v1/threads?"+query, "").Problem(400, "invalid")
	}
}

func TestAThreadIsMadeWithoutARun(t *testing.T) {
	s := plainTeam(t, plainTune)
	ann := plainAs(s, "ann")
	var made, again perdure.Thread
	body := `{"id":"t","title":"T","metadata":{"a":"b"},"state":{"tone":"low","n":12345678901234567890}}`
	r := ann.Do("POST", "/v1/threads", body, "Idempotency-Key", "k").Want(201, &made)
	if made.ID != "t" || made.User != "ann" || made.Title != "T" || made.Metadata["a"] != "b" || made.Status != "" ||
		r.Header.Get("Location") != "/v1/threads/t" || r.Header.Get("ETag") != fmt.Sprintf("%q", fmt.Sprint(made.Seq)) {
		t.Errorf("the thread is %+v with %v", made, r.Header)
	}
	ann.Do("POST", "/v1/threads", body, "Idempotency-Key", "k").Want(201, &again)
	if again.Seq != made.Seq {
		t.Errorf("it was made again, at %d", again.Seq)
	}
	ann.Do("POST", "/v1/threads", body).Problem(409, "exists")
	ann.Do("POST", "/v1/threads", `{"id":"t","title":"U"}`, "Idempotency-Key", "k").Problem(409, "key-reused")
	ann.Do("POST", "/v1/threads", `{"id":"u","state":{"agent.messages":[]}}`).Problem(400, "invalid")
	ann.Do("POST", "/v1/threads", `{"id":"`+strings.Repeat("x", 2000)+`"}`).Problem(400, "invalid")
	var state api.State
	ann.Do("GET", "/v1/threads/t/state", "").Want(200, &state)
	if string(state.State["tone"]) != `"low"` || string(state.State["n"]) != "12345678901234567890" {
		t.Errorf("the state is %s", state.State)
	}
	var page api.ThreadPage
	ann.Do("GET", "/v1/threads?status=idle", "").Want(200, &page)
	if len(page.Threads) != 1 || page.Threads[0].ID != "t" {
		t.Errorf("idle are %v", page.Threads)
	}
	var stats api.Stats
	ann.Do("GET", "/v1/stats", "").Want(200, &stats)
	if stats.Statuses["idle"] != 1 {
		t.Errorf("the stats are %+v", stats)
	}
	for _, verb := range []string{"pause", "resume", "cancel", "retry", "again"} {
		ann.Do("POST", "/v1/threads/t/runs/newest/"+verb, "").Problem(404, "no-run")
	}
	ann.Do("GET", "/v1/threads/t/runs/newest", "").Problem(404, "no-run")
	ann.Do("GET", "/v1/threads/t/runs/newest/wait", "").Problem(404, "no-run")
	var list api.RunList
	if ann.Do("GET", "/v1/threads/t/runs", "").Want(200, &list); len(list.Runs) != 0 || list.Runs == nil {
		t.Errorf("the runs are %v", list.Runs)
	}
	run := plainWait(ann, plainStart(ann, "t", "tune", `"high"`, "If-Match", r.Header.Get("ETag")))
	if run.Status != perdure.Succeeded {
		t.Errorf("the run is %s", run.Status)
	}
	var fresh perdure.Thread
	ann.Do("POST", "/v1/threads", "").Want(201, &fresh)
	if fresh.ID == "" || fresh.User != "ann" {
		t.Errorf("the thread is %+v", fresh)
	}
}

func TestTitleAndMetadataAreChanged(t *testing.T) {
	s := plainSite(t)
	plainWait(s, plainStart(s, "t", "echo", `"x"`))
	var now perdure.Thread
	r := s.Do("PATCH", "/v1/threads/t", `{"title":"New","metadata":{"a":"1","b":"2"}}`).Want(200, &now)
	if now.Title != "New" || now.Metadata["b"] != "2" || r.Header.Get("ETag") != fmt.Sprintf("%q", fmt.Sprint(now.Seq)) {
		t.Errorf("the thread is %+v with the tag %s", now, r.Header.Get("ETag"))
	}
	now = perdure.Thread{}
	s.Do("PATCH", "/v1/threads/t", `{"metadata":{"a":""}}`).Want(200, &now)
	if _, there := now.Metadata["a"]; there || now.Title != "New" {
		t.Errorf("the thread is %+v", now)
	}
	s.Do("PATCH", "/v1/threads/t", `{}`).Problem(400, "invalid")
	s.Do("PATCH", "/v1/threads/none", `{"title":"x"}`).Problem(404, "no-thread")
}

func TestAThreadIsErased(t *testing.T) {
	s := plainSite(t)
	plainWait(s, plainStart(s, "t", "echo", `"x"`))
	s.Do("POST", "/v1/threads/t/fork", `{"as":"f"}`).Want(201)
	s.Do("DELETE", "/v1/threads/t", "", "If-Match", `"1"`).Problem(412, "stale")
	var p api.Problem
	s.Do("DELETE", "/v1/threads/t", "").Problem(409, "pinned").Want(409, &p)
	if !slices.Equal(p.Pins, []string{"f"}) {
		t.Errorf("the pins are %v", p.Pins)
	}
	s.Do("DELETE", "/v1/threads/t?dependents=true&reason=asked", "").Want(204)
	s.Do("DELETE", "/v1/threads/t", "").Problem(404, "no-thread")
	for _, id := range []string{"t", "f"} {
		s.Do("GET", "/v1/threads/"+id, "").Problem(404, "no-thread")
	}
}

func TestAnExportIsImported(t *testing.T) {
	s := plainSite(t)
	plainWait(s, plainStart(s, "t", "echo", `"hello"`))
	file := s.Do("GET", "/v1/threads/t/export", "").Want(200)
	if file.Header.Get("Content-Type") != "application/x-ndjson" || file.Header.Get("Content-Disposition") == "" {
		t.Errorf("the headers are %v", file.Header)
	}
	v, err := perdure.VerifyExport(bytes.NewReader(append(file.Body, '\n')))
	if err != nil || !v.OK() {
		t.Fatalf("the export is %+v: %v", v, err)
	}
	redacted := s.Do("GET", "/v1/threads/t/export?redact=true", "").Want(200)
	if bytes.Contains(redacted.Body, []byte("hello")) {
		t.Error("the redacted export says what was said")
	}
	body := string(file.Body) + "\n"
	var made perdure.Thread
	r := s.Do("POST", "/v1/threads/import?as=copy", body, "Content-Type", "application/x-ndjson").Want(201, &made)
	if made.ID != "copy" || len(made.Runs) != 1 || r.Header.Get("Location") != "/v1/threads/copy" || r.Header.Get("ETag") == "" {
		t.Errorf("the thread is %+v at %s", made, r.Header.Get("Location"))
	}
	s.Do("POST", "/v1/threads/import?as=copy2", body, "Content-Type", "application/octet-stream").Want(201)
	s.Do("POST", "/v1/threads/import", body).Problem(409, "exists")
	s.Do("POST", "/v1/threads/import?as=x", body, "Content-Type", "application/json").Problem(415, "media-type")
	s.Do("POST", "/v1/threads/import?as=x", body[:len(body)/2]).Problem(422, "corrupt")
	s.Do("POST", "/v1/threads/import?as=x", strings.Replace(body, "hello", "jello", 1)).Problem(422, "corrupt")
	s.Do("POST", "/v1/threads/import?as=x", string(redacted.Body)+"\n").Problem(400, "invalid")
	s.Do("POST", "/v1/threads/import?as=x", "").Problem(422, "corrupt")
	s.Do("GET", "/v1/threads/x", "").Problem(404, "no-thread")
	s.Do("GET", "/v1/threads/none/export", "").Problem(404, "no-thread")
	var check perdure.Verification
	s.Do("GET", "/v1/threads/copy/verify", "").Want(200, &check)
	if !check.OK() {
		t.Errorf("the copy is %+v", check)
	}
	s.Do("GET", "/v1/threads/none/verify", "").Problem(404, "no-thread")
}

// plainCut is a store whose reading of journals fails after some entries.
type plainCut struct {
	store.Store
	after int // 0: never
}

func (c *plainCut) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for e, err := range c.Store.Read(ctx, journal, after) {
			if n++; c.after > 0 && n > c.after {
				yield(store.Entry{}, errors.New("the disk is gone"))
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func TestAnExportThatFailsInTheMiddleDoesNotLookWhole(t *testing.T) {
	inner := memstore.New()
	many := perdure.NewFlow("many", func(ctx context.Context, text string) (string, error) {
		for i := range 40 {
			if _, err := perdure.Step(ctx, fmt.Sprintf("s%d", i), func(context.Context) (string, error) { return strings.Repeat("x", 8000), nil }); err != nil {
				return "", err
			}
		}
		return text, nil
	})
	s := servertest.NewOn(t, inner, server.Options{}, many)
	plainWait(s, plainStart(s, "t", "many", `"x"`))
	cut := servertest.Must(perdure.New(t.Context(), &plainCut{Store: inner, after: 30}, perdure.Options{}, many))(t)
	broken := server.New(cut, server.Options{})
	defer broken.Close()
	ts := plainServe(t, broken)
	resp := servertest.Must(http.Get(ts + "/v1/threads/t/export"))(t)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if resp.StatusCode == 200 && err == nil {
		t.Errorf("the client takes %d bytes for the whole file", len(data))
	}
	if len(data) == 0 {
		t.Error("nothing was sent before it failed: the test shows nothing")
	}
}
