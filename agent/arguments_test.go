package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestApprovalByPredicateIsNotFooledByNames: a tool of another system reads
// "sum", and the predicate's Go type would read other spellings of it, the last
// one of which wins.
func TestApprovalByPredicateIsNotFooledByNames(t *testing.T) {
	type money struct {
		Sum   int `json:"sum"`
		Limit struct {
			Max int `json:"Max"`
		} `json:"limit"`
	}
	for _, args := range []string{
		`{"sum":1000,"ſum":1}`,
		`{"sum":1000,"\u017fum":1}`,
		`{"sum":1000,"sum":1000}`,
		`{"sum":1,"limit":{"Max":1000,"max":1}}`,
		`{"Sum":1000}`,
		`{"sUm":1}`, // the tool finds no sum, and may take another one than the predicate
		`{"sum":1,"limit":{"MAX":1}}`,
	} {
		var n tally
		pay := agent.RawTool("pay", "Pays.", json.RawMessage(`{"type":"object"}`), func(context.Context, json.RawMessage) (agent.Output, error) {
			n.add("pay")
			return agent.Output{Text: "paid"}, nil
		}, agent.ApprovalIf(func(m money) bool { return m.Sum > 100 || m.Limit.Max > 100 }))
		clerk := agent.New("clerk", scripted(calls(call("pay", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{pay}})
		play(t, clerk, func(t *testing.T, e *perduretest.Env) {
			// A worker that looks between the hint and the journal looks again soon.
			run, err := e.Runtime().Wait(t.Context(), "t", "")
			if err != nil {
				t.Fatal(err)
			}
			if n.of("pay") != 0 || run.Status != perdure.Suspended {
				t.Errorf("%s ran without approval", args)
			}
		})
	}
}

// gatedFiles are tools for files whose calls below /secret need approval. The
// predicate is the plainest that one would write.
func gatedFiles(f files.FS) []agent.Tool {
	tools := agent.FileTools(f)
	for i, t := range tools {
		tools[i] = t.With(agent.ApprovalIf(func(a struct {
			Path string `json:"path"`
		}) bool {
			return strings.HasPrefix(a.Path, "/secret/") || a.Path == "/secret"
		}))
	}
	return tools
}

// TestNoSpellingOfAPathPassesAGate: a gate on a folder sees the path that is
// used, or the tool refuses the path. So do the person who is asked and whoever
// edits the call.
func TestNoSpellingOfAPathPassesAGate(t *testing.T) {
	spellings := []string{"/secret/a", "//secret/a", "secret/a", "/./secret/a", "/secret//a", "/secret/./a", "./secret/a", "///secret///a",
		"/x/../secret/a", "/secret/a/", "/secret/a/.", `\secret\a`, `/secret\a`, "/secret/a\x00", " /secret/a", "/secret /a", "/\u200bsecret/a",
		"/\uff0fsecret/a", "/%73ecret/a", "/SECRET/a", "/ſecret/a", "/secret\u0301/a"}
	uses := map[string]map[string]any{"write_file": {"text": "new"}, "edit_file": {"old": "TOP", "new": ""}, "delete_file": {}, "read_file": {},
		"ls": {}, "glob": {"pattern": "*"}, "grep": {"pattern": "TOP"}}
	kinds := map[string]files.FS{"state": files.State(), "disk": files.Disk(t.TempDir()), "memory": files.Memory(),
		"composite": files.Composite(map[string]files.FS{"/secret": files.State()}, files.State())}
	for k, name := range slices.Sorted(maps.Keys(kinds)) {
		fs := kinds[name]
		for i, p := range spellings {
			if testing.Short() && i%len(kinds) != k {
				continue // another of them gets it
			}
			var all []llm.Call
			for tool, args := range uses {
				args["path"] = p
				all = append(all, call(tool, string(raw(args))))
			}
			model := scripted(calls(all...), llm.Assistant("end"))
			clerk := agent.New("clerk", model, agent.Options{Tools: gatedFiles(fs)})
			step := func(name string, fn func(ctx context.Context) (string, error)) agent.Agent {
				return agent.Func(name, func(ctx context.Context, _ agent.Content) (string, error) { return perdure.Step(ctx, "do", fn) })
			}
			flow := agent.NewFlow("flow", agent.Sequential("all",
				step("write", func(ctx context.Context) (string, error) { return "go", fs.Write(ctx, "/secret/a", "TOPSECRET") }), clerk,
				step("look", func(ctx context.Context) (string, error) {
					f, err := fs.Read(ctx, "/secret/a")
					return f.Text, err
				})))
			asked := map[string]bool{}
			perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "go")
				run, err := e.Runtime().Wait(t.Context(), "t", "")
				for ; err == nil && run.Status == perdure.Suspended; run, err = e.Runtime().Wait(t.Context(), "t", "") {
					var data struct {
						Tool string
						Args struct{ Path string }
					}
					decode(t, run.Asks[0].Data, &data)
					asked[data.Tool] = true
					if data.Args.Path != "/secret/a" && !strings.HasSuffix(p, "/") && !strings.ContainsAny(p, "\x00\\") { // those are refused
						t.Errorf("%s: %s of %q is asked about as %q", name, data.Tool, p, data.Args.Path)
					}
					reply(t, e, run.Asks[0], perdure.Answer{Decision: agent.DecisionReject})
				}
				if err != nil || text(t, run) != "TOPSECRET" {
					t.Errorf("%s: %q changed the file without approval: %v", name, p, err)
				}
				for _, part := range last(&model.requests()[1]).Parts {
					tool, got := part.Result.Name, part.Result.Text
					if !asked[tool] && (p == "/secret/a" || strings.Contains(got, "TOPSECRET") || (tool == "ls" || tool == "glob") && strings.HasPrefix(got, "/secret/a")) {
						t.Errorf("%s: %s of %q ran without approval: %s", name, tool, p, got)
					}
				}
			})
		}
	}
}

