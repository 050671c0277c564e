package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/adk"
	"github.com/perdure/perdure/server/agentkit"
	"github.com/perdure/perdure/server/mcpface"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// allFaces returns the faces that the command line switches on.
func allFaces() []server.Face {
	return []server.Face{adk.Face(), agentkit.Face(), mcpface.Face(mcpface.Options{})}
}

// matrixCanary is in everything that tenant acme has, and in no request.
// MatrixUser owns it, and is named in requests.
const (
	matrixCanary = "canary-of-acme"
	matrixUser   = "ann"
)

// matrix is a server with a tenant acme, whose things all have the canary, and a
// tenant other, which has nothing.
type matrix struct {
	*servertest.Site
	store  store.Store
	tokens *server.Tokens
	run    *perdure.Run
	ask    string
	ids    *strings.Replacer // of a route's parameters

	headers []string // of requests, in pairs
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	flow := perdure.NewFlow("asker", func(ctx context.Context, in string) (string, error) {
		return perdure.Ask[string](ctx, "approve", perdure.Question{Kind: "approval", Prompt: in})
	})
	s := memstore.New()
	tokens := authTokens(t, s)
	m := &matrix{store: s, tokens: tokens, Site: servertest.NewOn(t, s, server.Options{Auth: tokens, Version: "test", Faces: allFaces()}, flow)}
	ctx, acme := t.Context(), m.Runtime.Tenant("acme")
	run, err := acme.Start(ctx, perdure.StartRequest{Flow: "asker", Thread: "t1", Input: matrixCanary, Title: matrixCanary, User: matrixUser, Metadata: map[string]string{"k": matrixCanary}})
	if err == nil {
		run, err = acme.Wait(ctx, "t1", run.ID)
	}
	if err != nil || len(run.Asks) != 1 {
		t.Fatalf("the run is %v: %v", run, err)
	}
	m.run, m.ask = run, run.Asks[0].ID
	servertest.Must(memory.Of(acme).Put(ctx, memory.Namespace{"shared"}, "key", matrixCanary, memory.PutOptions{}))(t)
	servertest.Must(memory.Of(acme).Put(ctx, memory.User(matrixUser), "own", matrixCanary, memory.PutOptions{}))(t)
	rule := servertest.Must(agent.RulesOf(acme).Allow(ctx, agent.Rule{User: matrixUser, Flow: matrixCanary, Agent: matrixCanary, Tool: matrixCanary, Schema: "s", Args: json.RawMessage("{}")}, matrixCanary))(t)
	token := servertest.Must(tokens.Create(ctx, "acme", matrixCanary, api.CreateToken{Subject: matrixCanary, Note: matrixCanary}))(t)
	file := servertest.Must(acme.Upload(ctx, strings.NewReader(matrixCanary), perdure.UploadRequest{Name: matrixCanary, User: matrixUser}))(t)
	job := servertest.Must(acme.StartBulk(ctx, perdure.BulkRequest{Verb: perdure.BulkCancel, Filter: perdure.ListOptions{Flow: matrixCanary}, By: matrixCanary, Reason: matrixCanary}))(t)
	schedule := servertest.Must(acme.PutSchedule(ctx, perdure.ScheduleRequest{ID: "s1", Flow: "asker", Input: matrixCanary, Title: matrixCanary, User: matrixUser, Every: 24 * time.Hour, By: matrixCanary}))(t)
	m.ids = strings.NewReplacer("{schedule}", schedule.ID, "{upload}", file.ID, "{job}", job.ID, "{thread}", "t1", "{run}", run.ID, "{ask}", m.ask, "{token}", token.ID, "{rule}", rule.ID,
		"{hash}", strings.Repeat("0", 64), "{name}", "signal", "{place...}", "shared/key",
		"{app}", "asker", "{user}", matrixUser, "{id}", "t1", "{session}", "t1", "{$}", "")
	return m
}

