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
	"github.com/perdure/perdure/internal/servertest"
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
	s.Do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1_000_000)+`}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1001)+`}`).Problem(400, "invalid")
	s.Do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":`+many("{}", 1_000_000)+`}}`).Problem(400, "invalid")
	s.Do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[5]}}`).Problem(400, "body")
}

// What agents have said and done is not for callers to write.
func TestAttackAForkForgesNothingOfTheAgents(t *testing.T) {
	s := newFuzzed(t)
	for _, key := range []string{"agent.messages", "agent.todos", "agent.file:a", "agent.blob:" + strings.Repeat("0", 64)} {
		s.Do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"`+key+`":5}}`).Problem(400, "invalid")
	}
	s.Do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"agents":5}}`).Want(201)
}

// A token that may not answer cannot use the answers of others again, and one
// that may keeps only those that it could have given.
func TestAttackAForkReplaysNoApproval(t *testing.T) {
	var paid atomic.Int64
	s := servertest.New(t, server.Options{Auth: plainPeople{
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

// Who asks for much and reads nothing does not keep it in memory for ever.
func TestAttackAnswersThatNobodyReadsEnd(t *testing.T) {
	s := servertest.New(t, server.Options{Stall: 50 * time.Millisecond})
	over, much := make(chan error, 1), make([]byte, 1<<20)
	s.Server.AddFace("GET /much", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		var err error
		for range 256 {
			if _, err = w.Write(much); err != nil {
				break
			}
		}
		over <- err
		return nil
	})
	conn := slowDial(t, s.URL)
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
	site := servertest.NewOn(t, s, server.Options{Auth: tokens})
	site.Token = "pdr_" + strings.Repeat("A", 43)
	s.broken.Store(true)
	for _, path := range []string{"/v1/threads/t", "/v1/threads/t/events", "/v1/me"} {
		if r := site.Do("GET", path, "").Problem(503, "unavailable"); strings.Contains(string(r.Body), "canary") {
			t.Errorf("%s: %s", path, r.Body)
		}
	}
	s.broken.Store(false)
}

// A condition that is not looked at would make a write another one.
func TestAttackConditionsAreNotOverlooked(t *testing.T) {
	s := newFuzzed(t)
	s.Do("PATCH", "/v1/threads/t1", `{"title":"x"}`, "If-Match", `"1"`).Problem(412, "stale")
	s.Do("POST", "/v1/threads", `{"id":"t2"}`, "If-None-Match", `*`).Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t1", "", "If-None-Match", `"1"`).Want(200)
	for _, seq := range []string{"-1", "+1", "1.0", "1e3", "0", "*", "", `""`, "18446744073709551616", `"1", "2"`, "0x1", "1 2", "١"} {
		s.Do("DELETE", "/v1/threads/t1", "", "If-Match", seq).Problem(400, "invalid")
	}
	s.Do("DELETE", "/v1/threads/t1", "", "If-Match", `"18446744073709551615"`).Problem(412, "stale")
	s.Do("GET", "/v1/threads/t1", "").Want(200)
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
	m.Token = acme
	file := string(m.Do("GET", "/v1/threads/t1/export", "").Want(200).Body)
	var first, second perdure.Run
	m.Do("POST", "/v1/threads/keyed/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k").Want(202, &first)
	m.Do("DELETE", "/v1/threads/keyed", "").Want(204)
	m.Token = authSecret(t, m.tokens, "other", "eve", api.ScopeAdmin)
	var ticket api.Ticket
	m.Do("POST", "/v1/tickets", `{"thread":"t1"}`).Want(201, &ticket)
	eve := m.Token
	m.Token = ""
	m.Do("GET", "/v1/threads/t1/events?ticket="+ticket.Ticket, "").Problem(404, "no-thread")
	m.Token = eve
	m.Do("POST", "/v1/threads/mine/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k").Want(202, &second)
	if first.ID == second.ID {
		t.Error("the key of another tenant leads to its run")
	}
	m.Do("POST", "/v1/threads/mine/fork", `{"as":"t1"}`).Want(201)
	m.Do("DELETE", "/v1/threads/t1", "").Want(204)
	m.Do("POST", "/v1/threads/import?as=t1", strings.ReplaceAll(file, "acme", "other"), "Content-Type", api.TypeLines)
	m.Do("POST", "/v1/asks/"+m.ask+"/progress", `{"value":1}`).Problem(404, "no-ask")
	m.Do("POST", "/v1/asks/"+m.ask+"/secret", `{"secret":"x"}`).Problem(404, "no-ask")
	m.Do("POST", "/v1/tokens", `{"subject":"eve","tenant":"acme","scopes":["admin"]}`).Problem(403, "scope")
	m.Do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","invocationId":"`+m.run.ID+`"}`)
	for _, head := range []string{"Perdure-Tenant", "X-Tenant", "Perdure-As"} {
		var me api.Me
		if m.Do("GET", "/v1/me", "", head, "acme").Want(200, &me); me.Tenant != "other" || me.Subject != "eve" {
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
	site.Do("GET", "/v1/workers", "").Want(200, &all)
	site.Token = authSecret(t, tokens, "acme", "eve", api.ScopeRead)
	site.Do("GET", "/v1/workers", "").Want(200, &some)
	if len(all.Workers) != 1 || all.Workers[0].PID == 0 || len(some.Workers) != 1 || some.Workers[0].PID != 0 || some.Workers[0].Host != "" {
		t.Errorf("an admin sees %+v, a reader %+v", all.Workers, some.Workers)
	}
}
