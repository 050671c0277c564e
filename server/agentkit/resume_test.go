package agentkit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/agentkit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// withFace switches the face on.
var withFace = server.Options{Faces: []server.Face{agentkit.Face()}}

func newProcess(t *testing.T, s store.Store, flows ...perdure.Flow) *servertest.Process {
	t.Helper()
	return servertest.NewProcess(t, s, withFace, flows...)
}

// pullRequest asks before it pushes.
func pullRequest(n *kit.Tally) perdure.Flow {
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
			n.Hit("push")
			return "pushed " + in, nil
		})
	})
}

// startWaiting starts a run that waits.
func startWaiting(s *servertest.Site, flow, thread string, in any) *perdure.Run {
	s.T.Helper()
	run, err := s.Runtime.Start(s.T.Context(), perdure.StartRequest{Flow: flow, Thread: thread, Input: in})
	if err == nil {
		run, err = s.Runtime.Wait(s.T.Context(), run.Thread, run.ID)
	}
	if err != nil || len(run.Asks) == 0 {
		s.T.Fatalf("the run is %+v, %v", run, err)
	}
	return run
}

// outputOf returns what a run comes to.
func outputOf(s *servertest.Site, run *perdure.Run) string {
	s.T.Helper()
	done := servertest.Must(s.Runtime.WaitEnd(s.T.Context(), run.Thread, run.ID))(s.T)
	return servertest.Must(perdure.Output[string](done))(s.T)
}

// Promise of "Durable runtime": hours or days later, and in another process, the
// operator posts {traceId, promptId, response} exactly as the document does, and
// the run goes on by itself.
func TestSeedResumeApprovesInAnotherProcess(t *testing.T) {
	n := new(kit.Tally)
	journal := memstore.New()
	defer journal.Close()
	first := newProcess(t, journal, pullRequest(n))
	run := startWaiting(first.Site, "pr", "trace-42", "PR #42")
	first.Kill()

	second := newProcess(t, journal, pullRequest(n))
	const body = `{"traceId":"trace-42","promptId":"approve-pr","response":"approve"}`
	var out struct {
		OK               bool
		Thread, Run, Ask string
	}
	r := second.Do("POST", "/resume", body, "Content-Type", "application/json").Want(200, &out)
	if !out.OK || out.Thread != "trace-42" || out.Run != run.ID || out.Ask != run.Asks[0].ID || r.Header.Get("X-Agentkit-Trace-Id") != "trace-42" {
		t.Errorf("the answer is %s", r.Body)
	}
	if got := outputOf(second.Site, run); got != "pushed PR #42" {
		t.Errorf("it came to %q", got)
	}
	second.Do("POST", "/resume", body).Want(200)
	second.Do("POST", "/resume", strings.Replace(body, `"approve"}`, `"no, wait"}`, 1)).Problem(409, "answered")
	if n.Of("push") != 1 {
		t.Errorf("it was pushed %d times", n.Of("push"))
	}
}

func TestResumeSaysWhatIsWrong(t *testing.T) {
	s := servertest.New(t, withFace, pullRequest(new(kit.Tally)))
	run := startWaiting(s, "pr", "t", "x")
	other := startWaiting(s, "pr", "t2", "y")
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
		s.Do("POST", "/resume", body).Problem(want.status, want.kind)
	}
	servertest.Check(t, s.Runtime.Cancel(t.Context(), "t", run.ID, perdure.Note{}))
	servertest.Must(s.Runtime.WaitEnd(t.Context(), "t", run.ID))(t)
	s.Do("POST", "/resume", `{"traceId":"t","promptId":"approve-pr","response":"approve"}`).Problem(410, "ask-over")
	s.Do("POST", "/resume", `{"traceId":"t","promptId":"`+run.Asks[0].ID+`","response":"approve"}`).Problem(410, "ask-over")
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
		s := servertest.New(t, withFace, pullRequest(new(kit.Tally)))
		run := startWaiting(s, "pr", "t", "x")
		// The trace is the run here, the prompt the ask, and the spelling another.
		s.Do("POST", "/resume", fmt.Sprintf(`{"trace_id":%q,"prompt_id":%q,"response":%s,}`, run.ID, run.Asks[0].ID, response)).Want(200)
		if got := outputOf(s, run); got != want {
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
	s := servertest.New(t, withFace, two)
	run := startWaiting(s, "two", "t", "x")
	r := s.Do("POST", "/resume", `{"traceId":"t","promptId":"opinion","response":"fine"}`).Problem(409, "ambiguous")
	for _, ask := range run.Asks {
		if !strings.Contains(string(r.Body), ask.ID) {
			t.Errorf("the problem does not name %s: %s", ask.ID, r.Body)
		}
	}
	s.Do("POST", "/resume", fmt.Sprintf(`{"traceId":"t","promptId":%q,"response":"fine"}`, run.Asks[0].ID)).Want(200)
	s.Do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"opinion","response":"good"}`, run.ID)).Want(200)
	if got := outputOf(s, run); got != "fine+good" && got != "good+fine" {
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
	s := servertest.New(t, withFace, echo)
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
		run := startWaiting(s, "echo", fmt.Sprint("t", i), test.kind)
		if test.kind != "text" && test.kind != "any" {
			s.Do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"q","response":"what?"}`, run.Thread)).Problem(422, "answer")
		}
		s.Do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"q","response":%s}`, run.Thread, test.response)).Want(200)
		if got := outputOf(s, run); got != test.want {
			t.Errorf("%s of %s came to %q, want %q", test.response, test.kind, got, test.want)
		}
	}
}