// body is a body with which the right caller is let in.
func (m *matrix) body(op *api.Info) string {
	token := "TOKEN"
	if m.Site != nil {
		token = m.Token
	}
	return strings.NewReplacer("ASK", m.ask, "TOKEN", token).Replace(map[string]string{
		"runs.new":        `{"flow":"asker","input":"x"}`,
		"runs.start":      `{"flow":"asker","input":"x"}`,
		"asks.answer":     `{"value":"x"}`,
		"asks.answer-all": `{"answers":[{"ask":"ASK","value":"x"}]}`,
		"asks.progress":   `{"value":1}`,
		"asks.secret":     `{"secret":"s"}`,
		"threads.create":  `{"id":"t1"}`,
		"threads.update":  `{"title":"x"}`,
		"threads.rewind":  `{"to":1}`,
		"tokens.create":   `{"subject":"x"}`,
		"tickets.create":  `{"thread":"t1"}`,
		"session.create":  `{"token":"TOKEN"}`,
		"memory.put":      `{"value":"x"}`,
		"schedules.put":   `{"flow":"asker","input":"x","every":"24h"}`,
		"bulk.start":      `{"verb":"cancel","filter":{"flow":"none"}}`,
		"bulk.plan":       `{"verb":"cancel","filter":{"flow":"none"}}`,
	}[op.Name])
}

// faceBody is a body that all faces understand.
func (m *matrix) faceBody() string {
	data, _ := json.Marshal(map[string]any{
		"appName": "asker", "userId": matrixUser, "sessionId": "t1", "invocationId": m.run.ID,
		"traceId": "t1", "promptId": m.ask, "response": "approve",
	})
	return string(data)
}

func (m *matrix) request(op *api.Info, face bool, accept string) *servertest.Reply {
	m.T.Helper()
	body := m.body(op)
	if face && op.Method != "GET" {
		body = m.faceBody()
	}
	headers := append([]string{"Accept", accept}, m.headers...)
	if op.Takes != "" {
		headers = append(headers, "Content-Type", op.Takes)
	}
	query := map[string]string{"diff.get": "?from=1", "runs.wait": "?seconds=1"}[op.Name]
	return m.Do(op.Method, m.ids.Replace(op.Path)+query, body, headers...)
}

// snapshot is all that acme has, as the runtime tells it.
func (m *matrix) snapshot() string {
	m.T.Helper()
	ctx, acme := m.T.Context(), m.Runtime.Tenant("acme")
	var all []any
	for _, s := range servertest.All(m.T, acme.List(ctx, perdure.ListOptions{})) {
		all = append(all, s.ID)
	}
	thread := servertest.Must(acme.Get(ctx, "t1"))(m.T)
	item := servertest.Must(memory.Of(acme).Get(ctx, memory.Namespace{"shared"}, "key"))(m.T)
	rules := servertest.Must(agent.RulesOf(acme).List(ctx, matrixUser))(m.T)
	schedules := servertest.Must(acme.Schedules(ctx))(m.T)
	tokens := servertest.Must(m.tokens.List(ctx, "acme"))(m.T)
	data := servertest.Must(json.MarshalIndent(append(all, thread, item, rules, schedules, slices.DeleteFunc(tokens, func(t api.Token) bool { return t.Subject != matrixCanary })), "", " "))(m.T)
	return string(data)
}

// routes returns the operations that have a handler and the faces.
func (m *matrix) routes() (ops []*api.Info, isFace map[*api.Info]bool) {
	isFace = map[*api.Info]bool{}
	for _, op := range api.All() {
		if m.Server.Bound(op.Name) {
			ops = append(ops, op)
		}
	}
	for _, op := range m.Server.Faces() {
		ops, isFace[op] = append(ops, op), true
	}
	return ops, isFace
}

