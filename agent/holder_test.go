package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// routed is a model of an agent that hands over as the user's message says:
// "a>b>a: hi" goes from a to b and back. Otherwise it calls pay if it is to pay,
// and says what it heard.
func routed(name string, fx *perduretest.Effects) *brain {
	return &brain{fx: fx, think: func(r *llm.Request) llm.Message {
		text := ""
		for _, m := range r.Messages {
			if m.Role == llm.RoleUser && !strings.HasPrefix(m.Text(), "[") {
				text = m.Text()
			}
		}
		route, text, _ := strings.Cut(text, ": ")
		turn, stops := replies(r), strings.Split(route, ">")
		for i, stop := range stops[:len(stops)-1] {
			if stop == name {
				if turn == 0 {
					return handTo(stops[i+1])
				}
				turn--
			}
		}
		if strings.Contains(text, "pay") && last(r).Role != llm.RoleTool {
			return calls(call("pay", `{"id":"1"}`))
		}
		return llm.Assistant(name + " heard " + text)
	}}
}

// crew are agents a, b and c: a hands over to b, and b to c.
func crew(fx *perduretest.Effects, o agent.Options) (a agent.Agent, models map[string]*brain) {
	models = map[string]*brain{}
	pay := noted(new(tally), "pay", agent.NeedsApproval())
	for _, name := range []string{"c", "b", "a"} {
		o := o
		o.Tools = []agent.Tool{pay}
		if a != nil {
			o.Transfer = []agent.Agent{a}
		}
		models[name] = routed(name, fx)
		a = agent.New(name, models[name], o)
	}
	return a, models
}

// tells runs a message on thread t and expects what is answered, and who holds the
// conversation then.
func tells(t *testing.T, e *perduretest.Env, thread, message, want, holder string) {
	t.Helper()
	e.Start(thread, "flow", message)
	if got := text(t, e.Wait(thread, perdure.Succeeded)); got != want {
		t.Errorf("%q is answered by %q, want %q\n%s", message, got, want, e.Trace(thread))
	}
	holds(t, e, thread, holder)
}

func holds(t *testing.T, e *perduretest.Env, thread, want string) {
	t.Helper()
	at, err := e.Runtime().StateAt(t.Context(), thread, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := agent.Holder(at.State, "a"); err != nil || got != want {
		t.Errorf("%q holds the conversation, %v, want %q", got, err, want)
	}
}

// TestWhoHoldsTheConversationAnswersNext: also across chains and back, in a new
// process, in a fork and after a rewind; and everyone knows what was said.
func TestWhoHoldsTheConversationAnswersNext(t *testing.T) {
	top, models := crew(nil, agent.Options{})
	perduretest.Virtual(t, flows(top), func(t *testing.T, e *perduretest.Env) {
		tells(t, e, "t", "a: one", "a heard one", "a")
		at, err := e.Runtime().Get(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		tells(t, e, "t", "a>b>c: two", "c heard two", "c")
		e.Restart()
		tells(t, e, "t", "x: three", "c heard three", "c")
		if got := len(models["a"].requests()) + len(models["b"].requests()); got != 3 {
			t.Errorf("others were asked %d times", got)
		}
		// It remembers its own replies as its own, and sees those of others.
		request := models["c"].requests()[1].Messages
		if got := string(raw(request)); !strings.Contains(got, "[a] a heard one") || !slices.ContainsFunc(request, func(m llm.Message) bool { return m.Role == llm.RoleAssistant && m.Text() == "c heard two" }) {
			t.Errorf("c reads %s", got)
		}
		if system := models["c"].requests()[1].System; system != models["c"].requests()[0].System || !strings.Contains(system, "- b:") {
			t.Errorf("c may hand over to others than before: %s", system)
		}
		tells(t, e, "t", "c>a>b>a: four", "a heard four", "a") // c never named a or b itself
		tells(t, e, "t", "x: five", "a heard five", "a")
		seen := models["a"].requests()
		if got := string(raw(seen[len(seen)-1].Messages)); !strings.Contains(got, "[c] c heard three") || !strings.Contains(got, "x: three") {
			t.Errorf("a does not know what was said meanwhile: %s", got)
		}
		tells(t, e, "t", "a>b: six", "b heard six", "b")

		fork, err := e.Runtime().Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "fork"})
		if err != nil {
			t.Fatal(err)
		}
		tells(t, e, fork.Thread, "x: seven", "b heard seven", "b")
		if fork, err = e.Runtime().Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: at.Seq, As: "early"}); err != nil {
			t.Fatal(err)
		}
		tells(t, e, fork.Thread, "x: seven", "a heard seven", "a")
		if _, err := e.Runtime().Rewind(t.Context(), "t", at.Seq, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		tells(t, e, "t", "x: eight", "a heard eight", "a")
	})
}

