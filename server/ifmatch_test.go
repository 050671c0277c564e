package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestTagsOfAnotherLife writes with the tag of an erased thread that had the same id and
// the same sequence, and with one from before the store was restored. Both are stale.
func TestTagsOfAnotherLife(t *testing.T) {
	s := unclosed{memstore.New()}
	site := servertest.NewOn(t, s, server.Options{Version: "test"}, plainFlows()...)
	tagOf := func(path string) string { return site.Do("GET", path, "").Want(200).Header.Get("ETag") }
	stale := func(tag string) {
		t.Helper()
		run := plainWait(site, plainStart(site, "t", "ask", "{}"))
		tag = strings.Replace(tag, "SEQ", strings.Trim(strings.Split(tagOf("/v1/threads/t"), "-")[0], `"`), 1)
		p := servertest.Decode[api.Problem](site.Do("PATCH", "/v1/threads/t", `{"title":"x"}`, "If-Match", tag).Problem(412, "stale"), 412)
		if p.Seq == nil || p.Thread != "t" {
			t.Errorf("the problem does not say how it stands: %+v", p)
		}
		site.Do("POST", "/v1/asks/"+run.Asks[0].ID+"/answer", `{"decision":"approve"}`, "If-Match", tag).Problem(412, "stale")
		site.Do("POST", plainPath(run)+"/cancel", `{}`, "If-Match", tag).Problem(412, "stale")
		site.Do("POST", plainPath(run)+"/cancel", `{}`, "If-Match", tagOf("/v1/threads/t")).Want(200)
		plainWait(site, run)
	}
	fresh := func() {
		t.Helper()
		for _, path := range []string{"/v1/threads/t", "/v1/threads/t/state", "/v1/threads/t/runs"} {
			if tag := tagOf(path); tag != tagOf("/v1/threads/t") {
				t.Errorf("%s has the tag %s", path, tag)
			}
		}
		site.Do("PATCH", "/v1/threads/t", `{"title":"right"}`, "If-Match", tagOf("/v1/threads/t")).Want(200)
		site.Do("PATCH", "/v1/threads/t", `{"title":"x"}`, "If-Match", `"5-"`).Problem(400, "invalid")
	}
	plainWait(site, plainStart(site, "t", "echo", `"x"`))
	first := tagOf("/v1/threads/t")
	if strings.Contains(first, "-") {
		t.Errorf("the first tag is %s", first)
	}
	fresh()
	site.Do("DELETE", "/v1/threads/t", "").Want(204)

	plainWait(site, plainStart(site, "t", "echo", `"x"`))
	if second := tagOf("/v1/threads/t"); !strings.HasPrefix(second, strings.TrimSuffix(first, `"`)+"-") {
		t.Errorf("the tag is %s, that of the erased thread was %s", second, first)
	}
	site.Do("PATCH", "/v1/threads/t", `{"title":"x"}`, "If-Match", first).Problem(412, "stale")
	stale(`"SEQ"`)
	fresh()

	before := tagOf("/v1/threads/t")
	servertest.Check(t, threads.MarkRestored(t.Context(), s, time.Now()))
	site = servertest.NewOn(t, s, server.Options{Version: "test"}, plainFlows()...)
	site.Do("PATCH", "/v1/threads/t", `{"title":"x"}`, "If-Match", before).Problem(412, "stale")
	_, life, _ := strings.Cut(before, "-")
	stale(`"SEQ-` + life)
	fresh()

	// A Go client knows sequences only, as a runtime does.
	c, err := client.New(site.URL, client.Options{Token: site.Token})
	servertest.Check(t, err)
	now, err := c.Get(t.Context(), "t")
	servertest.Check(t, err)
	servertest.Check(t, c.SetMetadata(t.Context(), "t", nil, map[string]string{"k": "v"}, perdure.Note{IfSeq: now.Seq}))
}
