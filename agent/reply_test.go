package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestHostileModel: whatever a model writes, each call has one result, the
// conversation is one that a provider takes, and nothing runs that is no tool.
func TestHostileModel(t *testing.T) {
	large := 1 << 20
	if torture {
		large *= 5
	}
	many := make([]llm.Call, 200)
	for i := range many {
		many[i] = call("note", fmt.Sprintf(`{"id":"%d"}`, i))
	}
	same := func(id string, n int) llm.Message {
		m := llm.Message{Role: llm.RoleAssistant}
		for range n {
			m.Parts = append(m.Parts, llm.Part{Call: &llm.Call{ID: id, Name: "note", Args: `{"id":"x"}`}})
		}
		return m
	}
	mixed := calls(call("note", `{"id":"1"}`))
	mixed.Parts = append([]llm.Part{llm.Text("first ")}, append(mixed.Parts, llm.Text("then"), llm.Part{Call: &llm.Call{ID: "c0", Name: "note", Args: `{"id":"2"}`}})...)
	cases := map[string]struct {
		m     llm.Message
		notes int // calls that are made
		says  string
	}{
		"equal ids":             {same("x", 5), 5, ""},
		"empty ids":             {same("", 5), 5, ""},
		"ids of garbage":        {same("\xff/\x00|", 2), 2, ""},
		"an id like ours":       {calls(llm.Call{ID: "", Name: "note", Args: `{"id":"1"}`}, llm.Call{ID: "call_1", Name: "note", Args: `{"id":"2"}`}), 2, ""},
		"200 calls":             {calls(many...), 200, ""},
		"a name with slashes":   {calls(call("../../note/approve", `{"id":"1"}`)), 0, "There is no tool"},
		"a name with NULs":      {calls(call("note\x00\n|#", `{"id":"1"}`)), 0, "There is no tool"},
		"no name":               {calls(call("", `{"id":"1"}`)), 0, "There is no tool"},
		"a name of 1 MB":        {calls(call(strings.Repeat("n", 1<<20), `{}`)), 0, "There is no tool"},
		"names like frames":     {calls(call("result", `{}`), call("serial", `{}`), call("credential-x", `{}`)), 0, "There is no tool"},
		"half a surrogate":      {calls(call("note", `{"id":"\ud800"}`)), 0, `\ud800 in a text is half of a surrogate pair`},
		"large arguments":       {calls(call("note", `{"id":"`+strings.Repeat("x", large)+`"}`)), 1, ""},
		"large garbage":         {calls(call("note", strings.Repeat("[", large))), 0, "are wrong"},
		"arguments cut off":     {calls(call("note", `{"id":"1`)), 0, "are wrong"},
		"two values":            {calls(call("note", `{"id":"1"} {"id":"2"}`)), 0, "are wrong"},
		"a bracket too many":    {calls(call("note", `{"id":"1"}}`)), 0, "are wrong"},
		"a value and a bracket": {calls(call("note", `{"id":"1"}]{"id":"2"}`)), 0, "are wrong"},
		"no object":             {calls(call("note", `["1"]`)), 0, "are wrong"},
		"another case":          {calls(call("note", `{"ID":"1"}`)), 0, "are wrong"},
		"unknown arguments":     {calls(call("note", `{"id":"1","force":true}`)), 0, "are wrong"},
		"a huge number":         {calls(call("note", `{"id":"1","amount":1e999}`)), 0, "are wrong"},
		"1.0 for an int":        {calls(call("note", `{"id":"1","amount":1.0}`)), 1, ""},
		"out of bounds":         {calls(call("note", `{"id":"1","amount":101}`)), 0, "are wrong"},
		"a transfer":            {calls(call("transfer_to_agent", `{"agent":"clerk"}`)), 0, "not handed over"},
		"text and calls":        {mixed, 2, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var n tally
			model := &brain{think: func(r *llm.Request) llm.Message {
				if replies(r) == 0 {
					return c.m
				}
				return llm.Assistant("done")
			}}
			play(t, agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note")}}), func(t *testing.T, e *perduretest.Env) {
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != "done" {
					t.Errorf("got %q", got)
				}
			})
			seen := model.requests()
			answer := last(&seen[1])
			if len(answer.Parts) != len(c.m.Calls()) {
				t.Errorf("%d calls have %d results", len(c.m.Calls()), len(answer.Parts))
			}
			if got := n.of("note"); got != c.notes {
				t.Errorf("%d calls were made, want %d", got, c.notes)
			}
			ids := map[string]bool{}
			for _, p := range answer.Parts {
				ids[p.Result.Call] = true
				if p.Result.Error != (c.says != "") || !strings.Contains(p.Result.Text, c.says) || len(p.Result.Text) > 6<<20 {
					t.Errorf("a result is %.200q", p.Result.Text)
				}
			}
			if len(ids) != len(answer.Parts) || ids[""] {
				t.Errorf("the results are for %d calls of %d", len(ids), len(answer.Parts))
			}
		})
	}
}