// TestHoldingIsForTheRootOfAConversation: not for agents below others, nor where
// the root has it back after each run, nor for what has no model.
func TestHoldingIsForTheRootOfAConversation(t *testing.T) {
	top, _ := crew(nil, agent.Options{})
	returns, models := crew(nil, agent.Options{Return: true})
	boss := agent.New("boss", &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call("a", string(raw(map[string]string{"request": last(r).Text()}))))
		}
		return llm.Assistant(last(r).Parts[0].Result.Text)
	}}, agent.Options{Tools: []agent.Tool{agent.AsTool(top)}})
	desk := agent.New("a", routed("a", nil), agent.Options{Transfer: []agent.Agent{agent.Sequential("b", agent.New("s", say(nil, func(in string) string { return "b heard " + strings.SplitN(in, ": ", 2)[1] }), agent.Options{}))}})
	for name, root := range map[string]agent.Agent{
		"sequential": agent.Sequential("s", top), "loop": agent.Loop("l", 1, top), "as tool": boss, "returns": returns, "a target without a model": desk,
		"a function below": agent.Sequential("s", agent.Func("f", func(ctx context.Context, in agent.Content) (string, error) { return agent.Run(ctx, top, in) })),
		"parallel": agent.Func("f", func(ctx context.Context, in agent.Content) (string, error) {
			r, err := agent.Do(ctx, agent.Parallel("p", top), in)
			if err != nil {
				return "", err
			}
			return strings.TrimPrefix(r.Text, "[a] "), nil
		}),
	} {
		perduretest.Virtual(t, flows(root), func(t *testing.T, e *perduretest.Env) {
			t.Log(name)
			tells(t, e, "t", "a>b: one", "b heard one", "a")
			tells(t, e, "t", "x: two", "a heard two", "a")
			tells(t, e, "t", "a>b: three", "b heard three", "a")
		})
	}
	seen := models["b"].requests()
	if got := string(raw(seen[len(seen)-1].Messages)); !strings.Contains(got, `"role":"assistant","parts":[{"text":"b heard one"}]`) || !strings.Contains(got, "[a] a heard two") {
		t.Errorf("b forgot: %s", got)
	}
	// A function that is the flow's own code is no agent above it.
	through := agent.Func("f", func(ctx context.Context, in agent.Content) (string, error) { return agent.Run(ctx, top, in) })
	perduretest.Virtual(t, flows(through), func(t *testing.T, e *perduretest.Env) {
		tells(t, e, "t", "a>b: one", "b heard one", "b")
		tells(t, e, "t", "x: two", "b heard two", "b")
	})
}

