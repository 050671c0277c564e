package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// TestCheckTakesWhatIsRight has agents that look alike but are not.
func TestCheckTakesWhatIsRight(t *testing.T) {
	leaf := agent.New("leaf", scripted(llm.Assistant("x")), agent.Options{})
	other := agent.New("other", scripted(llm.Assistant("x")), agent.Options{})
	with := func(name string, tools ...agent.Tool) agent.Agent {
		return agent.New(name, scripted(llm.Assistant("x")), agent.Options{Tools: tools})
	}
	for name, a := range map[string]agent.Agent{
		"two that delegate":       agent.Sequential("s", with("a", agent.Delegate(leaf)), with("b", agent.Delegate(leaf, other))),
		"delegates that delegate": with("a", agent.Delegate(with("b", agent.Delegate(leaf)))),
		"an agent of that name":   agent.Sequential("delegate", with("a", agent.Delegate(leaf))),
		"one sub-agent of two":    agent.Parallel("p", with("a", agent.AsTool(leaf)), with("b", agent.AsTool(leaf))),
	} {
		if err := agent.Check(a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckNamesWhatIsWrong has mistakes of a program, which are told when it
// begins and not when a model runs into them.
func TestCheckNamesWhatIsWrong(t *testing.T) {
	leaf := agent.New("leaf", scripted(llm.Assistant("x")), agent.Options{})
	with := func(tools ...agent.Tool) agent.Agent {
		return agent.New("a", scripted(llm.Assistant("x")), agent.Options{Tools: tools})
	}
	approved := func(a agent.Approval) agent.Agent { return with(noted(new(tally), "n", agent.WithApproval(a))) }
	type list struct {
		Tags []string       `json:"tags" schema:"enum=a|b"`
		More map[string]int `json:"more" schema:"enum=a"`
	}
	type wrong struct {
		In map[string]struct {
			N int `json:"n" schema:"least=1"`
		} `json:"in"`
	}
	for name, c := range map[string]struct {
		make func() agent.Agent
		want string
	}{
		"no agent as tool":   {func() agent.Agent { return with(agent.AsTool(nil)) }, "no agent"},
		"delegate to nil":    {func() agent.Agent { return with(agent.Delegate(leaf, nil)) }, "delegate"},
		"delegate to nobody": {func() agent.Agent { return with(agent.Delegate()) }, "delegate"},
		"delegate to one":    {func() agent.Agent { return with(agent.Delegate(agent.New("", nil, agent.Options{}))) }, "no model"},
		"no function":        {func() agent.Agent { return with(agent.NewTool[order, string]("n", "x", nil)) }, "function"},
		"no raw function":    {func() agent.Agent { return with(agent.RawTool("n", "x", json.RawMessage(`{"type":"object"}`), nil)) }, "function"},
		"nobody may decide":  {func() agent.Agent { return approved(agent.Approval{Decisions: []string{}}) }, "decision"},
		"default not allowed": {func() agent.Agent {
			return approved(agent.Approval{Default: agent.DecisionApprove, Expires: 1, Decisions: []string{agent.DecisionReject}})
		}, "default"},
		"negative expiry": {func() agent.Agent { return approved(agent.Approval{Expires: -1}) }, "negative"},
		"enum of a map": {func() agent.Agent {
			return with(agent.NewTool("n", "x", func(context.Context, list) (string, error) { return "", nil }))
		}, "More"},
		"rule in a map": {func() agent.Agent {
			return with(agent.NewTool("n", "x", func(context.Context, wrong) (string, error) { return "", nil }))
		}, "least"},
		"two of a name in two trees": {func() agent.Agent {
			return agent.Sequential("s", with(agent.AsTool(leaf)), agent.New("leaf", nil, agent.Options{}))
		}, "two agents"},
	} {
		t.Run(name, func(t *testing.T) {
			err := agent.Check(c.make())
			if !errors.Is(err, agent.ErrOption) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an ErrOption with %q", err, c.want)
			}
		})
	}
}
