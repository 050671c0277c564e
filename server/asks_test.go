package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// plainTeam is a site with people: a boss who may do everything, ann of the
// group buyers, and bob.
func plainTeam(t *testing.T, flows ...perdure.Flow) *servertest.Site {
	t.Helper()
	all := []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}
	s := servertest.New(t, server.Options{Auth: servertest.People{
		"boss": {Subject: "boss", Scopes: []api.Scope{api.ScopeAdmin}},
		"ann":  {Subject: "ann", Groups: []string{"buyers"}, Scopes: all},
		"bob":  {Subject: "bob", Scopes: all},
	}}, append(plainFlows(), flows...)...)
	s.Token = "boss"
	return s
}

// as returns the site as someone else sees it.
func plainAs(s *servertest.Site, token string) *servertest.Site {
	other := *s
	other.Token = token
	return &other
}

func TestTheInboxShowsOpenAsksOfAllThreads(t *testing.T) {
	s := plainTeam(t)
	for i, q := range []string{`{"Kind":"approval","Who":["ann"]}`, `{"Kind":"input","Who":["group:buyers"]}`, `{"Kind":"approval"}`, `{"Who":["bob","group:sellers"]}`} {
		user := []string{"ann", "bob"}[i%2]
		id := fmt.Sprintf("t%d", i)
		s.Do("POST", "/v1/threads/"+id+"/runs", fmt.Sprintf(`{"flow":"ask","input":%s,"user":%q}`, q, user)).Want(202)
		plainWait(s, &perdure.Run{Thread: id, ID: api.Newest})
	}
	plainWait(s, plainStart(s, "many", "yes", "5"))
	plainWait(s, plainStart(s, "none", "echo", `"x"`))
	list := func(s *servertest.Site, query string) (threads []string) {
		t.Helper()
		for range 20 {
			var page api.AskPage
			s.Do("GET", "/v1/asks?"+query, "").Want(200, &page)
			for _, a := range page.Asks {
				threads = append(threads, a.Thread)
				if a.Status != "open" {
					t.Errorf("ask %s is %s", a.ID, a.Status)
				}
			}
			if page.Next == "" {
				return threads
			}
			query, _, _ = strings.Cut(query, "&after=")
			query += "&after=" + page.Next
		}
		t.Fatal("the pages do not end")
		return nil
	}
	five := slices.Repeat([]string{"many"}, 5)
	for _, c := range []struct {
		token, query string
		want         []string
	}{
		{"boss", "", append([]string{"t0", "t1", "t2", "t3"}, five...)},
		{"boss", "limit=1", append([]string{"t0", "t1", "t2", "t3"}, five...)},
		{"boss", "limit=3", append([]string{"t0", "t1", "t2", "t3"}, five...)},
		{"boss", "kind=approval", []string{"t0", "t2"}},
		{"boss", "kind=approval&limit=1", []string{"t0", "t2"}},
		{"boss", "user=bob", []string{"t1", "t3"}},
		{"boss", "flow=ask", []string{"t0", "t1", "t2", "t3"}},
		{"boss", "flow=echo", nil},
		{"boss", "thread=many", five},
		{"boss", "thread=t0&kind=input", nil},
		{"ann", "mine=true", append([]string{"t0", "t1", "t2"}, five...)},
		{"bob", "mine=true", append([]string{"t2", "t3"}, five...)},
		{"bob", "mine=true&thread=t0", nil},
	} {
		if got := list(plainAs(s, c.token), c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s asks for %q: %q, want %q", c.token, c.query, got, c.want)
		}
	}
	s.Do("GET", "/v1/asks?thread=nowhere", "").Problem(404, "no-thread")
	s.Do("GET", "/v1/asks?limit=1001", "").Problem(400, "invalid")
	s.Do("GET", "/v1/asks?after=%2F", "").Problem(400, "invalid")
}