func TestMatrixNoRouteIsUnknown(t *testing.T) {
	m := newMatrix(t)
	known := map[string]bool{}
	ops, _ := m.routes()
	for _, op := range ops {
		known[op.Method+" "+op.Path] = true
		if rest := m.ids.Replace(op.Path); strings.Contains(rest, "{") {
			t.Errorf("the matrix has no value for a parameter of %s", rest)
		}
	}
	for _, pattern := range m.Server.Patterns() {
		if !known[pattern] {
			t.Errorf("%s is neither an operation nor a face: it is not seen whether callers are checked", pattern)
		}
	}
	if len(m.Server.Patterns()) != len(ops) {
		t.Errorf("%d routes, %d operations and faces", len(m.Server.Patterns()), len(ops))
	}
}

func TestMatrixWrongTokensGetNothing(t *testing.T) {
	m := newMatrix(t)
	before := m.snapshot()
	ops, isFace := m.routes()
	revoked, err := m.tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "x", Scopes: api.Scopes})
	if err == nil {
		err = m.tokens.Revoke(t.Context(), "acme", revoked.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	expired := "pdr_" + strings.Repeat("E", 42) + "A"
	sum := sha256.Sum256([]byte(expired))
	if _, err := m.store.Put(t.Context(), "token/"+hex.EncodeToString(sum[:]),
		[]byte(`{"tenant":"acme","subject":"x","scopes":["admin"],"created":"2020-01-01T00:00:00Z","expires":"2020-01-02T00:00:00Z"}`), ""); err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		var others []api.Scope
		for _, s := range api.Scopes {
			if s != op.Scope && s != api.ScopeAdmin {
				others = append(others, s)
			}
		}
		for _, c := range []struct {
			name, token, kind string
			status            int
		}{
			{"no token", "", "unauthorized", 401},
			{"garbage", "garbage", "unauthorized", 401},
			{"a token that is none", "pdr_" + strings.Repeat("A", 43), "unauthorized", 401},
			{"an expired token", expired, "unauthorized", 401},
			{"a revoked token", revoked.Secret, "unauthorized", 401},
			{"a token without the scope", authSecret(t, m.tokens, "acme", "x", others...), "scope", 403},
		} {
			if op.Scope == api.ScopeAny && c.kind == "scope" {
				continue // package mcpface tests what each scope allows
			}
			for _, accept := range []string{api.TypeJSON, api.TypeEvents} {
				m.Token = c.token
				got := m.request(op, isFace[op], accept)
				if bytes.Contains(got.Body, []byte(matrixCanary)) {
					t.Errorf("%s with %s: %s", op.Name, c.name, got.Body)
				}
				if op.Scope != api.ScopeNone {
					got.Problem(c.status, c.kind)
				}
			}
		}
	}
	if diff := cmp.Diff(before, m.snapshot()); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

// matrixMakes are operations about something of the caller's own, whatever others
// have under the same name.
var matrixMakes = map[string]bool{"threads.create": true, "runs.start": true, "memory.put": true, "memory.delete": true, "tickets.create": true, "schedules.put": true,
	"users.data": true, "users.erase": true, "users.receipt": true}

func TestMatrixOtherTenantsGetNothing(t *testing.T) {
	m := newMatrix(t)
	before := m.snapshot()
	m.Token = authSecret(t, m.tokens, "other", "eve", api.ScopeAdmin)
	ops, isFace := m.routes()
	var makes []*api.Info
	check := func(op *api.Info, path string, got *servertest.Reply) {
		t.Helper()
		if got.Status == 401 || got.Status >= 500 || bytes.Contains(got.Body, []byte(matrixCanary)) {
			t.Errorf("%s %s: %d %s", op.Method, path, got.Status, got.Body)
		}
	}
	for _, op := range ops {
		switch {
		case matrixMakes[op.Name] || isFace[op]:
			makes = append(makes, op) // the names mean something afterwards
			continue
		case op.Name == api.EventsWatch.Name:
			continue // see TestMatrixNewsAreTheTenantsOwn
		}
		got := m.request(op, false, api.TypeJSON)
		check(op, op.Path, got)
		if strings.Contains(op.Path, "{") && got.Status != http.StatusNotFound {
			t.Errorf("%s with what another tenant has is answered %d %s", op.Name, got.Status, got.Body)
		}
	}
	// What stands in queries and bodies is checked as what stands in paths is.
	m.Do("POST", "/v1/threads/mine/runs", `{"flow":"asker","input":"x"}`).Want(202)
	servertest.Must(m.Runtime.Tenant("other").Wait(t.Context(), "mine", ""))(t)
	for _, path := range []string{"/v1/asks?thread=t1", "/v1/threads/mine/diff?with=t1"} {
		got := m.Do("GET", path, "")
		check(&api.Info{Method: "GET"}, path, got)
		got.Want(404)
	}
	m.Do("POST", "/v1/threads/mine/answers", `{"answers":[{"ask":"`+m.ask+`","value":"x"}]}`).Want(404)
	m.Do("GET", "/v1/threads/mine/runs/"+m.run.ID, "").Want(404)
	for _, path := range []string{"/v1/threads?user=" + matrixUser, "/v1/asks?user=" + matrixUser, "/v1/rules?user=" + matrixUser, "/v1/memory?ns=shared", "/v1/memory?q=canary"} {
		check(&api.Info{Method: "GET"}, path, m.Do("GET", path, "").Want(200))
	}
	for _, op := range makes {
		check(op, op.Path, m.request(op, isFace[op], api.TypeJSON))
	}
	if diff := cmp.Diff(before, m.snapshot()); diff != "" {
		t.Errorf("something of another tenant changed:\n%s", diff)
	}
}

// TestMatrixRightTokensAreLetIn keeps the matrix honest: the same requests are
// answered if the token is right.
func TestMatrixRightTokensAreLetIn(t *testing.T) {
	m := newMatrix(t)
	ops, isFace := m.routes()
	seen := 0
	for _, op := range ops {
		if op.Method != "GET" || op.Name == api.EventsWatch.Name || op.Scope == api.ScopeNone {
			continue
		}
		tenant := "acme"
		if op.Name == api.MetricsGet.Name || op.Name == api.KeysList.Name {
			tenant = "" // the operator's
		}
		scope := op.Scope
		if scope == api.ScopeAny {
			scope = api.ScopeAnswer
		}
		m.Token = authSecret(t, m.tokens, tenant, "x", scope)
		got := m.request(op, isFace[op], api.TypeJSON)
		if got.Status == 401 || got.Status == 403 || got.Status == 404 && !isFace[op] && op.Name != "blobs.get" && op.Name != "users.receipt" { // those are about what is not there
			t.Errorf("%s: %d %s", op.Name, got.Status, got.Body)
		}
		if bytes.Contains(got.Body, []byte(matrixCanary)) {
			seen++
		}
	}
	if seen < 8 {
		t.Errorf("%d operations show the canary: the matrix looks for it in vain", seen)
	}
}

func TestMatrixNewsAreTheTenantsOwn(t *testing.T) {
	t.Run("tenant", func(t *testing.T) {
		m := newMatrix(t)
		m.newsAreOwn(t, "other", "", authSecret(t, m.tokens, "other", "eve", api.ScopeAdmin))
	})
	t.Run("user", func(t *testing.T) {
		m := newMatrix(t)
		m.newsAreOwn(t, "acme", "eve", m.userSecret(t, "eve"))
	})
}

func (m *matrix) newsAreOwn(t *testing.T, tenant, user, token string) {
	t.Helper()
	st := m.Open("/v1/events", "Authorization", "Bearer "+token)
	time.AfterFunc(time.Minute, st.Hangup)
	st.Until("open")
	servertest.Must(m.Runtime.Tenant("acme").Start(t.Context(), perdure.StartRequest{Flow: "asker", Thread: "t2", Input: matrixCanary, Title: matrixCanary}))(t)
	servertest.Must(m.Runtime.Tenant(tenant).Start(t.Context(), perdure.StartRequest{Flow: "asker", Thread: "mine", Input: "x", User: user}))(t)
	for own := false; !own; {
		b, ok := st.Event()
		if !ok {
			t.Fatalf("the stream ends before news of its own: %v", st.Err)
		}
		if own = strings.Contains(b.Data, `"mine"`); !own {
			t.Errorf("the news of others: %s", b)
		}
	}
}

// Names that another tenant uses are free to everyone, and lead nowhere.
func TestNamesOfOtherTenantsLeadNowhere(t *testing.T) {
	m := newMatrix(t)
	before := m.snapshot()
	acme := authSecret(t, m.tokens, "acme", "ann", api.ScopeAdmin)
	m.Token = acme
	file := string(m.Do("GET", "/v1/threads/t1/export", "").Want(200).Body)
	var first, second perdure.Run
	m.Do("POST", "/v1/threads/keyed/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k").Want(202, &first)
	m.Do("DELETE", "/v1/threads/keyed", "").Want(204)
	m.Token = authSecret(t, m.tokens, "other", "eve", api.ScopeAdmin)
	ticket := servertest.Decode[api.Ticket](m.Do("POST", "/v1/tickets", `{"thread":"t1"}`), 201)
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

// userSecret makes a token of acme that is limited to a user.
func (m *matrix) userSecret(t *testing.T, user string) string {
	t.Helper()
	token := servertest.Must(m.tokens.Create(t.Context(), "acme", "", api.CreateToken{User: user, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}}))(t)
	return token.Secret
}

// userOpen are the routes that name nothing of anyone's, with what they answer a
// user who owns nothing.
var userOpen = map[string]int{
	"POST /mcp": 415, // package mcpface tests what is behind it
	"runs.new":  202, "threads.create": 409, "threads.list": 200, "archived.list": 200, "retention.get": 200, "retention.due": 200, "asks.list": 200, "rules.list": 200, "memory.list": 200,
	"flows.list": 200, "workers.list": 200, "stats.get": 200, "me.get": 200, "tickets.create": 201, "uploads.create": 415, "usage.get": 200,
	"bulk.plan": 200, "bulk.start": 202, "bulk.list": 200, "schedules.list": 200,
	"GET /list-apps": 200, "GET /apps/{app}/app-info": 200, "POST /run": 404, "POST /run_sse": 404, "POST /resume": 404,
}

// TestMatrixOtherUsersGetNothing walks all routes with the token of a user who
// owns nothing, and names what another user of the same tenant has.
func TestMatrixOtherUsersGetNothing(t *testing.T) {
	m := newMatrix(t)
	before := m.snapshot()
	m.Token = m.userSecret(t, "eve")
	ops, isFace := m.routes()
	for _, op := range ops {
		if op.Name == api.EventsWatch.Name || op.Scope == api.ScopeNone {
			continue // see TestMatrixNewsAreTheTenantsOwn
		}
		for _, accept := range []string{api.TypeJSON, api.TypeEvents} {
			if accept == api.TypeEvents && op.Name == api.RunsNew.Name {
				continue // it would follow a run of its own
			}
			got := m.request(op, isFace[op], accept)
			if bytes.Contains(got.Body, []byte(matrixCanary)) {
				t.Errorf("%s: %s", op.Name, got.Body)
			}
			want, open := userOpen[op.Name]
			switch {
			case op.Scope == api.ScopeAdmin:
				got.Problem(403, "scope")
			case open && got.Status != want:
				t.Errorf("%s is answered %d, want %d: %s", op.Name, got.Status, want, got.Body)
			case open:
			case op.Name == api.RunsStart.Name, op.Name == api.SchedulesPut.Name:
				got.Problem(409, "exists")
			case strings.Contains(op.Path, "{place...}"):
				got.Problem(400, "namespace")
			case strings.Contains(op.Path, "{user}"):
				got.Problem(403, "scope")
			case strings.Contains(op.Path, "{") && got.Status == http.StatusNotFound:
			default:
				t.Errorf("%s is answered %d, and nothing says whether that is right: %s", op.Name, got.Status, got.Body)
			}
		}
	}
	m.Do("POST", "/v1/threads/mine/runs", `{"flow":"asker","input":"x"}`).Want(202)
	servertest.Must(m.Runtime.Tenant("acme").Wait(t.Context(), "mine", ""))(t)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/threads?user=ann", "", 403},
		{"GET", "/v1/asks?user=ann", "", 403},
		{"GET", "/v1/asks?thread=t1", "", 404},
		{"GET", "/v1/rules?user=ann", "", 403},
		{"GET", "/v1/events?user=ann", "", 403},
		{"GET", "/v1/threads/mine/diff?with=t1", "", 404},
		{"GET", "/v1/threads/mine/runs/" + m.run.ID, "", 404},
		{"GET", "/v1/memory?q=canary", "", 200},
		{"GET", "/v1/memory?ns=user&ns=ann", "", 400},
		{"GET", "/v1/memory?ns=user", "", 400},
		{"GET", "/v1/memory/user/ann/own", "", 400},
		{"PUT", "/v1/memory/user/ann/own", `{"value":"x"}`, 400},
		{"DELETE", "/v1/memory/user/ann/own", "", 400},
		{"PUT", "/v1/memory/user/eve/own", `{"value":"x"}`, 200},
		{"POST", "/v1/threads/mine/answers", `{"answers":[{"ask":"` + m.ask + `","value":"x"}]}`, 404},
		{"POST", "/v1/threads/mine/fork", `{"as":"t1"}`, 409},
		{"POST", "/v1/runs", `{"flow":"asker","input":"x","user":"ann"}`, 403},
		{"POST", "/v1/threads", `{"user":"ann"}`, 403},
		{"POST", "/v1/tickets", `{"user":"ann"}`, 403},
		{"POST", "/v1/tokens", `{"user":"eve"}`, 403},
		{"POST", "/run", strings.ReplaceAll(m.faceBody(), `"ann"`, `"eve"`), 404},
		{"POST", "/run_sse", strings.ReplaceAll(m.faceBody(), `"ann"`, `"eve"`), 404},
		{"POST", "/resume", `{"traceId":"` + m.run.ID + `","promptId":"approve","response":"x"}`, 404},
		{"GET", "/apps/asker/users/eve/sessions/t1", "", 404},
	} {
		if got := m.Do(c.method, c.path, c.body); got.Status != c.status || bytes.Contains(got.Body, []byte(matrixCanary)) {
			t.Errorf("%s %s %s is answered %d, want %d: %s", c.method, c.path, c.body, got.Status, c.status, got.Body)
		}
	}
	var stats api.Stats
	if m.Do("GET", "/v1/stats", "").Want(200, &stats); stats.Threads > 3 || stats.Streams != 0 {
		t.Errorf("the numbers are those of others too: %+v", stats)
	}
	after := m.snapshot()
	after = after[strings.Index(after, "{"):] // the threads that were made are in the list before it
	if diff := cmp.Diff(before[strings.Index(before, "{"):], after); diff != "" {
		t.Errorf("something of another user's changed:\n%s", diff)
	}
}