// TestTheRootAnswersForAnAgentThatIsGone: an event says so, once. A run that has
// begun with it is blocked, not given to another.
func TestTheRootAnswersForAnAgentThatIsGone(t *testing.T) {
	whole, _ := crew(nil, agent.Options{})
	bare := agent.New("a", routed("a", nil), agent.Options{})
	now := whole
	flow := perdure.NewFlow("flow", func(ctx context.Context, in string) (string, error) { return agent.Run(ctx, now, in) })
	gone := func(t *testing.T, e *perduretest.Env) (n int) {
		for ev, err := range e.Runtime().Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == "emitted" && strings.HasSuffix(ev.Path, "/holder-gone") {
				n++
				var v agent.HolderGone
				if err := json.Unmarshal(ev.Value, &v); err != nil || v != (agent.HolderGone{Agent: "b", First: "a"}) {
					t.Errorf("the event says %s, %v", ev.Value, err)
				}
			}
		}
		return n
	}
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		tells(t, e, "t", "a>b: one", "b heard one", "b")
		e.Start("t", "flow", "x: pay")
		ask := asked(t, e, "t", 1)[0]
		e.Restart()
		now = bare
		reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
		e.Wait("t", perdure.Blocked)
		now = whole
		e.Restart()
		if err := e.Runtime().Retry(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "b heard pay" {
			t.Errorf("got %q", got)
		}
		now = bare
		tells(t, e, "t", "x: two", "a heard two", "a")
		tells(t, e, "t", "x: three", "a heard three", "a")
		if n := gone(t, e); n != 1 {
			t.Errorf("%d events say that b is gone", n)
		}
	})
}

// TestAnAnsweredCallGoesBackToWhoAsked, also if another agent has got the
// conversation meanwhile.
func TestAnAnsweredCallGoesBackToWhoAsked(t *testing.T) {
	top, models := crew(nil, agent.Options{})
	perduretest.Virtual(t, flows(top), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "a>b: pay")
		ask := asked(t, e, "t", 1)[0]
		beside, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: "a>b>c: two", Policy: perdure.Beside})
		if err == nil {
			beside, err = e.Runtime().WaitEnd(t.Context(), "t", beside.ID)
		}
		if err != nil || text(t, beside) != "c heard two" {
			t.Fatal(beside, err)
		}
		holds(t, e, "t", "c")
		e.Restart()
		reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
		first, err := e.Runtime().WaitEnd(t.Context(), "t", ask.Run)
		if err != nil || text(t, first) != "b heard pay" {
			t.Errorf("the answer went to %v, %v", first, err)
		}
		if n := len(models["c"].requests()); n != 1 {
			t.Errorf("c was asked %d times", n)
		}
	})
}

// TestHoldingSurvivesACrashAnywhere, with the requests of an undisturbed run.
func TestHoldingSurvivesACrashAnywhere(t *testing.T) {
	var fx perduretest.Effects
	top, _ := crew(&fx, agent.Options{})
	var start []perdure.StartRequest
	messages := []string{"a>b>c: one", "c>a: two", "a>b: pay", "x: four"}
	if !torture {
		messages = messages[2:]
	}
	for _, message := range messages {
		start = append(start, perdure.StartRequest{Thread: "t", Flow: "flow", Input: message})
	}
	sweep(t, perduretest.Crash{Flows: flows(top).Flows, Effects: &fx, Start: start,
		Outside: decide(func(perdure.AskInfo) *perdure.Answer { return &perdure.Answer{Decision: agent.DecisionApprove} })})
}

// TestPiecesCarryTheNameOfTheirAgent, as it is in the message that they become.
func TestPiecesCarryTheNameOfTheirAgent(t *testing.T) {
	top, _ := crew(nil, agent.Options{})
	perduretest.Virtual(t, flows(top), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "a: pay") // so that the thread is there
		asked(t, e, "t", 1)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string, 1)
		go func() {
			for d, err := range e.Runtime().Deltas(ctx, "t") {
				var piece agent.Delta
				if err == nil && json.Unmarshal(d.Data, &piece) == nil && piece.Text != "" {
					got <- fmt.Sprintf("%s %s", piece.Agent, piece.Text)
					return
				}
			}
		}()
		e.Advance(0)
		if _, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: "a>b: hi", Policy: perdure.Beside}); err != nil {
			t.Fatal(err)
		}
		if piece := <-got; piece != "b b heard hi" {
			t.Errorf("the piece is %q", piece)
		}
		cancel()
	})
}
