package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/perduretest"
)

// ruleAsk is the input of the flow that looks for a rule.
type ruleAsk struct {
	Tool string
	Args json.RawMessage
	Who  []string
}

// looks is a flow that returns the id of the rule that allows a call.
var looks = perdure.NewFlow("looks", func(ctx context.Context, in ruleAsk) (string, error) {
	return perdure.Step(ctx, "look", func(ctx context.Context) (string, error) {
		r, err := findRule(ctx, Rule{Agent: "clerk", Tool: in.Tool, Schema: "s"}, in.Args, in.Who...)
		if r == nil {
			return "", err
		}
		return r.ID, err
	})
})

// ruleFor returns a rule for calls that the flow looks asks about.
func ruleFor(user, tool, args string) Rule {
	return Rule{User: user, Flow: "looks", Agent: "clerk", Tool: tool, Schema: "s", Args: json.RawMessage(args)}
}

// doIn runs a flow on a new thread of a user and returns its output.
func doIn[T any](t *testing.T, rt *perdure.Runtime, user, flow string, in any) T {
	t.Helper()
	run, err := rt.Start(t.Context(), perdure.StartRequest{Flow: flow, Input: in, User: user})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = rt.Wait(t.Context(), run.Thread, run.ID); err != nil {
		t.Fatal(err)
	}
	out, err := perdure.Output[T](run)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestARuleIsForOneUsersThreads(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{looks}}, func(t *testing.T, e *perduretest.Env) {
		rt := e.Runtime()
		rule, err := RulesOf(rt).Allow(t.Context(), ruleFor("ann", "pay", `{"to":"x*"}`), "boss")
		if err != nil || rule.By != "boss" || rule.ID == "" {
			t.Fatal(rule, err)
		}
		call := ruleAsk{Tool: "pay", Args: json.RawMessage(`{"to":"xena","amount":1}`)}
		if got := doIn[string](t, rt, "ann", "looks", call); got != rule.ID {
			t.Errorf("ann's rule %q is %q on her thread", rule.ID, got)
		}
		for _, user := range []string{"bob", "", "an", "ann ", "ann/pay"} {
			if got := doIn[string](t, rt, user, "looks", call); got != "" {
				t.Errorf("ann's rule applies to %q", user)
			}
		}
		for name, other := range map[string]ruleAsk{
			"another tool":      {Tool: "paid", Args: call.Args},
			"other arguments":   {Tool: "pay", Args: json.RawMessage(`{"to":"ann"}`)},
			"who may not":       {Tool: "pay", Args: call.Args, Who: []string{"chief"}},
			"a tool in a tool":  {Tool: "", Args: call.Args},
			"doubled arguments": {Tool: "pay", Args: json.RawMessage(`{"to":"xena","To":"y"}`)},
		} {
			if got := doIn[string](t, rt, "ann", "looks", other); got != "" {
				t.Errorf("the rule applies to %s", name)
			}
		}
		if got := doIn[string](t, rt, "ann", "looks", ruleAsk{Tool: "pay", Args: call.Args, Who: []string{"boss"}}); got != rule.ID {
			t.Error("the rule of one who may decide does not apply")
		}
		if list, err := RulesOf(rt.Tenant("other")).List(t.Context(), "ann"); err != nil || len(list) != 0 {
			t.Errorf("another tenant sees %v, %v", list, err)
		}
		// Memory of the same names reaches no rule.
		for _, ns := range []memory.Namespace{{"ann", "pay"}, {"ann"}, nil} {
			if err := memory.Of(rt).Clear(t.Context(), ns); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := RulesOf(rt).List(t.Context(), "ann"); err != nil || len(list) != 1 {
			t.Errorf("after memory was cleared: %v, %v", list, err)
		}
	})
}

