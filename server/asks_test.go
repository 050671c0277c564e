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
	"github.com/perdure/perdure/server"
)

// plainPeople knows tokens by their names.
type plainPeople map[string]*server.Principal

func (p plainPeople) Authenticate(_ context.Context, token string) (*server.Principal, error) {
	if who := p[token]; who != nil {
		return who, nil
	}
	return nil, api.ErrUnauthorized
}

// plainTeam is a site with people: a boss who may do everything, ann of the
// group buyers, and bob.
func plainTeam(t *testing.T, flows ...perdure.Flow) *site {
	t.Helper()
	all := []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}
	s := newSite(t, server.Options{Auth: plainPeople{
		"boss": {Subject: "boss", Scopes: []api.Scope{api.ScopeAdmin}},
		"ann":  {Subject: "ann", Groups: []string{"buyers"}, Scopes: all},
		"bob":  {Subject: "bob", Scopes: all},
	}}, append(plainFlows(), flows...)...)
	s.token = "boss"
	return s
}

// as returns the site as someone else sees it.
func plainAs(s *site, token string) *site {
	other := *s
	other.token = token
	return &other
}

func TestTheInboxShowsOpenAsksOfAllThreads(t *testing.T) {
	s := plainTeam(t)
	for i, q := range []string{`{"Kind":"approval","Who":["ann"]}`, `{"Kind":"input","Who":["group:buyers"]}`, `{"Kind":"approval"}`, `{"Who":["bob","group:sellers"]}`} {
		user := []string{"ann", "bob"}[i%2]
		id := fmt.Sprintf("t%d", i)
		s.do("POST", "/v1/threads/"+id+"/runs", fmt.Sprintf(`{"flow":"ask","input":%s,"user":%q}`, q, user)).want(202)
		plainWait(s, &perdure.Run{Thread: id, ID: api.Newest})
	}
	plainWait(s, plainStart(s, "many", "yes", "5"))
	plainWait(s, plainStart(s, "none", "echo", `"x"`))
	list := func(s *site, query string) (threads []string) {
		t.Helper()
		for range 20 {
			var page api.AskPage
			s.do("GET", "/v1/asks?"+query, "").want(200, &page)
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
	s.do("GET", "/v1/asks?thread=nowhere", "").problem(404, "no-thread")
	s.do("GET", "/v1/asks?limit=1001", "").problem(400, "invalid")
	s.do("GET", "/v1/asks?after=%2F", "").problem(400, "invalid")
}

func TestAnAskIsAnsweredOnceByWhoMay(t *testing.T) {
	s := plainTeam(t)
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	run := plainWait(s, plainStart(s, "t", "ask", `{"Who":["group:buyers"],"Decisions":["approve","reject"]}`))
	ask := "/v1/asks/" + run.Asks[0].ID
	var info perdure.AskInfo
	bob.do("GET", ask, "").want(200, &info)
	if info.Status != "open" || info.Thread != "t" {
		t.Errorf("the ask is %+v", info)
	}
	bob.do("POST", ask+"/answer", `{"decision":"approve"}`).problem(403, "forbidden")
	if r := ann.do("POST", ask+"/answer", `{"decision":"dance"}`).problem(422, "answer"); strings.Contains(string(r.Body), "dance") {
		t.Errorf("what was given, which may be a secret, is told: %s", r.Body)
	}
	ann.do("POST", ask+"/answer", `{"decision":"approve"}`, "If-Match", `"1"`).problem(412, "stale")
	bob.do("POST", ask+"/progress", `{"value":{"seen":true}}`).problem(403, "forbidden")
	ann.do("POST", ask+"/progress", `{"value":{"seen":true}}`).want(204)
	ann.do("POST", ask+"/answer", `{"decision":"approve","value":{"n":1},"message":"fine"}`).want(200, &info)
	if info.Status != "answered" || info.Answer == nil || info.Answer.By != "ann" || info.Answer.Decision != "approve" || info.Answer.Message != "fine" {
		t.Errorf("the ask is %+v with %+v", info, info.Answer)
	}
	ann.do("POST", ask+"/answer", `{"decision":"approve","value":{"n":1},"message":"fine"}`).want(200)
	ann.do("POST", ask+"/answer", `{"decision":"reject"}`).problem(409, "answered")
	over := plainWait(s, run)
	if !strings.Contains(string(over.Output), `"by":"ann"`) {
		t.Errorf("the output is %s", over.Output)
	}
	ann.do("POST", ask+"/progress", `{"value":1}`).problem(410, "ask-over")
	for _, id := range []string{"none", "x.y", strings.Repeat("z", 300), run.Asks[0].ID + "x"} {
		s.do("GET", "/v1/asks/"+id, "").problem(404, "no-ask")
		s.do("POST", "/v1/asks/"+id+"/answer", `{"value":true}`).problem(404, "no-ask")
		s.do("POST", "/v1/asks/"+id+"/progress", `{"value":true}`).problem(404, "no-ask")
		s.do("POST", "/v1/asks/"+id+"/secret", `{"secret":"x"}`).problem(404, "no-ask")
	}
	gone := plainWait(s, plainStart(s, "g", "ask", `{}`))
	s.do("POST", plainPath(gone)+"/cancel", "").want(200)
	plainWait(s, gone)
	s.do("POST", "/v1/asks/"+gone.Asks[0].ID+"/answer", `{"value":true}`).problem(410, "ask-over")
}

func TestAnAnswerFitsTheAsk(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "1"))
	ask := "/v1/asks/" + run.Asks[0].ID + "/answer"
	for _, body := range []string{`{}`, `{"value":null}`, `{"value":"yes"}`, `{"value":1}`, `{"value":true,"decision":"approve"}`} {
		s.do("POST", ask, body).problem(422, "answer")
	}
	s.do("POST", ask, `{"value":true}`).want(200)
}