// TestModelThatSaysNothing: the next run's conversation has no empty message,
// which providers refuse.
func TestModelThatSaysNothing(t *testing.T) {
	for name, empty := range map[string]llm.Message{
		"no parts":      {Role: llm.RoleAssistant},
		"an empty text": llm.Assistant(""),
	} {
		t.Run(name, func(t *testing.T) {
			model := &brain{think: func(r *llm.Request) llm.Message {
				for _, m := range r.Messages {
					if len(m.Parts) == 0 || m.Text() == "" {
						return llm.Assistant("there is an empty message")
					}
				}
				if last(r).Text() == "go" {
					return empty
				}
				return llm.Assistant("fine")
			}}
			play(t, agent.New("clerk", model, agent.Options{}), func(t *testing.T, e *perduretest.Env) {
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != "" {
					t.Errorf("got %q", got)
				}
				e.Start("t", "flow", "and?")
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != "fine" {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

type verdict struct {
	Good  bool   `json:"good"`
	Grade string `json:"grade" schema:"enum=a|b"`
}

// TestStructuredOutput takes JSON that fits, fenced too, and lets the model try
// again when it does not.
func TestStructuredOutput(t *testing.T) {
	cases := map[string]struct {
		says []string
		ok   bool
	}{
		"valid":              {[]string{`{"good":true,"grade":"a"}`}, true},
		"with space":         {[]string{"\n {\"good\":true,\"grade\":\"a\"} \n"}, true},
		"fenced":             {[]string{"```json\n{\"good\":true,\"grade\":\"a\"}\n```"}, true},
		"fenced plainly":     {[]string{"```\n{\"good\":true,\"grade\":\"a\"}```"}, true},
		"mended":             {[]string{`{"good":1}`, `good`, `{"good":true,"grade":"a"}`}, true},
		"a bracket too many": {[]string{`{"good":true,"grade":"a"}}`, `{"good":true,"grade":"a"}]`, `{"good":true,"grade":"a"}`}, true},
		"two values":         {[]string{`{"good":true,"grade":"a"} {"good":false,"grade":"b"}`, `{"good":true,"grade":"a"}`}, true},
		"never":              {[]string{`{"good":true,"grade":"c"}`}, false},
		"empty":              {[]string{``}, false},
		"null":               {[]string{`null`}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var ms []llm.Message
			for _, s := range c.says {
				ms = append(ms, llm.Assistant(s))
			}
			asked := 0
			model := &brain{think: func(r *llm.Request) llm.Message {
				for i, m := range r.Messages {
					if len(m.Parts) == 0 {
						t.Errorf("message %d of request %d is empty, which providers refuse", i, asked+1)
					}
				}
				asked++
				return ms[min(asked, len(ms))-1]
			}}
			judge := agent.New("judge", model, agent.Options{Output: agent.OutputOf[verdict](), OutputKey: "verdict"})
			flow := perdure.NewFlow("flow", func(ctx context.Context, in string) (verdict, error) { return agent.RunTo[verdict](ctx, judge, in) })
			perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "judge")
				if !c.ok {
					if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrMistakes) {
						t.Errorf("it failed with %v", run.Err)
					}
					return
				}
				run := e.Wait("t", perdure.Succeeded)
				if v, err := perdure.Output[verdict](run); err != nil || v != (verdict{true, "a"}) {
					t.Errorf("got %v, %v", v, err)
				}
				at, err := e.Runtime().StateAt(t.Context(), "t", 0)
				if err != nil || string(at.State["verdict"]) != `{"good":true,"grade":"a"}` {
					t.Errorf("the state has %s, %v", at.State["verdict"], err)
				}
				if asked != len(c.says) {
					t.Errorf("the model was asked %d times, want %d", asked, len(c.says))
				}
			})
		})
	}
}

// TestAnOutputThatDoesNotFitBlocks reads the output of an agent into a type that
// cannot take it, and ignores the error.
func TestAnOutputThatDoesNotFitBlocks(t *testing.T) {
	type old struct {
		Grade string `json:"grade"`
	}
	type now struct {
		Grade int `json:"grade"`
	}
	model := &brain{think: func(*llm.Request) llm.Message { return llm.Assistant(`{"grade":"a"}`) }}
	judge := agent.New("judge", model, agent.Options{Output: agent.OutputOf[old]()})
	flow := perdure.NewFlow("flow", func(ctx context.Context, in string) (string, error) {
		_, _ = agent.RunTo[now](ctx, judge, in)
		return "done", nil
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "judge")
		if run := e.Wait("t", perdure.Blocked); !strings.Contains(run.Diff, "the output of agent \"judge\":\n- recorded: {\"grade\":\"a\"}\n+ the code: agent_test.now, which cannot read it: json: ") {
			t.Error(run.Diff)
		}
	})
}

// TestOutputKeyAndPlaceholders: what one agent says is in the instruction of the
// next, as it is; braces inside it are no placeholders.
func TestOutputKeyAndPlaceholders(t *testing.T) {
	system := ""
	write := agent.New("write", scripted(llm.Assistant(`a {secret} and {"json": 1}`)), agent.Options{OutputKey: "draft"})
	judge := agent.New("judge", scripted(llm.Assistant(`{"good":true,"grade":"a"}`)), agent.Options{Output: agent.OutputOf[verdict](), OutputKey: "verdict"})
	read := agent.New("read", &brain{think: func(r *llm.Request) llm.Message { system = r.System; return llm.Assistant("ok") }},
		agent.Options{Instruction: `Draft: {draft} Verdict: {verdict} Rest: {nothing?}; keep {"a": 1} and {} and { draft }.`})
	missing := agent.New("missing", scripted(llm.Assistant("x")), agent.Options{Instruction: "{nothing}"})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{
		agent.NewFlow("flow", agent.Sequential("all", write, judge, read)), agent.NewFlow("missing", missing)}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
		want := `Draft: a {secret} and {"json": 1} Verdict: {"good":true,"grade":"a"} Rest: ; keep {"a": 1} and {} and { draft }.`
		if system != want {
			t.Errorf("the instruction is\n%s, want\n%s", system, want)
		}
		e.Start("u", "missing", "go")
		if run := e.Wait("u", perdure.Failed); !errors.Is(run.Err, agent.ErrOption) || !strings.Contains(run.Error, "nothing") {
			t.Errorf("it failed with %v", run.Err)
		}
	})
}

