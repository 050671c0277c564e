package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/store/memstore"
)

// Memory is kept by version: who changes what another has changed meanwhile
// learns it.
func ExampleMemory() {
	ctx := context.Background()
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{})
	if err != nil {
		panic(err)
	}
	m := agent.MemoryOf(rt)
	ann := agent.UserMemory("ann")
	version, err := m.Put(ctx, ann, "diet", "vegetarian", agent.MemoryOptions{})
	fmt.Println(err)
	_, err = m.Put(ctx, ann, "diet", "vegan", agent.MemoryOptions{Version: version})
	fmt.Println(err)
	_, err = m.Put(ctx, ann, "diet", "all", agent.MemoryOptions{Version: version})
	fmt.Println(errors.Is(err, agent.ErrMemoryConflict))
	for item, err := range m.List(ctx, ann, agent.MemoryList{Query: "vegan"}) {
		fmt.Println(item.Key, string(item.Value), err)
	}
	// Output:
	// <nil>
	// <nil>
	// true
	// diet "vegan" <nil>
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

// A redacted text does not show where it is printed.
func ExampleRedacted() {
	config := struct {
		URL   string
		Token agent.Redacted
	}{"https://example.com", agent.Redact("hunter2")}
	raw, err := json.Marshal(config)
	fmt.Println(string(raw), err)
	fmt.Printf("%+v\n", config)
	fmt.Println(len(config.Token.Reveal()))
	// Output:
	// {"URL":"https://example.com","Token":"[redacted]"} <nil>
	// {URL:https://example.com Token:[redacted]}
	// 7
}
