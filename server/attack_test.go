package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// many returns a JSON list of n times the same.
func many(item string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// An element of a list is worth three bytes of a body, and was a thousand times
// as much work.
func TestAttackListsOfObjectsAreBounded(t *testing.T) {
	s := newFuzzed(t)
	s.do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1_000_000)+`}`).problem(400, "body")
	s.do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1001)+`}`).problem(400, "invalid")
	s.do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":`+many("{}", 1_000_000)+`}}`).problem(400, "invalid")
	s.do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[5]}}`).problem(400, "body")
}

// What agents have said and done is not for callers to write.
func TestAttackAForkForgesNothingOfTheAgents(t *testing.T) {
	s := newFuzzed(t)
	for _, key := range []string{"agent.messages", "agent.todos", "agent.file:a", "agent.blob:" + strings.Repeat("0", 64)} {
		s.do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"`+key+`":5}}`).problem(400, "invalid")
	}
	s.do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"agents":5}}`).want(201)
}

// A token that may not answer cannot use the answers of others again, and one
// that may keeps only those that it could have given.
func TestAttackAForkReplaysNoApproval(t *testing.T) {
	var paid atomic.Int64
	s := newSite(t, server.Options{Auth: plainPeople{
		"ann":  {Subject: "ann", Groups: []string{"buyers"}, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}},
		"bob":  {Subject: "bob", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}},
		"mall": {Subject: "mall", Groups: []string{"buyers"}, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun}},
	}}, perdure.NewFlow("pay", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Who: []string{"group:buyers"}, Allows: []string{"pay"}}); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "pay", func(context.Context) (string, error) { paid.Add(1); return "paid", nil })
	}))
	s.token = "ann"
	run := plainWait(s, plainStart(s, "t", "pay", `""`))
	s.do("POST", "/v1/asks/"+run.Asks[0].ID+"/answer", `{"value":true}`).want(200)
	plainWait(s, &perdure.Run{Thread: "t", ID: api.Newest})
	at := uint64(0)
	for e, err := range s.rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "answered" {
			at = e.Seq
		}
	}
	fork := func(who, as, keep string) *reply {
		return plainAs(s, who).do("POST", "/v1/threads/t/fork", fmt.Sprintf(`{"at":%d,"as":%q%s}`, at, as, keep))
	}
	fork("mall", "a", "").want(201)
	fork("mall", "b", `,"keep":true`).problem(403, "scope")
	fork("bob", "b", `,"keep":true`).problem(403, "forbidden")
	s.do("POST", "/v1/threads/a/runs/newest/resume", "").want(200)
	if run := plainWait(s, &perdure.Run{Thread: "a", ID: api.Newest}); run.Status != perdure.Suspended || paid.Load() != 1 {
		t.Errorf("the fork is %s, and was paid %d times", run.Status, paid.Load())
	}
	fork("ann", "b", `,"keep":true`).want(201)
	s.do("POST", "/v1/threads/b/runs/newest/resume", "").want(200)
	if run := plainWait(s, &perdure.Run{Thread: "b", ID: api.Newest}); run.Status != perdure.Succeeded || paid.Load() != 2 {
		t.Errorf("the fork that keeps the answer is %s, and was paid %d times", run.Status, paid.Load())
	}
}

// Who asks for much and reads nothing does not keep it in memory for ever.
func TestAttackAnswersThatNobodyReadsEnd(t *testing.T) {
	s := newSite(t, server.Options{Stall: 50 * time.Millisecond})
	over, much := make(chan error, 1), make([]byte, 1<<20)
	s.api.AddFace("GET /much", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		var err error
		for range 256 {
			if _, err = w.Write(much); err != nil {
				break
			}
		}
		over <- err
		return nil
	})
	conn := slowDial(t, s.url)
	fmt.Fprint(conn, "GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-over:
		if err == nil {
			t.Error("all of it was written though nothing was read")
		}
	case <-time.After(30 * time.Second):
		t.Error("the handler writes on")
	}
}

// A request that waits for the end of a run lasts as long as a stream, and ends
// with its token too.
func TestAttackARunThatIsWaitedForEndsWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, err := perdure.New(t.Context(), memstore.New(), perdure.Options{}, whoFlow())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Tenant("acme").Create(t.Context(), perdure.CreateRequest{Thread: "s", User: "u", Metadata: map[string]string{"adk.app": "buy"}}); err != nil {
			t.Fatal(err)
		}
		tokens := server.NewTokens(rt)
		srv := server.New(rt, server.Options{Auth: tokens})
		client, stop := inproc.Serve(srv)
		defer stop()
		defer srv.Close()
		made, err := tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://localhost/run", strings.NewReader(adkBody("buy", "x")))
		r.Header.Set("Authorization", "Bearer "+made.Secret)
		time.AfterFunc(time.Second, func() {
			if err := tokens.Revoke(ctx, "acme", made.ID); err != nil {
				t.Error(err)
			}
		})
		resp, err := client.Do(r) // no worker is there
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the answer is %s", resp.Status)
		}
	})
}

// heldStore is a store whose readers of a token are held up behind the read.
type heldStore struct {
	store.Store
	read, goOn chan struct{} // nil: they are not
}

func (s *heldStore) Get(ctx context.Context, key string) (store.Cell, error) {
	cell, err := s.Store.Get(ctx, key)
	if s.read != nil && strings.HasPrefix(key, "token/") {
		s.read <- struct{}{}
		<-s.goOn
	}
	return cell, err
}

func TestAttackATokenThatIsRevokedWhileItIsLookedUpIsNotKept(t *testing.T) {
	s := &heldStore{Store: memstore.New()}
	tokens := authTokens(t, s)
	made, err := tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	held := &heldStore{Store: s.Store, read: make(chan struct{}), goOn: make(chan struct{})}
	*s = *held
	done := make(chan error, 1)
	go func() {
		_, err := tokens.Authenticate(t.Context(), made.Secret)
		done <- err
	}()
	<-s.read
	s.read = nil
	if err := tokens.Revoke(t.Context(), "acme", made.ID); err != nil {
		t.Fatal(err)
	}
	close(s.goOn)
	if err := <-done; err != nil {
		t.Errorf("what was looked up before is refused: %v", err)
	}
	authWant(t, tokens, made.Secret, "")
}

// brokenStore says where it is when it fails.
type brokenStore struct {
	store.Store
	broken atomic.Bool
}

func (s *brokenStore) Get(ctx context.Context, key string) (store.Cell, error) {
	if s.broken.Load() {
		return store.Cell{}, fmt.Errorf("%w: dial db.canary.example: user canary", store.ErrUnavailable)
	}
	return s.Store.Get(ctx, key)
}

// What a store says when it fails is for the log, also where nobody has been
// asked for a token yet.
func TestAttackErrorsOfTheStoreAreNotTold(t *testing.T) {
	s := &brokenStore{Store: memstore.New()}
	tokens := authTokens(t, s)
	site := newSiteOn(t, s, server.Options{Auth: tokens})
	site.token = "pdr_" + strings.Repeat("A", 43)
	s.broken.Store(true)
	for _, path := range []string{"/v1/threads/t", "/v1/threads/t/events", "/v1/me"} {
		if r := site.do("GET", path, "").problem(503, "unavailable"); strings.Contains(string(r.Body), "canary") {
			t.Errorf("%s: %s", path, r.Body)
		}
	}
	s.broken.Store(false)
}

// A condition that is not looked at would make a write another one.
func TestAttackConditionsAreNotOverlooked(t *testing.T) {
	s := newFuzzed(t)
	s.do("PATCH", "/v1/threads/t1", `{"title":"x"}`, "If-Match", `"1"`).problem(412, "stale")
	s.do("POST", "/v1/threads", `{"id":"t2"}`, "If-None-Match", `*`).problem(400, "invalid")
	s.do("GET", "/v1/threads/t1", "", "If-None-Match", `"1"`).want(200)
	for _, seq := range []string{"-1", "+1", "1.0", "1e3", "0", "*", "", `""`, "18446744073709551616", `"1", "2"`, "0x1", "1 2", "١"} {
		s.do("DELETE", "/v1/threads/t1", "", "If-Match", seq).problem(400, "invalid")
	}
	s.do("DELETE", "/v1/threads/t1", "", "If-Match", `"18446744073709551615"`).problem(412, "stale")
	s.do("GET", "/v1/threads/t1", "").want(200)
}

// A file that is written twice within a tick of its file system's clock is read
// twice.
func TestAttackATokenFileIsReadAgainThoughItsTimeIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens.json")
		then := time.Now()
		write := func(subject string) {
			t.Helper()
			data := fmt.Appendf(nil, `[{"secret":"a secret that is long enough","subject":%q,"scopes":["read"]}]`, subject)
			if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, then, then)); err != nil {
				t.Fatal(err)
			}
		}
		write("ann")
		a, err := server.TokenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write("bob")
		time.Sleep(time.Second)
		authWant(t, a, "a secret that is long enough", "bob")
	})
}

// Names that another tenant uses are free to everyone, and lead nowhere.
func TestAttackNamesOfOtherTenantsLeadNowhere(t *testing.T) {
	m := newMatrix(t)
	before := m.snapshot()
	acme := authSecret(t, m.tokens, "acme", "ann", api.ScopeAdmin)
	m.token = acme
	file := string(m.do("GET", "/v1/threads/t1/export", "").want(200).Body)
	var first, second perdure.Run
	m.do("POST", "/v1/threads/keyed/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k").want(202, &first)
	m.do("DELETE", "/v1/threads/keyed", "").want(204)
	m.token = authSecret(t, m.tokens, "other", "eve", api.ScopeAdmin)
	var ticket api.Ticket
	m.do("POST", "/v1/tickets", `{"thread":"t1"}`).want(201, &ticket)
	eve := m.token
	m.token = ""
	m.do("GET", "/v1/threads/t1/events?ticket="+ticket.Ticket, "").problem(404, "no-thread")
	m.token = eve
	m.do("POST", "/v1/threads/mine/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k").want(202, &second)
	if first.ID == second.ID {
		t.Error("the key of another tenant leads to its run")
	}
	m.do("POST", "/v1/threads/mine/fork", `{"as":"t1"}`).want(201)
	m.do("DELETE", "/v1/threads/t1", "").want(204)
	m.do("POST", "/v1/threads/import?as=t1", strings.ReplaceAll(file, "acme", "other"), "Content-Type", api.TypeLines)
	m.do("POST", "/v1/asks/"+m.ask+"/progress", `{"value":1}`).problem(404, "no-ask")
	m.do("POST", "/v1/asks/"+m.ask+"/secret", `{"secret":"x"}`).problem(404, "no-ask")
	m.do("POST", "/v1/tokens", `{"subject":"eve","tenant":"acme","scopes":["admin"]}`).problem(403, "scope")
	m.do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","invocationId":"`+m.run.ID+`"}`)
	for _, head := range []string{"Perdure-Tenant", "X-Tenant", "Perdure-As"} {
		var me api.Me
		if m.do("GET", "/v1/me", "", head, "acme").want(200, &me); me.Tenant != "other" || me.Subject != "eve" {
			t.Errorf("%s makes eve %+v", head, me)
		}
	}
	if now := m.snapshot(); now != before {
		t.Errorf("acme has %s, and had %s", now, before)
	}
}

// What is cut off in any state leaves no goroutine behind.
func TestAttackCutOffRequestsLeaveNothingBehind(t *testing.T) {
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
			r, _ := http.NewRequestWithContext(ctx, c.method, s.url+c.path, strings.NewReader(c.body))
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
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 2000 {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, and there were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAttackWhereWorkersRunIsForAdmins(t *testing.T) {
	site, tokens := authSite(t, server.Options{}, whoFlow())
	whoAsk(site, "acme", "t") // so that a worker is there
	var all, some api.WorkerList
	site.do("GET", "/v1/workers", "").want(200, &all)
	site.token = authSecret(t, tokens, "acme", "eve", api.ScopeRead)
	site.do("GET", "/v1/workers", "").want(200, &some)
	if len(all.Workers) != 1 || all.Workers[0].PID == 0 || len(some.Workers) != 1 || some.Workers[0].PID != 0 || some.Workers[0].Host != "" {
		t.Errorf("an admin sees %+v, a reader %+v", all.Workers, some.Workers)
	}
}
