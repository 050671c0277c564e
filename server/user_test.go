package server_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
)

// userSecret makes a token of acme that is limited to a user.
func (m *matrix) userSecret(t *testing.T, user string) string {
	t.Helper()
	token := servertest.Must(m.tokens.Create(t.Context(), "acme", "", api.CreateToken{User: user, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}}))(t)
	return token.Secret
}

// userOpen are the routes that name nothing of anyone's, with what they answer a
// user who owns nothing.
var userOpen = map[string]int{
	"runs.new": 202, "threads.create": 409, "threads.list": 200, "asks.list": 200, "rules.list": 200, "memory.list": 200,
	"flows.list": 200, "workers.list": 200, "stats.get": 200, "me.get": 200, "tickets.create": 201,
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
			case op.Name == api.RunsStart.Name:
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
	var fork perdure.Fork
	m.Do("POST", "/v1/threads/t1/fork", `{"as":"fork"}`).Want(201, &fork)
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
	var run perdure.Run
	m.Do("POST", "/v1/runs", `{"flow":"asker","input":"x"}`, "Idempotency-Key", "k").Want(202, &run)
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
	var made api.NewToken
	m.Do("POST", "/v1/tokens", `{"user":"ann","minutes":5}`).Want(201, &made)
	if made.User != "ann" || made.Subject != "ann" || len(made.Scopes) != 2 || made.Expires.IsZero() {
		t.Errorf("the token is %+v", made)
	}
	m.Token = made.Secret
	m.Do("POST", "/v1/asks/"+m.ask+"/answer", `{"value":"x"}`).Problem(403, "scope")
}
