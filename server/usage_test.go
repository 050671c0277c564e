package server_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/server"
)

// talker is an agent whose replies cost.
func talker() perdure.Flow {
	model := llm.ModelFunc(func(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			yield(llm.Delta{Text: "hello", Usage: &llm.Usage{Input: 30, Output: 12}, Stop: llm.StopEnd}, nil)
		}
	})
	return agent.NewFlow("talk", agent.New("talker", model, agent.Options{Price: agent.Price{Input: 1e6, Output: 1e6}}))
}

// TestUsage: threads, runs, bytes and spending of a tenant, and of a user in it.
func TestUsage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas.json")
	servertest.Check(t, os.WriteFile(path, []byte(`{"acme": {"threads": 5, "starts": 100}}`), 0o600))
	o := server.Options{Auth: quotaPeople, Quotas: servertest.Must(server.QuotaFile(path, nil))(t)}
	s := servertest.New(t, o, append(testFlows(), talker())...)
	usage := func(token string) api.Usage {
		t.Helper()
		s.Token = token
		return servertest.Decode[api.Usage](s.Do("GET", "/v1/usage", ""), 200)
	}
	s.Token = "ann"
	for i, user := range []string{"ann", "ann", "bob"} {
		thread := fmt.Sprint("t", i)
		s.Do("POST", "/v1/threads/"+thread+"/runs", fmt.Sprintf(`{"flow":"talk","input":"hi","user":%q}`, user)).Want(202)
		servertest.Must(s.Runtime.Tenant("acme").WaitEnd(t.Context(), thread, ""))(t)
	}
	s.Do("POST", "/v1/threads/t0/runs", `{"flow":"ask","input":"?"}`).Want(202)
	servertest.Must(s.Runtime.Tenant("acme").Wait(t.Context(), "t0", ""))(t)
	uploaded(s, "a", "image/png", strings.Repeat("x", 1000))
	uploaded(s, "a", "image/png", strings.Repeat("y", 500))
	eventually(t, "the usage is not counted", func() bool {
		u := usage("ann")
		return u.Threads == 3 && u.Runs == 4 && u.Statuses["succeeded"] == 2 && u.Statuses["suspended"] == 1 && u.Spent["tokens"] == 3*42 && u.Uploads == 1500
	})
	u := usage("ann")
	if u.Bytes < 4000+u.Uploads || u.Bytes > 40_000 || u.Starts != 4 || u.Spent["cost"] != 3*42 || u.Quota["threads"] != 5 || u.Quota["starts"] != 100 || u.Tenant != "acme" || u.Counted.IsZero() {
		t.Errorf("%+v", u)
	}
	// A value in a blob counts, and so does what an erase takes away.
	large := strings.Repeat("z", 200_000)
	s.Do("POST", "/v1/threads/t3/runs", fmt.Sprintf(`{"flow":"ask","input":%q}`, large)).Want(202)
	eventually(t, "a large input does not count", func() bool { return usage("ann").Bytes >= u.Bytes+int64(len(large)) })
	s.Do("POST", "/v1/threads/t3/fork", `{"as":"f"}`).Want(201)
	eventually(t, "a fork is not counted", func() bool { return usage("ann").Threads == 5 })
	if now := usage("ann"); now.Bytes > u.Bytes+int64(len(large))+20_000 {
		t.Errorf("what a fork shares counts twice: %d bytes, and before %d", now.Bytes, u.Bytes)
	}
	s.Do("DELETE", "/v1/threads/t3?dependents=true", "").Want(204)
	eventually(t, "an erased thread counts", func() bool { now := usage("ann"); return now.Threads == 3 && now.Bytes < u.Bytes+10_000 })

	if own := usage("limit"); own.Threads != 1 || own.Runs != 1 || own.Spent["tokens"] != 42 || own.User != "bob" || own.Uploads != 0 || own.Starts != 0 || own.Quota != nil {
		t.Errorf("%+v", own)
	}
	if other := usage("eve"); other.Threads != 0 || other.Bytes != 0 || len(other.Spent) != 0 || len(other.Quota) != 0 {
		t.Errorf("%+v", other)
	}
	s.Token = "ops"
	eventually(t, "the metrics do not name the tenant", func() bool {
		text := string(s.Do("GET", "/metrics", "").Want(200).Body)
		return strings.Contains(text, `perdure_tenant_threads{tenant="acme"} 3`) && strings.Contains(text, `perdure_tenant_spent{tenant="acme",unit="tokens"} 126`) &&
			strings.Contains(text, `perdure_quota_refused_total{quota="threads",tenant="acme"} 0`) && !strings.Contains(text, `tenant="other"`)
	})
}