// TestNormalizedArgumentsAreWhatEveryoneSees: predicate, person, rules,
// callbacks, function and record see one form, also of an edit, and the rest of
// the arguments stays as it was written.
func TestNormalizedArgumentsAreWhatEveryoneSees(t *testing.T) {
	type mail struct {
		To  string `json:"to"`
		Num any    `json:"num"`
	}
	var seen []string
	see := func(who string, to string) { seen = append(seen, who+" "+to) }
	send := agent.RawTool("send", "Sends.", json.RawMessage(`{"type":"object","properties":{"to":{"type":"string","maxLength":12}}}`), func(_ context.Context, raw json.RawMessage) (agent.Output, error) {
		see("function", string(raw))
		return agent.Output{Text: "sent"}, nil
	}, agent.Normalize(func(m mail) (mail, error) {
		if m.To == "" {
			return m, errors.New("nobody to send it to")
		}
		m.To = strings.TrimPrefix(strings.ToLower(m.To), "mailto:")
		return m, nil
	}), agent.Normalize(func(m mail) (mail, error) { m.To = strings.TrimSpace(m.To); return m, nil }),
		agent.ApprovalIf(func(m mail) bool { see("predicate", m.To); return true }))
	clerk := agent.New("clerk", scripted(
		calls(call("send", `{"to":""}`), call("send", `{"to":"much too long for it"}`)),
		calls(call("send", `{"to":"MAILTO: Bo","num":9007199254740993,"more":1.50}`)), llm.Assistant("end")),
		agent.Options{Tools: []agent.Tool{send}, Callbacks: agent.Callbacks{BeforeTool: func(_ context.Context, c agent.ToolCall) (*agent.Output, error) {
			see("callback", string(c.Args))
			return nil, nil
		}}})
	for _, edited := range []string{"", ` {"to":"MAILTO: Bo","num":9007199254740993,"more":1.50}`, `{"to":"CY ","num":1}`} {
		seen = nil
		play(t, clerk, func(t *testing.T, e *perduretest.Env) {
			ask := asked(t, e, "t", 1)[0]
			answer := perdure.Answer{Decision: agent.DecisionApprove}
			if edited != "" {
				answer = perdure.Answer{Decision: agent.DecisionEdit, Value: json.RawMessage(edited)}
			}
			reply(t, e, ask, answer)
			e.Wait("t", perdure.Succeeded)
			want, told := `{"more":1.50,"num":9007199254740993,"to":"bo"}`, false
			if !strings.Contains(string(ask.Data), `"args":`+want) {
				t.Errorf("the person saw %s", ask.Data)
			}
			if strings.Contains(edited, "CY") {
				want, told = `{"num":1,"to":"cy"}`, true
			}
			for _, who := range []string{"callback " + want, "function " + want} {
				if got := strings.Join(seen, "\n"); strings.Count(got, who) != 1 || !strings.Contains(got, "predicate bo") || strings.Contains(got, "MAILTO") {
					t.Errorf("%q: they saw\n%s\nwant %s", edited, got, who)
				}
			}
			all := said(t, e, "t")
			r := all[len(all)-2]
			if string(r.Args) != want || (r.Decision == agent.DecisionEdit) != told || strings.Contains(results(r.Said()), "changed the arguments") != told {
				t.Errorf("%q: the record is %s, and is read as %s", edited, raw(r), results(r.Said()))
			}
		})
	}
}

// TestArgumentsNestedTooDeepAreAMistake of the model, and not the run's end.
func TestArgumentsNestedTooDeepAreAMistake(t *testing.T) {
	var n tally
	pay := agent.RawTool("pay", "Pays.", json.RawMessage(`{"type":"object"}`), func(context.Context, json.RawMessage) (agent.Output, error) {
		n.add("pay")
		return agent.Output{}, nil
	}, agent.NeedsApproval())
	args := `{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`
	clerk := agent.New("clerk", scripted(calls(call("pay", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{pay}})
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		e.Wait("t", perdure.Succeeded)
		n.want(t, "")
	})
}

// TestWholeNumbersAndNullAreArguments: what fits the schema fits the Go type,
// and a model that gives no arguments may say null.
func TestWholeNumbersAndNullAreArguments(t *testing.T) {
	type numbers struct {
		N    int            `json:"n,omitempty"`
		List []uint8        `json:"list,omitempty"`
		By   map[string]any `json:"by,omitempty"`
		F    float64        `json:"f,omitempty"`
	}
	for args, want := range map[string]string{
		`{"n":1.0}`:               "{1 [] map[] 0}",
		`{"n":-2.50e1,"f":1.5}`:   "{-25 [] map[] 1.5}",
		`{"list":[1e0,2],"f":10}`: "{0 [1 2] map[] 10}",
		`{"n":1.5}`:               "",
		`{"n":1e300}`:             "",
		`{"list":[300.0]}`:        "",
		`null`:                    "{0 [] map[] 0}",
		` null `:                  "{0 [] map[] 0}",
	} {
		var n tally
		tool := agent.NewTool("count", "Counts.", func(_ context.Context, a numbers) (string, error) {
			n.add(fmt.Sprint(a))
			return "ok", nil
		})
		play(t, agent.New("clerk", scripted(calls(call("count", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{tool}}), func(t *testing.T, e *perduretest.Env) {
			e.Wait("t", perdure.Succeeded)
		})
		if want != "" {
			want += ":1"
		}
		n.want(t, want)
	}
}
