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

// A rule lets calls of a tool run without asking, on the threads of one user.
func ExampleRules() {
	ctx := context.Background()
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{})
	if err != nil {
		panic(err)
	}
	rules := agent.RulesOf(rt)
	rule, err := rules.Allow(ctx, agent.Rule{User: "ann", Tool: "send_mail", Args: json.RawMessage(`{"to":"*@example.com"}`), Who: []string{"boss"}}, "boss")
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

// The pattern of a call fits what has the same arguments.
func ExamplePatternOf() {
	pattern, err := agent.PatternOf(json.RawMessage(`{"path": "*.txt", "lines": 1.0}`))
	fmt.Println(string(pattern), err)
	// Output:
	// {"lines":1,"path":"\\*.txt"} <nil>
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
