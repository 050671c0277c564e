package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
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
		want = slices.Insert(want, 0, id)
	}
	asked := plainWait(s, plainStart(s, "asked", "ask", "{}"))
	want = slices.Insert(want, 0, "asked")
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
		page := servertest.Decode[api.ThreadPage](s.Do("GET", "/v1/threads?"+query, ""), 200)
		if len(page.Threads) != n || page.Next != "" {
			t.Errorf("%s: %d threads, want %d; next %q", query, len(page.Threads), n, page.Next)
		}
	}
	for _, query := range []string{"limit=1001", "limit=-1", "limit=x", "status=well", "after=%00", "after=../x", "asks=perhaps", "updated=now", "updated_before=0001-01-01T00:00:00Z", "user=%ff", "sort=up", "limit=1&limit=2"} {
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
	state := servertest.Decode[api.State](ann.Do("GET", "/v1/threads/t/state", ""), 200)
	if string(state.State["tone"]) != `"low"` || string(state.State["n"]) != "12345678901234567890" {
		t.Errorf("the state is %s", state.State)
	}
	var page api.ThreadPage
	ann.Do("GET", "/v1/threads?status=idle", "").Want(200, &page)
	if len(page.Threads) != 1 || page.Threads[0].ID != "t" {
		t.Errorf("idle are %v", page.Threads)
	}
	stats := servertest.Decode[api.Stats](ann.Do("GET", "/v1/stats", ""), 200)
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
	fresh := servertest.Decode[perdure.Thread](ann.Do("POST", "/v1/threads", ""), 201)
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
	p := servertest.Decode[api.Problem](s.Do("DELETE", "/v1/threads/t", "").Problem(409, "pinned"), 409)
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
	check := servertest.Decode[perdure.Verification](s.Do("GET", "/v1/threads/copy/verify", ""), 200)
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

var plainTone = perdure.NewState[string]("tone")

// plainTune is a flow that sets a key of the state.
var plainTune = perdure.NewFlow("tune", func(ctx context.Context, tone string) (string, error) {
	return perdure.Step(ctx, "set", func(ctx context.Context) (string, error) { return tone, plainTone.Set(ctx, tone) })
})

// plainShots are the pictures of the agent that takes some, by media type.
var plainShots = map[string][]byte{
	"image/png":                bytes.Repeat([]byte("png"), 2000),
	"text/html":                bytes.Repeat([]byte("<script>alert(1)</script>"), 200),
	"image/svg+xml":            bytes.Repeat([]byte("<svg onload=x>"), 200),
	"application/pdf; v=1":     bytes.Repeat([]byte("pdf"), 2000),
	"":                         bytes.Repeat([]byte("nothing"), 2000),
	"image/png\r\nX-Evil: yes": bytes.Repeat([]byte("evil"), 2000),
}

func plainArtist() perdure.Flow {
	shoot := agent.NewTool("shoot", "Takes pictures.", func(context.Context, struct{}) (agent.Output, error) {
		out := agent.Output{Text: "done"}
		for media, data := range plainShots {
			out.Media = append(out.Media, llm.Media{MIME: media, Data: data})
		}
		return out, nil
	})
	tools := append(append(agent.FileTools(files.State()), agent.TodoTools()...), shoot)
	return agent.NewFlow("artist", agent.New("artist", script.New(
		script.Call("write_file", `{"path":"/notes.txt","text":"hello"}`),
		script.Call("write_todos", `{"todos":[{"content":"shoot"}]}`),
		script.Call("shoot", `{}`),
		script.Say("There you are."),
	), agent.Options{Tools: tools}))
}

func TestWhatAnAgentLeftIsLookedAt(t *testing.T) {
	s := servertest.New(t, plainOptions, plainArtist())
	run := plainWait(s, plainStart(s, "t", "artist", `"Please."`))
	if run.Status != perdure.Succeeded {
		t.Fatalf("the run is %s: %s", run.Status, run.Error)
	}
	var state api.State
	tag := s.Do("GET", "/v1/threads/t/state", "").Want(200, &state).Header.Get("ETag")
	if len(state.Todos) != 1 || state.Todos[0].Content != "shoot" || tag != fmt.Sprintf("%q", fmt.Sprint(state.Seq)) {
		t.Errorf("the todos are %v at %s", state.Todos, tag)
	}
	messages := servertest.Decode[api.MessageList](s.Do("GET", "/v1/threads/t/messages", ""), 200)
	if n := len(messages.Messages); n != 8 || messages.Messages[n-1].Message.Text() != "There you are." || messages.Seq != state.Seq {
		t.Errorf("there are %d messages as of %d", n, messages.Seq)
	}
	files := servertest.Decode[api.FileList](s.Do("GET", "/v1/threads/t/files", ""), 200)
	if len(files.Files) != 1 || files.Files[0].Text != "" || files.Files[0].Size != 5 {
		t.Errorf("the files are %+v", files.Files)
	}
	s.Do("GET", "/v1/threads/t/files?path=/notes.txt", "").Want(200, &files)
	if len(files.Files) != 1 || files.Files[0].Text != "hello" {
		t.Errorf("the files are %+v", files.Files)
	}
	s.Do("GET", "/v1/threads/t/files?path=/none", "").Problem(404, "not-found")
	s.Do("GET", "/v1/threads/t/files?path=/notes.txt&at=1", "").Problem(404, "not-found")
	for media, data := range plainShots {
		sum := sha256.Sum256(data)
		blob := s.Do("GET", "/v1/blobs/t/"+hex.EncodeToString(sum[:]), "").Want(200)
		want := map[string]string{"image/png": "image/png", "application/pdf; v=1": "application/pdf"}[media]
		if want == "" {
			want = "application/octet-stream"
		}
		h := blob.Header
		if h.Get("Content-Type") != want || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Disposition") != "attachment" ||
			h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Evil") != "" || !bytes.Equal(blob.Body, data) {
			t.Errorf("%q: %d bytes with %v", media, len(blob.Body), h)
		}
	}
	sum := sha256.Sum256(plainShots["image/png"])
	s.Do("GET", "/v1/blobs/t/"+hex.EncodeToString(sum[:])+"?at=2", "").Problem(404, "not-found")
	s.Do("GET", "/v1/blobs/t/none", "").Problem(404, "not-found")
	s.Do("GET", "/v1/blobs/none/none", "").Problem(404, "no-thread")
}

