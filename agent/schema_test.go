package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

type inner struct {
	N int `json:"n" schema:"min=1,max=3"`
}

type embedded struct {
	Kind string `json:"kind,omitempty" schema:"enum=x|y"`
}

type everything struct {
	embedded
	Level *int             `json:"level,omitempty" schema:"enum=1|2"`
	Word  *string          `json:"word,omitempty" schema:"enum=a|b"`
	Tags  []string         `json:"tags,omitempty" schema:"enum=a|b,maxlen=2"`
	By    map[string]inner `json:"by,omitempty"`
	List  []*inner         `json:"list,omitempty"`
	Deep  *struct {
		In map[string][]inner `json:"in,omitempty"`
	} `json:"deep,omitempty"`
	At    time.Time     `json:"at,omitzero"`
	Share float64       `json:"share,omitempty" schema:"min=0,max=1"`
	Big   int64         `json:"big,omitempty"`
	Wait  time.Duration `json:"wait,omitempty"`
	Any   any           `json:"any,omitempty"`
}

// TestSchemaRulesHoldWhereverTheyStand: in pointers, lists, maps and embedded
// structs.
func TestSchemaRulesHoldWhereverTheyStand(t *testing.T) {
	for args, fits := range map[string]bool{
		`{}`:                              true,
		`{"level":1}`:                     true,
		`{"level":3}`:                     false,
		`{"level":null}`:                  true,
		`{"word":"a"}`:                    true,
		`{"word":"c"}`:                    false,
		`{"tags":["a","b"]}`:              true,
		`{"tags":["a","c"]}`:              false,
		`{"tags":["a","a","a"]}`:          false,
		`{"by":{"k":{"n":3}}}`:            true,
		`{"by":{"k":{"n":4}}}`:            false,
		`{"list":[{"n":1}]}`:              true,
		`{"list":[{"n":0}]}`:              false,
		`{"deep":{"in":{"k":[{"n":2}]}}}`: true,
		`{"deep":{"in":{"k":[{"n":9}]}}}`: false,
		`{"kind":"x"}`:                    true,
		`{"kind":"z"}`:                    false,
		`{"share":0.5}`:                   true,
		`{"share":1.5}`:                   false,
		`{"big":9007199254740993}`:        true,
		`{"big":1.5}`:                     false,
		`{"at":"2026-01-02T03:04:05Z"}`:   true,
		`{"Kind":"x"}`:                    false, // Go would read it as kind
		`{"more":1}`:                      false,
		`[]`:                              false,
		`{"big":1}{"big":2}`:              false,
		`{"any":{"a":1,"A":2}}`:           true,
		`{"level":1,"level":2}`:           true,
		"{\"word\":\"a\"}\n\n":            true,
		`{"big":1e400}`:                   false,
		`{"big":99999999999999999999}`:    false,
		`{"at":"yesterday"}`:              false,
		`{"list":[null]}`:                 true,
	} {
		var ran *everything
		tool := agent.NewTool("do", "Does.", func(_ context.Context, e everything) (string, error) {
			ran = &e
			return "ran", nil
		})
		clerk := agent.New("clerk", scripted(calls(call("do", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{tool}})
		play(t, clerk, func(t *testing.T, e *perduretest.Env) {
			e.Wait("t", perdure.Succeeded)
			for _, r := range said(t, e, "t") {
				if r.Message.Role != llm.RoleTool {
					continue
				}
				if got := ran != nil; got != fits || r.Mistake == fits {
					t.Errorf("%s: it ran %v and is a mistake %v: %s", args, got, r.Mistake, r.Message.Parts[0].Result.Text)
				}
			}
			if strings.Contains(args, "9007199254740993") && ran.Big != 9007199254740993 {
				t.Errorf("the number became %d", ran.Big)
			}
		})
	}
}

// TestSchemaOfATypeThatHoldsItselfIsAnError, and not an endless loop.
func TestSchemaOfATypeThatHoldsItselfIsAnError(t *testing.T) {
	type node struct {
		Next []*node `json:"next"`
	}
	tool := agent.NewTool("do", "Does.", func(context.Context, node) (string, error) { return "", nil })
	err := agent.Check(agent.New("a", scripted(llm.Assistant("x")), agent.Options{Tools: []agent.Tool{tool}}))
	if !errors.Is(err, agent.ErrOption) || !strings.Contains(err.Error(), "do") {
		t.Errorf("got %v", err)
	}
}