func TestOnlyThoseWhoMayMakeAndRevokeRules(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{looks}}, func(t *testing.T, e *perduretest.Env) {
		ctx, rules := t.Context(), RulesOf(e.Runtime())
		r := ruleFor("ann", "pay", "{}")
		r.Who = []string{"boss", "chief"}
		if _, err := rules.Allow(ctx, r, "ann"); !errors.Is(err, perdure.ErrForbidden) {
			t.Errorf("ann made a rule: %v", err)
		}
		made, err := rules.Allow(ctx, r, "boss")
		if err != nil {
			t.Fatal(err)
		}
		// Nobody takes it over by making it anew.
		if _, err := rules.Allow(ctx, ruleFor("ann", "pay", "{}"), "ann"); !errors.Is(err, perdure.ErrForbidden) {
			t.Errorf("ann replaced a rule: %v", err)
		}
		if err := rules.Revoke(ctx, made.ID, "ann"); !errors.Is(err, perdure.ErrForbidden) {
			t.Errorf("ann revoked a rule: %v", err)
		}
		if err := rules.Revoke(ctx, made.ID, "chief"); err != nil {
			t.Error(err)
		}
		if got := doIn[string](t, e.Runtime(), "ann", "looks", ruleAsk{Tool: "pay", Args: json.RawMessage("{}")}); got != "" {
			t.Error("a revoked rule applies")
		}
		for _, id := range []string{made.ID, "", "~", "../x~", made.ID + "x"} {
			if err := rules.Revoke(ctx, id, "chief"); !errors.Is(err, ErrNoRule) {
				t.Errorf("revoking %q: %v", id, err)
			}
		}
		again, err := rules.Allow(ctx, r, "chief")
		if err != nil || again.ID != made.ID {
			t.Errorf("the same rule again: %v %v", again, err)
		}
		for name, bad := range map[string]Rule{
			"no tool": ruleFor("ann", "", "{}"), "a tool with a slash": ruleFor("ann", "a/b", "{}"),
			"a list": ruleFor("ann", "pay", "[]"), "no pattern": ruleFor("ann", "pay", ""), "null": ruleFor("ann", "pay", "null"),
			"an end in the past": {User: "ann", Flow: "looks", Agent: "clerk", Tool: "pay", Schema: "s", Args: json.RawMessage("{}"), Expires: time.Now()},
			"no UTF-8":           ruleFor("\xff", "pay", "{}"),
			"no flow":            {User: "ann", Agent: "clerk", Tool: "pay", Schema: "s", Args: json.RawMessage("{}")},
			"no agent":           {User: "ann", Flow: "looks", Tool: "pay", Schema: "s", Args: json.RawMessage("{}")},
			"no schema":          {User: "ann", Flow: "looks", Agent: "clerk", Tool: "pay", Args: json.RawMessage("{}")},
		} {
			if _, err := rules.Allow(ctx, bad, "boss"); !errors.Is(err, ErrRule) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRulesExpire(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{looks}}, func(t *testing.T, e *perduretest.Env) {
		r := ruleFor("ann", "pay", "{}")
		r.Expires = time.Now().Add(time.Hour)
		if _, err := RulesOf(e.Runtime()).Allow(t.Context(), r, "ann"); err != nil {
			t.Fatal(err)
		}
		e.Advance(59 * time.Minute)
		if got := doIn[string](t, e.Runtime(), "ann", "looks", ruleAsk{Tool: "pay", Args: json.RawMessage("{}")}); got == "" {
			t.Error("the rule is over too soon")
		}
		e.Advance(time.Minute)
		if got := doIn[string](t, e.Runtime(), "ann", "looks", ruleAsk{Tool: "pay", Args: json.RawMessage("{}")}); got != "" {
			t.Error("the rule is not over")
		}
	})
}

func TestRunsCannotMakeRulesFromOutside(t *testing.T) {
	var rt *perdure.Runtime
	sneaky := perdure.NewFlow("sneaky", func(ctx context.Context, _ string) (bool, error) {
		return perdure.Step(ctx, "try", func(ctx context.Context) (bool, error) {
			_, allow := RulesOf(rt).Allow(ctx, Rule{Tool: "pay"}, "ann")
			return errors.Is(allow, ErrRule) && errors.Is(RulesOf(rt).Revoke(ctx, "~", "ann"), ErrRule) &&
				errors.Is(credentials.Of(rt).Give(ctx, "ann", "n", "s", "ann"), credentials.ErrInvalid), nil
		})
	})
	flow := perdure.NewFlow("flow", func(ctx context.Context, _ string) (bool, error) {
		_, find := findRule(ctx, Rule{Tool: "pay"}, nil)
		return errors.Is(find, perdure.ErrNoLeaf) && errors.Is(makeRule(ctx, Rule{Tool: "pay"}), perdure.ErrNoLeaf), nil
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{sneaky, flow}}, func(t *testing.T, e *perduretest.Env) {
		rt = e.Runtime()
		for _, name := range []string{"sneaky", "flow"} {
			if !doIn[bool](t, rt, "ann", name, "") {
				t.Errorf("%s got through", name)
			}
		}
	})
}