func TestOtherStateIsNoBlob(t *testing.T) {
	s := servertest.New(t, plainOptions, plainTune)
	plainWait(s, plainStart(s, "t", "tune", `"low"`))
	for _, hash := range []string{"tone", "..%2Ftone", "%00", ":tone"} {
		s.Do("GET", "/v1/blobs/t/"+hash, "").Problem(404, "not-found")
	}
}

func TestAThreadTravels(t *testing.T) {
	s := servertest.New(t, plainOptions, append(plainFlows(), plainTune)...)
	plainWait(s, plainStart(s, "t", "tune", `"low"`))
	var low, high api.State
	s.Do("GET", "/v1/threads/t/state", "").Want(200, &low)
	plainWait(s, plainStart(s, "t", "tune", `"high"`))
	s.Do("GET", "/v1/threads/t/state", "").Want(200, &high)
	var then api.State
	r := s.Do("GET", fmt.Sprintf("/v1/threads/t/state?at=%d", low.Seq), "").Want(200, &then)
	if string(then.State["tone"]) != `"low"` || string(high.State["tone"]) != `"high"` || r.Header.Get("ETag") != "" {
		t.Errorf("the tone is %s, then %s", then.State["tone"], high.State["tone"])
	}
	s.Do("GET", "/v1/threads/t/state?at=9999", "").Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t/messages?at=9999", "").Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t/files?at=9999", "").Problem(400, "invalid")
	for _, what := range []string{"state", "messages", "files", "history", "diff?from=1"} {
		s.Do("GET", "/v1/threads/none/"+what, "").Problem(404, "no-thread")
	}

	var diff perdure.Difference
	s.Do("GET", fmt.Sprintf("/v1/threads/t/diff?from=%d", low.Seq), "").Want(200, &diff)
	if len(diff.State) != 1 || string(diff.State[0].Before) != `"low"` || string(diff.State[0].After) != `"high"` {
		t.Errorf("the difference is %+v", diff)
	}
	s.Do("GET", "/v1/threads/t/diff", "").Problem(400, "invalid")

	var fork perdure.Fork
	body := fmt.Sprintf(`{"at":%d,"as":"f","title":"F","state":{"tone":"loud"},"reason":"try"}`, low.Seq)
	r = s.Do("POST", "/v1/threads/t/fork", body).Want(201, &fork)
	if fork.Thread != "f" || fork.At != low.Seq || len(fork.Outside) == 0 || r.Header.Get("Location") != "/v1/threads/f" {
		t.Errorf("the fork is %+v at %s", fork, r.Header.Get("Location"))
	}
	s.Do("GET", "/v1/threads/f/state", "").Want(200, &then)
	if string(then.State["tone"]) != `"loud"` {
		t.Errorf("the fork's tone is %s", then.State["tone"])
	}
	s.Do("GET", "/v1/threads/t/diff?with=f", "").Want(200, &diff)
	if diff.Common != low.Seq || len(diff.State) != 1 {
		t.Errorf("the difference is %+v", diff)
	}
	s.Do("POST", "/v1/threads/t/fork", fmt.Sprintf(`{"at":%d,"as":"g","state":{"tone":null}}`, low.Seq)).Want(201)
	then = api.State{}
	s.Do("GET", "/v1/threads/g/state", "").Want(200, &then)
	if _, there := then.State["tone"]; there {
		t.Errorf("the removed tone is %s", then.State["tone"])
	}
	s.Do("POST", "/v1/threads/t/fork", `{"as":"f"}`).Problem(409, "exists")
	s.Do("POST", "/v1/threads/t/fork", `{"at":9999}`).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/none/fork", ``).Problem(404, "no-thread")

	tag := s.Do("GET", "/v1/threads/t", "").Header.Get("ETag")
	rewind := fmt.Sprintf(`{"to":%d,"reason":"back"}`, low.Seq)
	s.Do("POST", "/v1/threads/t/rewind", rewind, "If-Match", `"1"`).Problem(412, "stale")
	s.Do("POST", "/v1/threads/t/rewind", `{"to":3}`).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/rewind", `{}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/none/rewind", rewind).Problem(404, "no-thread")
	var back perdure.Rewound
	r = s.Do("POST", "/v1/threads/t/rewind", rewind, "If-Match", tag).Want(200, &back)
	if back.To != low.Seq || r.Header.Get("ETag") != fmt.Sprintf("%q", fmt.Sprint(back.Seq)) {
		t.Errorf("it went back as %+v, at %s", back, r.Header.Get("ETag"))
	}
	s.Do("POST", "/v1/threads/t/rewind", rewind, "If-Match", tag).Problem(412, "stale")
	s.Do("GET", "/v1/threads/t/state", "").Want(200, &then)
	if string(then.State["tone"]) != `"low"` {
		t.Errorf("the tone is %s again", then.State["tone"])
	}
	plainWait(s, plainStart(s, "t", "ask", "{}"))
	s.Do("POST", "/v1/threads/t/rewind", rewind).Problem(409, "busy")
}