// TestRateLimitOfAnHourWaitsAsATimer: the run is suspended, nothing of it is in
// memory, and another process goes on.
func TestRateLimitOfAnHourWaitsAsATimer(t *testing.T) {
	var n tally
	ok := scripted(llm.Assistant("at last"))
	model := llm.ModelFunc(func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		if n.add("model") == 1 {
			return func(yield func(llm.Delta, error) bool) {
				if yield(llm.Delta{Text: "at "}, nil) {
					yield(llm.Delta{}, &llm.Error{Kind: llm.ErrRateLimited, Provider: "p", Status: 429, RetryAfter: time.Hour})
				}
			}
		}
		return ok.Generate(ctx, r)
	})
	play(t, agent.New("clerk", model, agent.Options{}), func(t *testing.T, e *perduretest.Env) {
		begin := time.Now()
		e.Advance(time.Minute)
		run, err := e.Runtime().GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Suspended || len(run.Waits) != 1 || run.Waits[0].Kind != "retry" {
			t.Fatalf("the run is %s and waits for %v (%v), want a suspended one", run.Status, run.Waits, err)
		}
		e.Restart()
		e.Advance(50 * time.Minute)
		n.want(t, "model:1")
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "at last" {
			t.Errorf("got %q", got)
		}
		if d := time.Since(begin); d < time.Hour {
			t.Errorf("it came back after %s", d)
		}
	})
	n.want(t, "model:2")
}

