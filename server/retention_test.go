package server_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// TestRetention asks what is kept, and says that a failure was seen.
func TestRetention(t *testing.T) {
	site := servertest.New(t, server.Options{}, testFlows()...)
	site.Start("t", "count", 1)
	r := servertest.Decode[api.Retention](site.Do("GET", "/v1/retention", ""), 200)
	if len(r.Rules) != 0 || !r.Begun.IsZero() || r.Rate == 0 {
		t.Errorf("retention is %+v", r)
	}
	if page := servertest.Decode[api.DuePage](site.Do("GET", "/v1/retention/due?limit=5", ""), 200); len(page.Threads) != 0 {
		t.Errorf("due are %+v", page)
	}
	site.Do("GET", "/v1/retention/due?after=zzz", "").Problem(400, "invalid")
	site.Do("POST", "/v1/threads/t/seen", `{}`).Problem(409, "nothing-to-do")
	site.Do("POST", "/v1/threads/none/seen", `{}`).Problem(404, "no-thread")
	site.Do("PATCH", "/v1/threads/t", `{"metadata":{"perdure.seen":"now"}}`).Problem(400, "invalid")
	if text := string(site.Do("GET", "/metrics", "").Want(200).Body); !strings.Contains(text, `perdure_retention_removed_total{action="erased"} 0`) || !strings.Contains(text, `perdure_retention_skipped{reason="`+perdure.RetentionUnseen+`"} 0`) {
		t.Errorf("the metrics are\n%s", text)
	}
}