func TestAForkBeginsWithAnotherInput(t *testing.T) {
	s := servertest.New(t, plainOptions, plainFlows()...)
	run := plainWait(s, plainStart(s, "t", "echo", `"one"`))
	s.Do("POST", "/v1/threads/t/fork", fmt.Sprintf(`{"at":%d,"as":"f","input":"two"}`, run.Seq)).Want(201)
	s.Do("POST", "/v1/threads/f/runs/newest/resume", "").Want(200)
	if over := plainWait(s, &perdure.Run{Thread: "f", ID: api.Newest}); string(over.Output) != `"two"` {
		t.Errorf("the output is %s", over.Output)
	}
}

func TestHistoryIsReadPageByPage(t *testing.T) {
	s := servertest.New(t, plainOptions, append(plainFlows(), plainTune)...)
	for i := range 4 {
		plainWait(s, plainStart(s, "t", "tune", fmt.Sprintf(`"%d"`, i)))
	}
	var want []uint64
	for _, e := range servertest.All(t, s.Runtime.Events(t.Context(), "t", perdure.EventOptions{Replay: true})) {
		if e.Kind != "claimed" && e.Kind != "released" {
			want = append(want, e.Seq)
		}
	}
	for _, limit := range []int{1, 2, 5, 1000} {
		var got []uint64
		after := uint64(0)
		for range 100 {
			var page api.HistoryPage
			s.Do("GET", fmt.Sprintf("/v1/threads/t/history?limit=%d&after=%d", limit, after), "").Want(200, &page)
			for _, c := range page.Checkpoints {
				got = append(got, c.Seq)
				s.Do("GET", fmt.Sprintf("/v1/threads/t/state?at=%d", c.Seq), "").Want(200)
			}
			if after = page.Next; after == 0 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with pages of %d: %v, want %v", limit, got, want)
		}
	}
	s.Do("GET", "/v1/threads/t/history?limit=1001", "").Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t/history?after=9999", "").Problem(400, "ahead")
}

func TestAnEmptyThreadHasEmptyLists(t *testing.T) {
	s := servertest.New(t, plainOptions, plainFlows()...)
	plainWait(s, plainStart(s, "t", "echo", `"x"`))
	for path, key := range map[string]string{"/v1/threads/t/messages": "messages", "/v1/threads/t/files": "files", "/v1/asks": "asks", "/v1/memory": "items", "/v1/rules": "rules"} {
		m := servertest.Decode[map[string]json.RawMessage](s.Do("GET", path, ""), 200)
		if string(m[key]) != "[]" {
			t.Errorf("%s of %s is %s", key, path, m[key])
		}
	}
}