// TestModelErrorsEndTheRunOrAreTriedAgain goes through the kinds of errors.
func TestModelErrorsEndTheRunOrAreTriedAgain(t *testing.T) {
	for kind, want := range map[error]struct {
		is    error
		asked int
	}{
		llm.ErrOverloaded:  {agent.ErrModel, 8},
		llm.ErrInterrupted: {agent.ErrModel, 8},
		llm.ErrRateLimited: {agent.ErrModel, 8},
		llm.ErrAuth:        {agent.ErrModel, 1},
		llm.ErrInvalid:     {agent.ErrModel, 1},
		llm.ErrRefused:     {agent.ErrRefused, 1},
		llm.ErrTooLong:     {agent.ErrTooLong, 1},
	} {
		t.Run(kind.Error(), func(t *testing.T) {
			var n tally
			model := llm.ModelFunc(func(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
				n.add("model")
				return func(yield func(llm.Delta, error) bool) { yield(llm.Delta{}, &llm.Error{Kind: kind, Provider: "p"}) }
			})
			play(t, agent.New("clerk", model, agent.Options{}), func(t *testing.T, e *perduretest.Env) {
				if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, want.is) {
					t.Errorf("it failed with %v, want %v", run.Err, want.is)
				}
			})
			if got := n.of("model"); got != want.asked {
				t.Errorf("the model was asked %d times, want %d", got, want.asked)
			}
		})
	}
}

// TestDeltasOfACutStreamEndAsTheRecordedText: a reader that keeps one text a
// step, begins anew with each attempt, puts pieces where their offset says, and
// drops it when the step's event comes, never shows what was not said.
func TestDeltasOfACutStreamEndAsTheRecordedText(t *testing.T) {
	var n tally
	words := strings.SplitAfter("the quick brown fox jumps", " ")
	model := llm.ModelFunc(func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		life := n.add("model")
		return func(yield func(llm.Delta, error) bool) {
			time.Sleep(time.Second) // virtual, until the reader is there
			for i, w := range words {
				if life == 1 && i == 3 { // cut in the middle
					yield(llm.Delta{}, &llm.Error{Kind: llm.ErrInterrupted, Provider: "p"})
					return
				}
				if life == 2 && i == 2 { // the process dies here
					<-ctx.Done()
					return
				}
				if life == 1 {
					w = strings.ToUpper(w)
				}
				if !yield(llm.Delta{Text: w}, nil) {
					return
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			yield(llm.Delta{Stop: llm.StopEnd}, nil)
		}
	})
	play(t, agent.New("clerk", model, agent.Options{}), func(t *testing.T, e *perduretest.Env) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		type shown struct {
			attempt, seen int
			text          string
		}
		live := map[string]*shown{}
		voided, final, pieces := 0, "", 0
		follow := func(rt *perdure.Runtime) {
			for d, err := range rt.Deltas(ctx, "t") {
				if err != nil {
					return
				}
				var piece llm.Delta
				decode(t, d.Data, &piece)
				s := live[d.Path]
				if s == nil || s.attempt != d.Attempt || d.Offset == 0 {
					if s != nil && s.seen > 0 {
						voided++
					}
					s = &shown{attempt: d.Attempt}
					live[d.Path] = s
				}
				if int(d.Offset) != s.seen {
					t.Errorf("attempt %d: a piece at %d comes after %d pieces", d.Attempt, d.Offset, s.seen)
				}
				s.seen++
				s.text += piece.Text
				pieces++
			}
		}
		reader, err := perdure.New(ctx, e.Store, perdure.Options{Version: "reader"}) // another process
		if err != nil {
			t.Fatal(err)
		}
		go follow(reader)
		e.Advance(10 * time.Second)
		e.Restart()
		e.Wait("t", perdure.Succeeded)
		synctest.Wait()
		for ev, err := range e.Runtime().Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == "step" && strings.HasSuffix(ev.Path, "/reply") {
				var r agent.Record
				decode(t, ev.Value, &r)
				final = r.Message.Text()
				if got := live[ev.Path]; got == nil || got.text != final {
					t.Errorf("before the event of %s the reader shows %+v, recorded is %q", ev.Path, got, final)
				}
			}
		}
		if final != "the quick brown fox jumps" || voided != 2 {
			t.Errorf("recorded is %q, and %d texts were void, want 2 (%d pieces)", final, voided, pieces)
		}
	})
}

