package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
)

// TestARuleIsShownBeforeItIsMade, listed and revoked.
func TestARuleIsShownBeforeItIsMade(t *testing.T) {
	p := served(t)
	p.setUp = func(a *app) { a.term.Forced = true }
	list := func() (out api.RuleList) {
		t.Helper()
		if err := json.Unmarshal([]byte(p.run("", "rules", "list", "--json").want(exit.OK).out), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	p.run("", "rules", "list").want(exit.OK, "there are no rules")
	ask := p.asked("t", "standing", "pay 5")
	const exactly = `agent "clerk" in flow "standing" calls the tool "pay", with its schema as it is now`
	p.run("always nonsense\nalways\nno\nalways {}\n\nalways\nyes\n", "answer", ask).want(exit.OK,
		"a pattern is JSON", exactly, "with exactly these arguments", "no rule is made", "with any arguments", "answered")
	p.ended("t")
	rules := list().Rules
	if len(rules) != 1 || !rules[0].Exact || !strings.Contains(rules[0].Allows, `{"amount":5}`) {
		t.Fatalf("the rules are %+v", rules)
	}
	p.run("", "rules", "list").want(exit.OK, rules[0].ID, exactly, `with exactly the arguments {"amount":5}`)
	p.run("", "rules", "list", "--user", "nobody").want(exit.OK, "there are no rules")
	p.run("", "rules", "revoke", "none").want(exit.NotFound)
	p.run("", "rules", "revoke", rules[0].ID).want(exit.OK, "revoked")
	if rules = list().Rules; len(rules) != 0 {
		t.Errorf("the rules are %+v", rules)
	}
	p.run("always {\"amount\": 6}\nyes\n", "answer", p.asked("u", "standing", "pay 6")).want(exit.OK, `fit {"amount": 6}`)
	p.ended("u")
	if rules = list().Rules; len(rules) != 1 || rules[0].Exact || !strings.Contains(rules[0].Allows, `fit {"amount":6}`) {
		t.Errorf("the rules are %+v", rules)
	}
}
