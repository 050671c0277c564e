package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// resumePR asks before it pushes.
func resumePR(n *adkCount) perdure.Flow {
	return perdure.NewFlow("pr", func(ctx context.Context, in string) (string, error) {
		a, err := perdure.Ask[perdure.Answer](ctx, "approve-pr", perdure.Question{
			Kind: "approval", Prompt: "About to push " + in + ": approve?", Decisions: []string{agent.DecisionApprove, agent.DecisionReject}})
		if err != nil {
			return "", err
		}
		if a.Decision != agent.DecisionApprove {
			return "not pushed: " + a.Message, nil
		}
		return perdure.Step(ctx, "push", func(context.Context) (string, error) {
			n.add("push")
			return "pushed " + in, nil
		})
	})
}

// resumeStart starts a run that waits.
func (s *site) resumeStart(flow, thread string, in any) *perdure.Run {
	s.t.Helper()
	run, err := s.rt.Start(s.t.Context(), perdure.StartRequest{Flow: flow, Thread: thread, Input: in})
	if err == nil {
		run, err = s.rt.Wait(s.t.Context(), run.Thread, run.ID)
	}
	if err != nil || len(run.Asks) == 0 {
		s.t.Fatalf("the run is %+v, %v", run, err)
	}
	return run
}

// resumeEnd returns what a run comes to.
func (s *site) resumeEnd(run *perdure.Run) string {
	s.t.Helper()
	done, err := s.rt.WaitEnd(s.t.Context(), run.Thread, run.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := perdure.Output[string](done)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Promise of "Durable runtime": hours or days later, and in another process, the
// operator posts {traceId, promptId, response} exactly as the document does, and
// the run goes on by itself.
func TestSeedResumeApprovesInAnotherProcess(t *testing.T) {
	n := new(adkCount)
	journal := memstore.New()
	defer journal.Close()
	first := adkStart(t, journal, resumePR(n))
	run := first.resumeStart("pr", "trace-42", "PR #42")
	first.end()

	second := adkStart(t, journal, resumePR(n))
	const body = `{"traceId":"trace-42","promptId":"approve-pr","response":"approve"}`
	var out struct {
		OK               bool
		Thread, Run, Ask string
	}
	r := second.do("POST", "/resume", body, "Content-Type", "application/json").want(200, &out)
	if !out.OK || out.Thread != "trace-42" || out.Run != run.ID || out.Ask != run.Asks[0].ID || r.Header.Get("X-Agentkit-Trace-Id") != "trace-42" {
		t.Errorf("the answer is %s", r.Body)
	}
	if got := second.resumeEnd(run); got != "pushed PR #42" {
		t.Errorf("it came to %q", got)
	}
	second.do("POST", "/resume", body).want(200)
	second.do("POST", "/resume", strings.Replace(body, `"approve"}`, `"no, wait"}`, 1)).problem(409, "answered")
	if n.of("push") != 1 {
		t.Errorf("it was pushed %d times", n.of("push"))
	}
}

func TestResumeSaysWhatIsWrong(t *testing.T) {
	s := newSite(t, server.Options{}, resumePR(new(adkCount)))
	run := s.resumeStart("pr", "t", "x")
	other := s.resumeStart("pr", "t2", "y")
	for body, want := range map[string]struct {
		status int
		kind   string
	}{
		``: {400, "body"},
		`{"traceId":"t","promptId":"approve-pr"}`:                                         {400, "body"},
		`{"traceId":"t","promptId":"approve-pr","response":null}`:                         {400, "body"},
		`{"traceId":"t","response":"approve"}`:                                            {400, "body"},
		`{"traceId":"t","promptId":"none","response":"approve"}`:                          {404, "no-ask"},
		`{"traceId":"nowhere","promptId":"approve-pr","response":"approve"}`:              {404, "no-ask"},
		`{"traceId":"t","promptId":"` + other.Asks[0].ID + `","response":"approve"}`:      {404, "no-ask"},
		`{"traceId":"t2","promptId":"` + run.Asks[0].ID + `","response":"approve"}`:       {404, "no-ask"},
		`{"traceId":"t","promptId":"approve-pr","response":{"x":1}}`:                      {422, "answer"},
		`{"traceId":"t","promptId":"approve-pr","response":{"decision":"edit"}}`:          {422, "answer"},
		`{"traceId":"` + strings.Repeat("x", 5000) + `","promptId":"p","response":"yes"}`: {404, "no-ask"},
	} {
		s.do("POST", "/resume", body).problem(want.status, want.kind)
	}
	if err := s.rt.Cancel(t.Context(), "t", run.ID, perdure.Note{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rt.WaitEnd(t.Context(), "t", run.ID); err != nil {
		t.Fatal(err)
	}
	s.do("POST", "/resume", `{"traceId":"t","promptId":"approve-pr","response":"approve"}`).problem(410, "ask-over")
	s.do("POST", "/resume", `{"traceId":"t","promptId":"`+run.Asks[0].ID+`","response":"approve"}`).problem(410, "ask-over")
}

func TestResumeUnderstandsResponses(t *testing.T) {
	for response, want := range map[string]string{
		`"approve"`:                             "pushed x",
		`" Yes\n"`:                              "pushed x",
		`true`:                                  "pushed x",
		`{"decision":"approve"}`:                "pushed x",
		`"not on a Friday"`:                     "not pushed: not on a Friday",
		`"reject"`:                              "not pushed: ",
		`false`:                                 "not pushed: ",
		`{"decision":"reject","message":"why"}`: "not pushed: why",
	} {
		s := newSite(t, server.Options{}, resumePR(new(adkCount)))
		run := s.resumeStart("pr", "t", "x")
		// The trace is the run here, the prompt the ask, and the spelling another.
		s.do("POST", "/resume", fmt.Sprintf(`{"trace_id":%q,"prompt_id":%q,"response":%s,}`, run.ID, run.Asks[0].ID, response)).want(200)
		if got := s.resumeEnd(run); got != want {
			t.Errorf("%s came to %q, want %q", response, got, want)
		}
	}
}

// The name of an ask does where it is the only open one of its thread or run.
func TestResumeByNameIsNeverAGuess(t *testing.T) {
	two := perdure.NewFlow("two", func(ctx context.Context, in string) (string, error) {
		g := perdure.NewGroup(ctx)
		var got [2]string
		for i := range got {
			g.Go(fmt.Sprintf("branch-%d", i), func(ctx context.Context) (err error) {
				got[i], err = perdure.Ask[string](ctx, "opinion", perdure.Question{Prompt: in})
				return err
			})
		}
		err := g.Wait()
		return strings.Join(got[:], "+"), err
	})
	s := newSite(t, server.Options{}, two)
	run := s.resumeStart("two", "t", "x")
	r := s.do("POST", "/resume", `{"traceId":"t","promptId":"opinion","response":"fine"}`).problem(409, "ambiguous")
	for _, ask := range run.Asks {
		if !strings.Contains(string(r.Body), ask.ID) {
			t.Errorf("the problem does not name %s: %s", ask.ID, r.Body)
		}
	}
	s.do("POST", "/resume", fmt.Sprintf(`{"traceId":"t","promptId":%q,"response":"fine"}`, run.Asks[0].ID)).want(200)
	s.do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"opinion","response":"good"}`, run.ID)).want(200)
	if got := s.resumeEnd(run); got != "fine+good" && got != "good+fine" {
		t.Errorf("it came to %q", got)
	}
}

// Asks without decisions take the value as it is.
func TestResumeGivesValues(t *testing.T) {
	echo := perdure.NewFlow("echo", func(ctx context.Context, kind string) (string, error) {
		switch kind {
		case "bool":
			v, err := perdure.Ask[bool](ctx, "q", perdure.Question{})
			return fmt.Sprint(v), err
		case "int":
			v, err := perdure.Ask[int](ctx, "q", perdure.Question{})
			return fmt.Sprint(v), err
		case "any":
			v, err := perdure.Ask[any](ctx, "q", perdure.Question{})
			return fmt.Sprint(v), err
		case "map":
			v, err := perdure.Ask[map[string]any](ctx, "q", perdure.Question{})
			return fmt.Sprint(v), err
		}
		return perdure.Ask[string](ctx, "q", perdure.Question{})
	})
	s := newSite(t, server.Options{}, echo)
	for i, test := range []struct{ kind, response, want string }{
		{"text", `"approve"`, "approve"},
		{"text", `{"value":"v","message":"m"}`, "v"},
		{"bool", `"approve"`, "true"},
		{"bool", `"no"`, "false"},
		{"bool", `false`, "false"},
		{"int", `42`, "42"},
		{"map", `{"value":1}`, "map[value:1]"},
		{"any", `{"value":1}`, "1"},
		{"any", `{"value":1,"score":3}`, "map[score:3 value:1]"},
		{"any", `{"value":1,"message":3}`, "map[message:3 value:1]"},
	} {
		run := s.resumeStart("echo", fmt.Sprint("t", i), test.kind)
		if test.kind != "text" && test.kind != "any" {
			s.do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"q","response":"what?"}`, run.Thread)).problem(422, "answer")
		}
		s.do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"q","response":%s}`, run.Thread, test.response)).want(200)
		if got := s.resumeEnd(run); got != test.want {
			t.Errorf("%s of %s came to %q, want %q", test.response, test.kind, got, test.want)
		}
	}
}

// A secret that answers an ask for a credential is sealed, and in no journal.
func TestResumeKeepsSecretsOutOfTheJournal(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	const secret = "canary-4711-secret"
	for _, way := range []string{"/resume", "/run"} {
		s := newSite(t, server.Options{}, adkVault(t, secret))
		s.adkSession("vault", "u", "s")
		events := s.adkRun(adkBody("vault", "x"))
		adkWant(t, events, "vault: call fetch", "vault: call adk_request_credential")
		id := events[1].Content.Parts[0].FunctionCall.ID
		if way == "/resume" {
			s.do("POST", way, fmt.Sprintf(`{"traceId":"s","promptId":%q,"response":%q}`, id, secret)).want(200)
		} else {
			s.do("POST", way, adkAnswerBody("vault", id, "adk_request_credential", `{"nothing":"here"}`)).problem(422, "answer")
			s.do("POST", way, adkAnswerBody("vault", id, "adk_request_credential", `{"exchangedAuthCredential":{"authType":"OAUTH2","oauth2":{"accessToken":"`+secret+`"}}}`)).want(200)
		}
		run, err := s.rt.WaitEnd(t.Context(), "s", "")
		if err != nil || run.Status != perdure.Succeeded {
			t.Fatalf("%s: the run is %+v, %v", way, run, err)
		}
		for e, err := range s.rt.Events(t.Context(), "s", perdure.EventOptions{Replay: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(fmt.Sprintf("%s %s %s", e.Value, e.Reason, e.Error), secret) {
				t.Errorf("%s: the secret is in event %d", way, e.Seq)
			}
		}
		if r := s.do("GET", "/apps/vault/users/u/sessions/s", "").want(200); strings.Contains(string(r.Body), secret) {
			t.Errorf("%s: the session shows the secret", way)
		}
	}
}

var errResumeSecret = errors.New("another secret")