func TestAnAskIsAnsweredOnceByWhoMay(t *testing.T) {
	s := plainTeam(t)
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	run := plainWait(s, plainStart(s, "t", "ask", `{"Who":["group:buyers"],"Decisions":["approve","reject"]}`))
	ask := "/v1/asks/" + run.Asks[0].ID
	var info perdure.AskInfo
	bob.Do("GET", ask, "").Want(200, &info)
	if info.Status != "open" || info.Thread != "t" {
		t.Errorf("the ask is %+v", info)
	}
	bob.Do("POST", ask+"/answer", `{"decision":"approve"}`).Problem(403, "forbidden")
	if r := ann.Do("POST", ask+"/answer", `{"decision":"dance"}`).Problem(422, "answer"); strings.Contains(string(r.Body), "dance") {
		t.Errorf("what was given, which may be a secret, is told: %s", r.Body)
	}
	ann.Do("POST", ask+"/answer", `{"decision":"approve"}`, "If-Match", `"1"`).Problem(412, "stale")
	bob.Do("POST", ask+"/progress", `{"value":{"seen":true}}`).Problem(403, "forbidden")
	ann.Do("POST", ask+"/progress", `{"value":{"seen":true}}`).Want(204)
	ann.Do("POST", ask+"/answer", `{"decision":"approve","value":{"n":1},"message":"fine"}`).Want(200, &info)
	if info.Status != "answered" || info.Answer == nil || info.Answer.By != "ann" || info.Answer.Decision != "approve" || info.Answer.Message != "fine" {
		t.Errorf("the ask is %+v with %+v", info, info.Answer)
	}
	ann.Do("POST", ask+"/answer", `{"decision":"approve","value":{"n":1},"message":"fine"}`).Want(200)
	ann.Do("POST", ask+"/answer", `{"decision":"reject"}`).Problem(409, "answered")
	over := plainWait(s, run)
	if !strings.Contains(string(over.Output), `"by":"ann"`) {
		t.Errorf("the output is %s", over.Output)
	}
	ann.Do("POST", ask+"/progress", `{"value":1}`).Problem(410, "ask-over")
	for _, id := range []string{"none", "x.y", strings.Repeat("z", 300), run.Asks[0].ID + "x"} {
		s.Do("GET", "/v1/asks/"+id, "").Problem(404, "no-ask")
		s.Do("POST", "/v1/asks/"+id+"/answer", `{"value":true}`).Problem(404, "no-ask")
		s.Do("POST", "/v1/asks/"+id+"/progress", `{"value":true}`).Problem(404, "no-ask")
		s.Do("POST", "/v1/asks/"+id+"/secret", `{"secret":"x"}`).Problem(404, "no-ask")
	}
	gone := plainWait(s, plainStart(s, "g", "ask", `{}`))
	s.Do("POST", plainPath(gone)+"/cancel", "").Want(200)
	plainWait(s, gone)
	s.Do("POST", "/v1/asks/"+gone.Asks[0].ID+"/answer", `{"value":true}`).Problem(410, "ask-over")
}

func TestAnAnswerFitsTheAsk(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "1"))
	ask := "/v1/asks/" + run.Asks[0].ID + "/answer"
	for _, body := range []string{`{}`, `{"value":null}`, `{"value":"yes"}`, `{"value":1}`, `{"value":true,"decision":"approve"}`} {
		s.Do("POST", ask, body).Problem(422, "answer")
	}
	s.Do("POST", ask, `{"value":true}`).Want(200)
}

func TestOfManyAnswersOneCounts(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "1"))
	replies := make([]*servertest.Reply, 10)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			replies[i] = s.Do("POST", "/v1/asks/"+run.Asks[0].ID+"/answer", fmt.Sprintf(`{"value":%t}`, i%2 == 0))
		})
	}
	wg.Wait()
	var info perdure.AskInfo
	s.Do("GET", "/v1/asks/"+run.Asks[0].ID, "").Want(200, &info)
	for i, r := range replies {
		if (i%2 == 0) == info.Answer.Value {
			r.Want(200)
		} else {
			r.Problem(409, "answered")
		}
	}
}

func TestSeveralAsksAreAnsweredTogetherOrNotAtAll(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "3"))
	other := plainWait(s, plainStart(s, "o", "yes", "1"))
	id := func(i int) string { return run.Asks[i].ID }
	answers := func(list ...string) string { return `{"answers":[` + strings.Join(list, ",") + `]}` }
	one := func(ask, value string) string { return fmt.Sprintf(`{"ask":%q,"value":%s}`, ask, value) }
	all := answers(one(id(0), "true"), one(id(1), "false"), one(id(2), "true"))
	s.Do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(id(1), `"no"`))).Problem(422, "answer")
	s.Do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(other.Asks[0].ID, "true"))).Problem(404, "no-ask")
	s.Do("POST", "/v1/threads/o/answers", answers(one(id(0), "true"))).Problem(404, "no-ask")
	s.Do("POST", "/v1/threads/none/answers", answers(one(id(0), "true"))).Problem(404, "no-thread")
	s.Do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(id(0), "false"))).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/answers", answers()).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/answers", `{"answers":[{"ask":"x","colour":1}]}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/t/answers", `{"answers":[null]}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/t/answers", all, "If-Match", `"2"`).Problem(412, "stale")
	var page api.AskPage
	s.Do("GET", "/v1/asks?thread=t", "").Want(200, &page)
	if len(page.Asks) != 3 {
		t.Errorf("%d asks are open", len(page.Asks))
	}
	tag := s.Do("GET", "/v1/threads/t", "").Header.Get("ETag")
	var list api.AskList
	s.Do("POST", "/v1/threads/t/answers", all, "If-Match", tag).Want(200, &list)
	if len(list.Asks) != 3 || list.Asks[1].ID != id(1) || list.Asks[1].Status != "answered" {
		t.Errorf("the asks are %+v", list.Asks)
	}
	s.Do("POST", "/v1/threads/t/answers", all, "If-Match", tag).Want(200) // again changes nothing
	if over := plainWait(s, run); over.Status != perdure.Succeeded {
		t.Errorf("the run is %s", over.Status)
	}
}