// What agents have said and done is not for callers to write.
func TestAForkForgesNothingOfTheAgents(t *testing.T) {
	s := newFuzzed(t)
	for _, key := range []string{"agent.messages", "agent.todos", "agent.file:a", "agent.blob:" + strings.Repeat("0", 64)} {
		s.Do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"`+key+`":5}}`).Problem(400, "invalid")
	}
	s.Do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"agents":5}}`).Want(201)
}

// A token that may not answer cannot use the answers of others again, and one
// that may keeps only those that it could have given.
func TestAForkReplaysNoApproval(t *testing.T) {
	var paid atomic.Int64
	s := servertest.New(t, server.Options{Auth: servertest.People{
		"ann":  {Subject: "ann", Groups: []string{"buyers"}, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}},
		"bob":  {Subject: "bob", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}},
		"mall": {Subject: "mall", Groups: []string{"buyers"}, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun}},
	}}, perdure.NewFlow("pay", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Who: []string{"group:buyers"}, Allows: []string{"pay"}}); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "pay", func(context.Context) (string, error) { paid.Add(1); return "paid", nil })
	}))
	s.Token = "ann"
	run := plainWait(s, plainStart(s, "t", "pay", `""`))
	s.Do("POST", "/v1/asks/"+run.Asks[0].ID+"/answer", `{"value":true}`).Want(200)
	plainWait(s, &perdure.Run{Thread: "t", ID: api.Newest})
	at := uint64(0)
	for _, e := range servertest.All(t, s.Runtime.Events(t.Context(), "t", perdure.EventOptions{Replay: true})) {
		if e.Kind == "answered" {
			at = e.Seq
		}
	}
	fork := func(who, as, keep string) *servertest.Reply {
		return plainAs(s, who).Do("POST", "/v1/threads/t/fork", fmt.Sprintf(`{"at":%d,"as":%q%s}`, at, as, keep))
	}
	fork("mall", "a", "").Want(201)
	fork("mall", "b", `,"keep":true`).Problem(403, "scope")
	fork("bob", "b", `,"keep":true`).Problem(403, "forbidden")
	s.Do("POST", "/v1/threads/a/runs/newest/resume", "").Want(200)
	if run := plainWait(s, &perdure.Run{Thread: "a", ID: api.Newest}); run.Status != perdure.Suspended || paid.Load() != 1 {
		t.Errorf("the fork is %s, and was paid %d times", run.Status, paid.Load())
	}
	fork("ann", "b", `,"keep":true`).Want(201)
	s.Do("POST", "/v1/threads/b/runs/newest/resume", "").Want(200)
	if run := plainWait(s, &perdure.Run{Thread: "b", ID: api.Newest}); run.Status != perdure.Succeeded || paid.Load() != 2 {
		t.Errorf("the fork that keeps the answer is %s, and was paid %d times", run.Status, paid.Load())
	}
}

// A thread with damage in its middle, or in its first entry, says so on every
// route, in a stream also behind what is good, and in lists.
func TestADamagedThreadSaysSo(t *testing.T) {
	for what, at := range map[string]struct {
		mark string
		good uint64
	}{"the middle": {`"k":"suspended"`, 4}, "the first entry": {`"k":"created"`, 0}} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			open := func() store.Store { return servertest.Must(store.Open(t.Context(), "file:"+dir))(t) }
			t.Run("before", func(t *testing.T) {
				s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
				plainWait(s, plainStart(s, "t", "yes", "2"))
			})
			damaged := 0
			err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(filepath.Join(dir, name))
				if i := bytes.Index(data, []byte(at.mark)); err == nil && i > 0 {
					damaged++
					data[i+5] ^= 1
					err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
				}
				return err
			})
			if err != nil || damaged != 1 {
				t.Fatalf("%d files were damaged: %v", damaged, err)
			}
			s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
			detail := s.Do("GET", "/v1/threads/t", "").Problem(422, "corrupt")
			if text := string(detail.Body); strings.Contains(text, "entry 0") || strings.Contains(text, "thread ,") || !strings.Contains(text, "thread t") {
				t.Errorf("it says %s", text)
			}
			page := servertest.Decode[api.ThreadPage](s.Do("GET", "/v1/threads", ""), 200)
			if len(page.Threads) != 1 || page.Threads[0].Status != perdure.Damaged {
				t.Errorf("it is listed as %+v", page.Threads)
			}
			var events api.EventPage
			if at.good == 0 {
				s.Do("GET", "/v1/threads/t/events", "").Problem(422, "corrupt")
				s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents).Problem(422, "corrupt")
			} else {
				s.Do("GET", "/v1/threads/t/events", "").Want(200, &events)
				if n := len(events.Events); n == 0 || events.Next != events.Events[n-1].Seq {
					t.Fatalf("the page is %+v", events)
				}
				after := api.IDOf(events.Next, "", false)
				s.Do("GET", "/v1/threads/t/events?after="+string(after), "").Problem(422, "corrupt")
				s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents, "Last-Event-ID", string(after)).Problem(422, "corrupt")
				stream := s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents)
				if text := string(stream.Body); stream.Status != 200 || !strings.Contains(text, "\nevent: corrupt\ndata: {") || !strings.Contains(text, "urn:perdure:problem:corrupt") {
					t.Errorf("the stream is %d %s", stream.Status, text)
				}
			}
		})
	}
}