func TestOfManyAnswersOneCounts(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "1"))
	replies := make([]*reply, 10)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			replies[i] = s.do("POST", "/v1/asks/"+run.Asks[0].ID+"/answer", fmt.Sprintf(`{"value":%t}`, i%2 == 0))
		})
	}
	wg.Wait()
	var info perdure.AskInfo
	s.do("GET", "/v1/asks/"+run.Asks[0].ID, "").want(200, &info)
	for i, r := range replies {
		if (i%2 == 0) == info.Answer.Value {
			r.want(200)
		} else {
			r.problem(409, "answered")
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
	s.do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(id(1), `"no"`))).problem(422, "answer")
	s.do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(other.Asks[0].ID, "true"))).problem(404, "no-ask")
	s.do("POST", "/v1/threads/o/answers", answers(one(id(0), "true"))).problem(404, "no-ask")
	s.do("POST", "/v1/threads/none/answers", answers(one(id(0), "true"))).problem(404, "no-thread")
	s.do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(id(0), "false"))).problem(400, "invalid")
	s.do("POST", "/v1/threads/t/answers", answers()).problem(400, "invalid")
	s.do("POST", "/v1/threads/t/answers", `{"answers":[{"ask":"x","colour":1}]}`).problem(400, "body")
	s.do("POST", "/v1/threads/t/answers", `{"answers":[null]}`).problem(400, "body")
	s.do("POST", "/v1/threads/t/answers", all, "If-Match", `"2"`).problem(412, "stale")
	var page api.AskPage
	s.do("GET", "/v1/asks?thread=t", "").want(200, &page)
	if len(page.Asks) != 3 {
		t.Errorf("%d asks are open", len(page.Asks))
	}
	tag := s.do("GET", "/v1/threads/t", "").Header.Get("ETag")
	var list api.AskList
	s.do("POST", "/v1/threads/t/answers", all, "If-Match", tag).want(200, &list)
	if len(list.Asks) != 3 || list.Asks[1].ID != id(1) || list.Asks[1].Status != "answered" {
		t.Errorf("the asks are %+v", list.Asks)
	}
	s.do("POST", "/v1/threads/t/answers", all, "If-Match", tag).want(200) // again changes nothing
	if over := plainWait(s, run); over.Status != perdure.Succeeded {
		t.Errorf("the run is %s", over.Status)
	}
}

func TestASignalIsSent(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "signal", `"go"`))
	s.do("POST", "/v1/threads/t/signals/other", `{"value":"no"}`, "Idempotency-Key", "a").want(204)
	s.do("POST", "/v1/threads/t/signals/go", `{"value":"yes"}`, "Idempotency-Key", "b").want(204)
	s.do("POST", "/v1/threads/t/signals/go", `{"value":"yes"}`, "Idempotency-Key", "b").want(204)
	if over := plainWait(s, run); string(over.Output) != `"yes"` {
		t.Errorf("the output is %s", over.Output)
	}
	s.do("POST", "/v1/threads/none/signals/go", "").problem(404, "no-thread")
	s.do("POST", "/v1/threads/t/signals/"+strings.Repeat("x", 2000), "").problem(400, "name")
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
	bob.do("POST", path, `{"secret":"`+canary+`"}`).problem(403, "forbidden")
	r := ann.do("POST", path, `{"secret":"`+canary+`"}`).want(204)
	if strings.Contains(string(r.Body), canary) {
		t.Error("the answer shows the secret")
	}
	if over := plainWait(ann, run); over.Status != perdure.Succeeded {
		t.Errorf("the run is %s: %s", over.Status, over.Error)
	}
	for _, path := range []string{"/v1/threads/t/export", "/v1/threads/t/state", "/v1/asks/" + run.Asks[0].ID, "/v1/threads/t/history"} {
		if strings.Contains(string(s.do("GET", path, "").want(200).Body), canary) {
			t.Errorf("%s shows the secret", path)
		}
	}
	other := plainWait(ann, plainStart(ann, "o", "ask", `{}`))
	ann.do("POST", "/v1/asks/"+other.Asks[0].ID+"/secret", `{"secret":"x"}`).problem(422, "credential")
	t.Setenv("PERDURE_KEYS", "")
	third := plainWait(ann, plainStart(ann, "u", "login", `""`))
	ann.do("POST", "/v1/asks/"+third.Asks[0].ID+"/secret", `{"secret":"x"}`).problem(409, "unsealed")
}

func TestRulesAreListedAndRevoked(t *testing.T) {
	s := plainTeam(t)
	rule, err := agent.RulesOf(s.rt).Allow(t.Context(), agent.Rule{User: "ann", Flow: "f", Agent: "clerk", Tool: "pay", Schema: "s", Args: json.RawMessage(`{"n":1}`), Who: []string{"ann"}}, "ann")
	if err != nil {
		t.Fatal(err)
	}
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	count := func(s *site, query string) int {
		var list api.RuleList
		s.do("GET", "/v1/rules"+query, "").want(200, &list)
		return len(list.Rules)
	}
	if count(ann, "") != 1 || count(bob, "") != 0 || count(bob, "?user=ann") != 1 {
		t.Error("rules are listed by their user, the caller if none is named")
	}
	bob.do("DELETE", "/v1/rules/"+rule.ID, "").problem(403, "forbidden")
	ann.do("DELETE", "/v1/rules/none", "").problem(404, "no-rule")
	ann.do("DELETE", "/v1/rules/"+rule.ID, "").want(204)
	ann.do("DELETE", "/v1/rules/"+rule.ID, "").problem(404, "no-rule")
	if count(ann, "") != 0 {
		t.Error("the rule is still there")
	}
}
