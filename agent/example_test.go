package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/memstore"
)

type refund struct {
	Order  string `json:"order" jsonschema:"number of the order"`
	Amount int    `json:"amount" schema:"min=1,max=500"`
}

// runtime opens a runtime that works until the program ends.
func runtime(flows ...perdure.Flow) *perdure.Runtime {
	ctx := context.Background()
	rt, err := perdure.Open(ctx, "memory:"+flows[0].Name(), flows...)
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = rt.Work(ctx) }()
	return rt
}

// An agent calls a tool, a person approves, and the agent goes on.
func Example() {
	ctx := context.Background()
	pay := agent.NewTool("refund", "Refunds an order.", func(ctx context.Context, r refund) (string, error) {
		return fmt.Sprintf("refunded %d for %s", r.Amount, r.Order), nil
	}, agent.NeedsApproval())

	// A real one is, for example, openai.Model("gpt-5").
	model := script.New(script.Call("refund", `{"order":"A-17","amount":42}`), script.Say("Your money is on its way."))

	clerk := agent.New("clerk", model, agent.Options{
		Instruction: "Resolve the ticket.",
		Tools:       []agent.Tool{pay},
	})
	rt := runtime(agent.NewFlow("triage", clerk))

	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "triage", Input: "A-17 came broken"})
	if err != nil {
		log.Fatal(err)
	}
	if run, err = rt.Wait(ctx, run.Thread, run.ID); err != nil {
		log.Fatal(err)
	}
	ask := run.Asks[0]
	fmt.Println(ask.Prompt, ask.Decisions)

	// Hours later, in any process that has the store open:
	if err := rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove, By: "ann"}}); err != nil {
		log.Fatal(err)
	}
	run, err = rt.WaitEnd(ctx, run.Thread, run.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(perdure.Output[string](run))
	// Output:
	// clerk wants to call refund. Refunds an order. [approve edit reject respond]
	// Your money is on its way. <nil>
}

// A tool that takes long says under which name it goes on elsewhere. Its result
// is posted when it is there.
func ExamplePending() {
	ctx := context.Background()
	render := agent.NewTool("render", "Renders a film.", func(ctx context.Context, _ struct{}) (string, error) {
		return "", agent.Pending("job-17") // it was started with perdure.Key(ctx)
	})
	model := script.New(script.Call("render", "{}"), script.Say("The film is ready."))
	rt := runtime(agent.NewFlow("film", agent.New("film", model, agent.Options{Tools: []agent.Tool{render}})))

	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "film", Input: "a film, please"})
	if err != nil {
		log.Fatal(err)
	}
	if run, err = rt.Wait(ctx, run.Thread, run.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Asks[0].Kind, string(run.Asks[0].Data))
	if err := rt.Progress(ctx, run.Asks[0].ID, "half of it is done", perdure.Note{}); err != nil {
		log.Fatal(err)
	}
	if err := rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "film.mp4"}}); err != nil {
		log.Fatal(err)
	}
	run, err = rt.WaitEnd(ctx, run.Thread, run.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(perdure.Output[string](run))
	// Output:
	// pending {"agent":"film","args":{},"call":"call-1-0","ref":"job-17","tool":"render"}
	// The film is ready. <nil>
}

// Agents are composed; each is given what the one before it said.
func ExampleSequential() {
	ctx := context.Background()
	writer := agent.New("writer", script.New(script.Say("A cat sat.")), agent.Options{OutputKey: "story"})
	critic := agent.New("critic", script.New(script.Say("It needs a dog.")), agent.Options{Instruction: "Criticise: {story}"})
	rt := runtime(agent.NewFlow("story", agent.Sequential("both", writer, critic)))

	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "story", Input: "a story, please"})
	if err != nil {
		log.Fatal(err)
	}
	if run, err = rt.WaitEnd(ctx, run.Thread, run.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(perdure.Output[string](run))
	// Output: It needs a dog. <nil>
}

// An agent with an output schema returns a value.
func ExampleRunTo() {
	type verdict struct {
		Guilty bool   `json:"guilty"`
		Why    string `json:"why"`
	}
	ctx := context.Background()
	judge := agent.New("judge", script.New(script.Say(`{"guilty":false,"why":"there is no proof"}`)), agent.Options{Output: agent.OutputOf[verdict]()})
	rt := runtime(perdure.NewFlow("court", func(ctx context.Context, plea string) (string, error) {
		v, err := agent.RunTo[verdict](ctx, judge, plea)
		return v.Why, err
	}))

	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "court", Input: "not me"})
	if err != nil {
		log.Fatal(err)
	}
	if run, err = rt.WaitEnd(ctx, run.Thread, run.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(perdure.Output[string](run))
	// Output: there is no proof <nil>
}

// A rule lets calls of a tool by an agent in a flow run without asking, on the
// threads of one user.
func ExampleRules() {
	ctx := context.Background()
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{})
	if err != nil {
		panic(err)
	}
	type mail struct {
		To string `json:"to"`
	}
	sendMail := agent.NewTool("send_mail", "Sends a mail.", func(context.Context, mail) (string, error) { return "sent", nil },
		agent.WithApproval(agent.Approval{Decisions: []string{agent.DecisionApprove, agent.DecisionReject, agent.DecisionAlways}}))
	rules := agent.RulesOf(rt)
	rule, err := rules.Allow(ctx, agent.Rule{
		User: "ann", Flow: "office", Agent: "clerk", Tool: sendMail.Name(), Schema: sendMail.Digest(),
		Args: json.RawMessage(`{"to":"*@example.com"}`), Who: []string{"boss"},
	}, "boss")
	if err != nil {
		panic(err)
	}
	fmt.Println(rule.Tool, string(rule.Args), "by", rule.By)
	fmt.Println(errors.Is(rules.Revoke(ctx, rule.ID, "ann"), perdure.ErrForbidden))
	fmt.Println(rules.Revoke(ctx, rule.ID, "boss"))
	// Output:
	// send_mail {"to":"*@example.com"} by boss
	// true
	// <nil>
}

// The todos of an agent with agent.TodoTools are in the thread's state, which
// perdure.Runtime.StateAt returns.
func ExampleTodosAt() {
	todos, err := agent.TodosAt(map[string]json.RawMessage{
		"agent.todos": json.RawMessage(`[{"id":"1","content":"read the mail","status":"pending"}]`),
	})
	for _, t := range todos {
		fmt.Println(t.ID, t.Content, t.Status, err)
	}
	// Output: 1 read the mail pending <nil>
}
