package server_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
)

// TestBulkWithAnEmptyFilter: a filter with an empty value, as a script makes it of a
// variable that is not set, selects nothing instead of more than was meant.
func TestBulkWithAnEmptyFilter(t *testing.T) {
	m := newMatrix(t)
	m.Token = servertest.Must(m.tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "x", Scopes: []api.Scope{api.ScopeAdmin}}))(t).Secret
	for _, member := range []string{"user", "flow", "status"} {
		for _, path := range []string{"/v1/bulk", "/v1/bulk/plan"} {
			m.Do("POST", path, `{"verb":"erase","filter":{"asks":true,"`+member+`":""}}`).Problem(400, "body")
		}
	}
}

// TestBulkNeedsTheScopeOfItsVerb starts, stops and continues jobs with tokens of all
// scopes.
func TestBulkNeedsTheScopeOfItsVerb(t *testing.T) {
	m := newMatrix(t)
	secrets := map[api.Scope]string{}
	for _, s := range api.Scopes {
		secrets[s] = servertest.Must(m.tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "x", Scopes: []api.Scope{s, api.ScopeRead}}))(t).Secret
	}
	for _, c := range []struct {
		verb  perdure.BulkVerb
		scope api.Scope
	}{{perdure.BulkCancel, api.ScopeRun}, {perdure.BulkRetry, api.ScopeRun}, {perdure.BulkErase, api.ScopeAdmin}} {
		body := `{"verb":"` + string(c.verb) + `","filter":{"flow":"none"}}`
		var job perdure.Bulk
		m.Token = secrets[api.ScopeAdmin]
		m.Do("POST", "/v1/bulk", body, "Idempotency-Key", "k-"+string(c.verb)).Want(202, &job)
		m.Do("POST", "/v1/bulk", body, "Idempotency-Key", "k-"+string(c.verb)).Want(202, &job)
		for scope, secret := range secrets {
			m.Token = secret
			may := scope == c.scope || scope == api.ScopeAdmin
			for _, path := range []string{"/v1/bulk", "/v1/bulk/" + job.ID + "/resume"} {
				sent := body
				if path != "/v1/bulk" {
					sent = ""
				}
				got := m.Do("POST", path, sent)
				if may && got.Status >= 300 && got.Status != 409 {
					t.Errorf("%s may not %s: %s", scope, path, got.Body)
				}
				if !may {
					got.Problem(403, "scope")
				}
			}
			m.Do("POST", "/v1/bulk/plan", body).Want(200)
		}
	}
	m.Token = secrets[api.ScopeAdmin]
	m.Do("POST", "/v1/bulk", `{"verb":"erase"}`).Problem(400, "invalid")
	if p := m.Do("POST", "/v1/bulk", `{"verb":"sing","filter":{"flow":"none"}}`).Problem(400, "invalid"); !strings.Contains(string(p.Body), "there are cancel, retry, erase, archive, export") {
		t.Errorf("an unknown verb is refused with %s", p.Body)
	}
	m.Do("POST", "/v1/bulk", `{"verb":"erase","filter":{"flow":"none","colour":"red"}}`).Problem(400, "body")
	m.Do("POST", "/v1/bulk", `{"verb":"erase","filter":{"user":"ann","updated_before":"0001-01-01T00:00:00Z"}}`).Problem(400, "body")
	for _, filter := range []string{`{"asks_of":[]}`, `{"user":"ann","asks_of":[]}`} {
		m.Do("POST", "/v1/bulk", `{"verb":"erase","filter":`+filter+`}`).Problem(400, "invalid")
		m.Do("POST", "/v1/bulk/plan", `{"verb":"erase","filter":`+filter+`}`).Problem(400, "invalid")
	}
	for _, query := range []string{"asks_of=", "asks_of=ann&asks_of=", "metadata=a=b&metadata=a=c", "status=fine"} {
		m.Do("GET", "/v1/threads?"+query, "").Problem(400, "invalid")
	}
	m.Do("GET", "/v1/threads?asks_of=ann&asks_of=group:g&metadata=a=b&metadata=b=c&status=idle", "").Want(200)
	m.Do("GET", "/v1/bulk/none", "").Problem(404, "no-bulk")
}
