package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
)

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
	var messages api.MessageList
	s.Do("GET", "/v1/threads/t/messages", "").Want(200, &messages)
	if n := len(messages.Messages); n != 8 || messages.Messages[n-1].Message.Text() != "There you are." || messages.Seq != state.Seq {
		t.Errorf("there are %d messages as of %d", n, messages.Seq)
	}
	var files api.FileList
	s.Do("GET", "/v1/threads/t/files", "").Want(200, &files)
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
	for e, err := range s.Runtime.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
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
		var m map[string]json.RawMessage
		s.Do("GET", path, "").Want(200, &m)
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
	for e, err := range s.Runtime.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
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