// TestARuleIsMadeOnceByItsStep crashes at every write; a rule that was revoked
// meanwhile does not come back.
func TestARuleIsMadeOnceByItsStep(t *testing.T) {
	makes := perdure.NewFlow("makes", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "allow", func(ctx context.Context) (bool, error) {
			return true, makeRule(ctx, Rule{Agent: "clerk", Tool: "pay", Schema: "s", Exact: true, Args: json.RawMessage(`{"a":1}`), Who: []string{"boss"}, By: "boss"})
		}); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "look", func(ctx context.Context) (string, error) {
			r, err := findRule(ctx, Rule{Agent: "clerk", Tool: "pay", Schema: "s"}, json.RawMessage(`{"a":1.0}`), "boss")
			if r == nil {
				return "", err
			}
			return r.User + " " + r.By, err
		})
	})
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{makes}, Start: []perdure.StartRequest{{Flow: "makes", Input: "", User: "ann"}}, Want: perdure.Succeeded,
	})
}

func TestARevokedRuleIsNotMadeAgainByItsStep(t *testing.T) {
	var rt *perdure.Runtime
	makes := perdure.NewFlow("makes", func(ctx context.Context, _ string) (int, error) {
		return perdure.Step(ctx, "allow", func(ctx context.Context) (int, error) {
			for range 2 { // as if a crash came between and a person meanwhile
				if err := makeRule(ctx, Rule{Agent: "clerk", Tool: "pay", Schema: "s", Exact: true, Args: json.RawMessage("{}"), By: "ann"}); err != nil {
					return 0, err
				}
				list, err := RulesOf(rt).List(ctx, "ann")
				for _, r := range list {
					err = errors.Join(err, RulesOf(rt).Revoke(context.Background(), r.ID, "ann"))
				}
				if err != nil {
					return 0, err
				}
			}
			list, err := RulesOf(rt).List(ctx, "ann")
			return len(list), err
		})
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{makes}}, func(t *testing.T, e *perduretest.Env) {
		rt = e.Runtime()
		if n := doIn[int](t, rt, "ann", "makes", ""); n != 0 {
			t.Errorf("%d rules are there", n)
		}
	})
}

// TestADamagedRuleAllowsNothing: the others of the user go on, and one that is
// made anew takes its place.
func TestADamagedRuleAllowsNothing(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{looks}}, func(t *testing.T, e *perduretest.Env) {
		rt, s := e.Runtime(), e.Store
		var ids []string
		for _, to := range []string{"x", "y"} {
			rule, err := RulesOf(rt).Allow(t.Context(), ruleFor("ann", "pay", `{"to":"`+to+`"}`), "boss")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, rule.ID)
		}
		for cell, err := range s.List(t.Context(), "shelf/rule/", "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(cell.Key, ids[0]) {
				if _, err := s.Put(t.Context(), cell.Key, []byte(`{"value":{"tool":"pay"}}`), cell.Version); err != nil {
					t.Fatal(err)
				}
			}
		}
		look := func(to string) string {
			return doIn[string](t, rt, "ann", "looks", ruleAsk{Tool: "pay", Args: json.RawMessage(`{"to":"` + to + `"}`)})
		}
		if x, y := look("x"), look("y"); x != "" || y != ids[1] {
			t.Errorf("the damaged rule allows %q, and the other %q", x, y)
		}
		list, err := RulesOf(rt).List(t.Context(), "ann")
		if !errors.Is(err, perdure.ErrCorrupt) || len(list) != 1 {
			t.Errorf("the list is %+v, %v", list, err)
		}
		if _, err := RulesOf(rt).Allow(t.Context(), ruleFor("ann", "pay", `{"to":"x"}`), "boss"); err != nil {
			t.Fatal(err)
		}
		if x := look("x"); x != ids[0] {
			t.Errorf("the rule that is made anew allows %q", x)
		}
	})
}

// TestARuleFromBeforeAllowsNothing: it named only a tool. The list says so, and
// it can be revoked.
func TestARuleFromBeforeAllowsNothing(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{looks}}, func(t *testing.T, e *perduretest.Env) {
		rules := RulesOf(e.Runtime())
		old := &ruleRecord{Rule: Rule{User: "ann", Tool: "pay", By: "ann", Created: time.Now()}}
		item, err := rules.shelf.Put(t.Context(), old.namespace(), "a key as it was then", json.RawMessage(`{"id":"x","user":"ann","tool":"pay","by":"ann","created":"2026-01-02T03:04:05Z"}`), shelf.PutOptions{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := doIn[string](t, e.Runtime(), "ann", "looks", ruleAsk{Tool: "pay", Args: json.RawMessage("{}")}); got != "" {
			t.Errorf("it allows a call: %s", got)
		}
		list, err := rules.List(t.Context(), "ann")
		if err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Allows, "nothing: ") {
			t.Errorf("the list is %+v, %v", list, err)
		}
		if err := rules.Revoke(t.Context(), item.Place, "ann"); err != nil {
			t.Error(err)
		}
	})
}