// TestUserTokensReachTheirOwn keeps the matrix honest, and shows as whom a user
// acts.
func TestUserTokensReachTheirOwn(t *testing.T) {
	m := newMatrix(t)
	m.Token = m.userSecret(t, matrixUser)
	ops, isFace := m.routes()
	seen := 0
	for _, op := range ops {
		if op.Method == "GET" && op.Scope == api.ScopeRead && op.Name != api.EventsWatch.Name {
			if got := m.request(op, isFace[op], api.TypeJSON); bytes.Contains(got.Body, []byte(matrixCanary)) {
				seen++
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d operations show a user what is their own", seen)
	}
	if got := m.Do("GET", "/v1/memory/user/ann/own", "").Want(200); !bytes.Contains(got.Body, []byte(matrixCanary)) {
		t.Errorf("own memory is %s", got.Body)
	}
	m.Do("POST", "/v1/threads/t1/fork", `{"as":"fork"}`).Want(201)
	var thread perdure.Thread
	if m.Do("GET", "/v1/threads/fork", "").Want(200, &thread); thread.User != matrixUser {
		t.Errorf("the fork is owned by %q", thread.User)
	}
	servertest.Must(m.Runtime.Tenant("acme").Fork(t.Context(), perdure.ForkRequest{Thread: "fork", As: "twice"}))(t)
	m.Do("GET", "/v1/threads/twice/events", "").Want(200)
	var info perdure.AskInfo
	if m.Do("POST", "/v1/asks/"+m.ask+"/answer", `{"value":"x"}`).Want(200, &info); info.Answer.By != matrixUser {
		t.Errorf("the answer is by %q", info.Answer.By)
	}
	run := servertest.Decode[perdure.Run](m.Do("POST", "/v1/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k"), 202)
	if m.Do("GET", "/v1/threads/"+run.Thread, "").Want(200, &thread); thread.User != matrixUser {
		t.Errorf("a new thread is owned by %q", thread.User)
	}
	var other perdure.Run
	m.Token = m.userSecret(t, "eve")
	if m.Do("POST", "/v1/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k").Want(202, &other); other.Thread == run.Thread {
		t.Error("the keys of two users meet")
	}
}

// TestTicketsForUsers lets a back end hand out tickets that are limited to a
// user.
func TestTicketsForUsers(t *testing.T) {
	m := newMatrix(t)
	back := authSecret(t, m.tokens, "acme", "back-end", api.ScopeRead)
	for _, c := range []struct {
		token, body string
		status      int
	}{
		{back, `{"thread":"t1","user":"ann"}`, 200},
		{back, `{"thread":"t1","user":"eve"}`, 404},
		{m.userSecret(t, "ann"), `{"thread":"t1"}`, 200},
		{m.userSecret(t, "eve"), `{"thread":"t1"}`, 404},
	} {
		var ticket api.Ticket
		m.Token = c.token
		m.Do("POST", "/v1/tickets", c.body).Want(201, &ticket)
		m.Token = ""
		got := m.Do("GET", "/v1/threads/t1/events?ticket="+ticket.Ticket, "")
		if got.Status != c.status || bytes.Contains(got.Body, []byte(matrixCanary)) != (c.status == 200) {
			t.Errorf("a ticket for %s is answered %d: %s", c.body, got.Status, got.Body)
		}
	}
	m.Token = authSecret(t, m.tokens, "acme", "root", api.ScopeAdmin)
	m.Do("POST", "/v1/tokens", `{"user":"ann","scopes":["admin"]}`).Problem(400, "invalid")
	m.Do("POST", "/v1/tokens", `{"user":"ann","subject":"ben"}`).Problem(400, "invalid")
	m.Do("POST", "/v1/tokens", `{}`).Problem(400, "invalid")
	made := servertest.Decode[api.NewToken](m.Do("POST", "/v1/tokens", `{"user":"ann","minutes":5}`), 201)
	if made.User != "ann" || made.Subject != "ann" || len(made.Scopes) != 2 || made.Expires.IsZero() {
		t.Errorf("the token is %+v", made)
	}
	m.Token = made.Secret
	m.Do("POST", "/v1/asks/"+m.ask+"/answer", `{"value":"x"}`).Problem(403, "scope")
}

// TestWithoutReadNothingIsRead does everything that can be done without the
// scope read, to things that all have the canary.
func TestWithoutReadNothingIsRead(t *testing.T) {
	ops, isFace := newMatrix(t).routes()
	done, shown := 0, 0
	for _, op := range ops {
		if op.Scope != api.ScopeRun && op.Scope != api.ScopeAnswer && op.Scope != api.ScopeNone {
			continue
		}
		for _, accept := range []string{api.TypeJSON, api.TypeEvents} {
			m := newMatrix(t)
			scope := op.Scope
			if scope == api.ScopeNone {
				scope = api.ScopeRun
			}
			m.Token = authSecret(t, m.tokens, "acme", matrixUser, scope)
			got := m.request(op, isFace[op], accept)
			header, _ := json.Marshal(got.Header)
			if bytes.Contains(append(header, got.Body...), []byte(matrixCanary)) {
				t.Errorf("%s without read: %s", op.Name, got.Body)
			}
			if got.Status < 300 {
				done++
			}
		}
		m := newMatrix(t)
		m.Token = authSecret(t, m.tokens, "acme", matrixUser, api.ScopeRead, api.ScopeRun, api.ScopeAnswer)
		if got := m.request(op, isFace[op], api.TypeJSON); bytes.Contains(got.Body, []byte(matrixCanary)) {
			shown++
		}
	}
	if done < 20 || shown < 6 {
		t.Errorf("%d were done without read, and %d show the canary with it: it is looked for in vain", done, shown)
	}
}

// TestEveryWriteHonoursIfMatch does every write with the right condition, and
// with a wrong one: what succeeds with the right one is refused with a wrong
// one, and none ignores it.
func TestEveryWriteHonoursIfMatch(t *testing.T) {
	ops, isFace := newMatrix(t).routes()
	refused := 0
	for _, op := range ops {
		if op.Method == "GET" {
			continue
		}
		about := strings.Contains(op.Path, "{thread}") || strings.Contains(op.Path, "{ask}")
		do := func(m *matrix, tag string) *servertest.Reply {
			m.Token = authSecret(t, m.tokens, "acme", matrixUser, api.ScopeAdmin)
			m.headers = []string{"If-Match", tag}
			return m.request(op, isFace[op], api.TypeJSON)
		}
		fresh := func() *matrix {
			m := newMatrix(t)
			if op.Name == api.RunsResume.Name { // what would change nothing is not refused
				servertest.Check(t, m.Runtime.Tenant("acme").Pause(t.Context(), "t1", "", perdure.Note{}))
			}
			return m
		}
		m := fresh()
		before := m.snapshot()
		wrong := do(m, `"99999"`)
		switch {
		case isFace[op] || !about && !strings.Contains(op.Path, "{place...}") && wrong.Status != 412:
			if wrong.Status != 400 || !bytes.Contains(wrong.Body, []byte("does not support this condition")) {
				t.Errorf("%s ignores If-Match: %d %s", op.Name, wrong.Status, wrong.Body)
			}
			continue
		case wrong.Status == 412:
			refused++
			if diff := cmp.Diff(before, m.snapshot()); diff != "" {
				t.Errorf("%s was refused and changed something:\n%s", op.Name, diff)
			}
			var p api.Problem
			if wrong.Want(412, &p); p.Seq == nil && p.Version == "" {
				t.Errorf("%s does not say how it stands: %s", op.Name, wrong.Body)
			}
		}
		if !about {
			continue
		}
		var right *servertest.Reply
		for range 50 { // a worker may have moved the thread since
			m := fresh()
			m.Token = authSecret(t, m.tokens, "acme", matrixUser, api.ScopeAdmin)
			tag := m.Do("GET", "/v1/threads/t1", "").Want(200).Header.Get("ETag")
			if right = do(m, tag); right.Status != 412 {
				break
			}
		}
		if right.Status < 300 != (wrong.Status == 412) || right.Status >= 300 && right.Status != wrong.Status {
			t.Errorf("%s at its sequence is answered %d, at another %d: %s", op.Name, right.Status, wrong.Status, wrong.Body)
		}
	}
	if refused < 14 {
		t.Errorf("only %d writes were refused", refused)
	}
}