// Damage beside threads hides none of them: a damaged summary is mended, and
// what belongs to nobody is named.
func TestDamageHidesNoThreads(t *testing.T) {
	dir := t.TempDir()
	open := func() store.Store { return servertest.Must(store.Open(t.Context(), "file:"+dir))(t) }
	t.Run("before", func(t *testing.T) {
		s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
		for _, id := range []string{"a", "b", "c"} {
			plainWait(s, plainStart(s, id, "yes", "2"))
		}
	})
	files, err := filepath.Glob(filepath.Join(dir, "cells", "*", "thread-*.json"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	strays := []string{files[1]}
	for _, pattern := range []string{"index-*", "id-*"} { // of each facet, and of what lists do not read
		found, err := filepath.Glob(filepath.Join(dir, "cells", "*", pattern))
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		strays = append(strays, found...)
	}
	for i, file := range strays {
		data := servertest.Must(os.ReadFile(file))(t)
		strays[i] = strings.Replace(file, ".json", "0.json", 1)
		servertest.Check(t, os.WriteFile(strays[i], data, 0o600))
	}
	data := servertest.Must(os.ReadFile(files[1]))(t)
	data[len(data)/2] ^= 1
	servertest.Check(t, os.WriteFile(files[1], data, 0o600))
	s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
	for range 2 {
		threads := servertest.Decode[api.ThreadPage](s.Do("GET", "/v1/threads", ""), 200)
		asks := servertest.Decode[api.AskPage](s.Do("GET", "/v1/asks", ""), 200)
		if len(threads.Threads) != 3 || len(asks.Asks) != 6 || len(threads.Damage) != 1 || len(asks.Damage) != 1 || !strings.Contains(asks.Damage[0], "index-") {
			t.Errorf("there are %d threads and %d asks; damage: %q and %q", len(threads.Threads), len(asks.Asks), threads.Damage, asks.Damage)
		}
	}
	s.Do("GET", "/readyz", "").Want(200)
	stats := servertest.Decode[api.Stats](s.Do("GET", "/v1/stats", ""), 200)
	if stats.Threads != 3 {
		t.Errorf("%+v", stats)
	}
}

// TestListSaysWhy: for each thread of a page, which is shorter then.
func TestListSaysWhy(t *testing.T) {
	s := servertest.New(t, server.Options{}, testFlows()...)
	s.Do("POST", "/v1/threads/t1/runs", `{"flow":"ask","input":"May I?"}`).Want(202)
	servertest.Must(s.Runtime.Wait(t.Context(), "t1", ""))(t)
	thread := servertest.Decode[perdure.Thread](s.Do("GET", "/v1/threads/t1", ""), 200)
	page := servertest.Decode[api.ThreadPage](s.Do("GET", "/v1/threads?why=true&limit=200", ""), 200)
	if len(page.Threads) != 1 || thread.Why == nil || thread.Why.State != perdure.WhyPerson || thread.Why.Text != "it waits for an answer: May I?" {
		t.Fatalf("the thread is %+v, and the page %+v", thread.Why, page)
	}
	if diff := cmp.Diff(thread.Why, page.Threads[0].Why); diff != "" {
		t.Error(diff)
	}
	if plain := servertest.Decode[api.ThreadPage](s.Do("GET", "/v1/threads", ""), 200); plain.Threads[0].Why != nil {
		t.Error("it says why though nobody asked")
	}
	s.Do("GET", "/v1/threads?why=true&limit=201", "").Problem(400, "invalid")
}