// echo is a model whose reply follows from every byte of the request, so that a
// request which is not the same after a crash changes all that comes.
func echo(fx *perduretest.Effects, seed string, turns int) *brain {
	return &brain{fx: fx, think: func(r *llm.Request) llm.Message {
		body, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(append([]byte(seed), body...))
		id := fmt.Sprintf("%x", sum[:3])
		m := llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{{Reasoning: &llm.Reasoning{Text: "hm " + id}, Opaque: &llm.Opaque{Provider: "echo", Data: id}}, llm.Text("says " + id)}}
		if len(r.Tools) == 0 || replies(r) >= turns {
			return m
		}
		for i := range 1 + int(sum[4])%3 {
			name := r.Tools[int(sum[5+i])%len(r.Tools)].Name
			args := fmt.Sprintf(`{"id":%q}`, fmt.Sprint(id, i))
			switch {
			case name == "transfer_to_agent":
				args = fmt.Sprintf(`{"agent":%q}`, []string{"first", "second", "nobody"}[sum[10]%3])
			case name == "delegate":
				args = fmt.Sprintf(`{"agent":"sub","task":%q}`, id)
			case sum[11+i]%8 == 0:
				args = `{"id":` // a mistake
			case sum[11+i]%8 == 1:
				args = `{"amount":3,"id":"` + id + `"}`
			}
			c := &llm.Call{ID: fmt.Sprint("c", int(sum[14+i])%2), Name: name, Args: args}
			m.Parts = append(m.Parts, llm.Part{Call: c})
		}
		return m
	}}
}

// TestRequestsAreTheSameAfterACrash: for conversations that follow from their
// own requests, with all kinds of tools, two runs on a thread, summaries,
// handovers and loops, each request after a crash is the one that an
// undisturbed run sends, byte for byte.
func TestRequestsAreTheSameAfterACrash(t *testing.T) {
	start := []perdure.StartRequest{{Thread: "t", Flow: "flow", Input: "go"}, {Thread: "t", Flow: "flow", Input: "and again"}}
	seeds := 4
	if !torture {
		seeds, start = 1, start[:1]
	}
	for i := range seeds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			seed := fmt.Sprint("seed ", i)
			var fx perduretest.Effects
			tool := func(name string, opts ...agent.ToolOption) agent.Tool {
				return agent.NewTool(name, "Does "+name+".", func(ctx context.Context, o order) (string, error) {
					fx.Count(ctx, name)
					if o.Amount == 3 {
						return "", fmt.Errorf("%s does not like %s", name, o.ID)
					}
					return name + " " + o.ID, nil
				}, opts...)
			}
			job := agent.NewTool("job", "Goes on.", func(context.Context, order) (string, error) { return "", agent.Pending("j") })
			sub := agent.New("sub", echo(&fx, seed, 1), agent.Options{Tools: []agent.Tool{tool("deep")}})
			o := agent.Options{
				Limits: agent.Limits{Mistakes: 50},
				Tools: []agent.Tool{tool("plain"), tool("gated", agent.NeedsApproval()), tool("line", agent.Serial()), job,
					agent.NewTool("flow", "Is flow code.", func(ctx context.Context, o order) (string, error) {
						return perdure.Step(ctx, "in", func(context.Context) (string, error) { return o.ID, nil })
					}, agent.UsesVerbs()),
					agent.Delegate(sub)},
			}
			if i%2 == 0 {
				o.Context = agent.Context{Strategy: []agent.Strategy{agent.Trim, agent.Summarise}[i/2], MaxTokens: 150, Keep: 3}
			}
			if i%3 == 0 {
				o.History = agent.HistoryThread
			}
			second := agent.New("second", echo(&fx, seed, 1), o)
			o.Transfer = []agent.Agent{second}
			first := agent.New("first", echo(&fx, seed, 1), o)
			flow := agent.NewFlow("flow", agent.Loop("loop", 1+i%2, first))
			sweep(t, perduretest.Crash{
				Flows: []perdure.Flow{flow}, Effects: &fx,
				Start: start,
				Outside: decide(func(a perdure.AskInfo) *perdure.Answer {
					if a.Kind == agent.KindPending {
						return &perdure.Answer{Value: "came"}
					}
					if len(a.Path)%2 == 0 {
						return &perdure.Answer{Decision: agent.DecisionReject, Message: "no", By: "ann"}
					}
					return &perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "edited"}, By: "ann"}
				}),
			})
		})
	}
}
