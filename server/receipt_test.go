package server_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
)

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
			if wrong.Status != 400 || !bytes.Contains(wrong.Body, []byte("knows no such condition")) {
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