func TestASignalIsSent(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "signal", `"go"`))
	s.Do("POST", "/v1/threads/t/signals/other", `{"value":"no"}`, "Idempotency-Key", "a").Want(204)
	s.Do("POST", "/v1/threads/t/signals/go", `{"value":"yes"}`, "Idempotency-Key", "b").Want(204)
	s.Do("POST", "/v1/threads/t/signals/go", `{"value":"yes"}`, "Idempotency-Key", "b").Want(204)
	if over := plainWait(s, run); string(over.Output) != `"yes"` {
		t.Errorf("the output is %s", over.Output)
	}
	s.Do("POST", "/v1/threads/none/signals/go", "").Problem(404, "no-thread")
	s.Do("POST", "/v1/threads/t/signals/"+strings.Repeat("x", 2000), "").Problem(400, "name")
}

func TestASecretIsGivenAndNotShown(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k1:"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))))
	login := perdure.NewFlow("login", func(ctx context.Context, _ string) (string, error) {
		_, err := perdure.Ask[perdure.Answer](ctx, "provide", perdure.Question{Kind: agent.KindCredential, Data: map[string]any{"credential": "mail"},
			Who: []string{"ann"}, Decisions: []string{agent.DecisionProvided, agent.DecisionReject}})
		return "in", err
	})
	s := plainTeam(t, login)
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	run := plainWait(ann, plainStart(ann, "t", "login", `""`))
	const canary = "c4n4ry-of-a-secret"
	path := "/v1/asks/" + run.Asks[0].ID + "/secret"
	bob.Do("POST", path, `{"secret":"`+canary+`"}`).Problem(403, "forbidden")
	r := ann.Do("POST", path, `{"secret":"`+canary+`"}`).Want(204)
	if strings.Contains(string(r.Body), canary) {
		t.Error("the answer shows the secret")
	}
	if over := plainWait(ann, run); over.Status != perdure.Succeeded {
		t.Errorf("the run is %s: %s", over.Status, over.Error)
	}
	for _, path := range []string{"/v1/threads/t/export", "/v1/threads/t/state", "/v1/asks/" + run.Asks[0].ID, "/v1/threads/t/history"} {
		if strings.Contains(string(s.Do("GET", path, "").Want(200).Body), canary) {
			t.Errorf("%s shows the secret", path)
		}
	}
	other := plainWait(ann, plainStart(ann, "o", "ask", `{}`))
	ann.Do("POST", "/v1/asks/"+other.Asks[0].ID+"/secret", `{"secret":"x"}`).Problem(422, "credential")
	t.Setenv("PERDURE_KEYS", "")
	third := plainWait(ann, plainStart(ann, "u", "login", `""`))
	ann.Do("POST", "/v1/asks/"+third.Asks[0].ID+"/secret", `{"secret":"x"}`).Problem(409, "unsealed")
}

func TestRulesAreListedAndRevoked(t *testing.T) {
	s := plainTeam(t)
	rule := servertest.Must(agent.RulesOf(s.Runtime).Allow(t.Context(), agent.Rule{User: "ann", Flow: "f", Agent: "clerk", Tool: "pay", Schema: "s", Args: json.RawMessage(`{"n":1}`), Who: []string{"ann"}}, "ann"))(t)
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	count := func(s *servertest.Site, query string) int {
		var list api.RuleList
		s.Do("GET", "/v1/rules"+query, "").Want(200, &list)
		return len(list.Rules)
	}
	if count(ann, "") != 1 || count(bob, "") != 0 || count(bob, "?user=ann") != 1 {
		t.Error("rules are listed by their user, the caller if none is named")
	}
	bob.Do("DELETE", "/v1/rules/"+rule.ID, "").Problem(403, "forbidden")
	ann.Do("DELETE", "/v1/rules/none", "").Problem(404, "no-rule")
	ann.Do("DELETE", "/v1/rules/"+rule.ID, "").Want(204)
	ann.Do("DELETE", "/v1/rules/"+rule.ID, "").Problem(404, "no-rule")
	if count(ann, "") != 0 {
		t.Error("the rule is still there")
	}
}
