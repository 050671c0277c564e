package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

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
	tools := map[string]map[string]any{"write_file": {"text": "new"}, "edit_file": {"old": "TOP", "new": ""}, "delete_file": {}, "read_file": {},
		"ls": {}, "glob": {"pattern": "*"}, "grep": {"pattern": "TOP"}}
	for name, files := range map[string]files.FS{"state": files.State(), "disk": files.Disk(t.TempDir()), "memory": files.Memory(),
		"composite": files.Composite(map[string]files.FS{"/secret": files.State()}, files.State())} {
		for _, p := range spellings {
			for tool, args := range tools {
				args["path"] = p
				model := scripted(calls(call(tool, string(raw(args)))), llm.Assistant("end"))
				clerk := agent.New("clerk", model, agent.Options{Tools: gatedFiles(files)})
				step := func(name string, fn func(ctx context.Context) (string, error)) agent.Agent {
					return agent.Func(name, func(ctx context.Context, _ agent.Content) (string, error) { return perdure.Step(ctx, "do", fn) })
				}
				flow := agent.NewFlow("flow", agent.Sequential("all",
					step("write", func(ctx context.Context) (string, error) { return "go", files.Write(ctx, "/secret/a", "TOPSECRET") }), clerk,
					step("look", func(ctx context.Context) (string, error) {
						f, err := files.Read(ctx, "/secret/a")
						return f.Text, err
					})))
				perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
					e.Start("t", "flow", "go")
					run, err := e.Runtime().Wait(t.Context(), "t", "")
					if err != nil {
						t.Fatal(err)
					}
					if run.Status == perdure.Suspended {
						var data struct{ Args struct{ Path string } }
						if err := json.Unmarshal(run.Asks[0].Data, &data); err != nil || data.Args.Path != "/secret/a" && !strings.HasSuffix(p, "/") && !strings.ContainsAny(p, "\x00\\") { // those are refused
							t.Errorf("%s: %s of %q is asked about as %q, %v", name, tool, p, data.Args.Path, err)
						}
						return
					}
					got := results(last(&model.requests()[1]))
					if p == "/secret/a" || text(t, run) != "TOPSECRET" || strings.Contains(got, "TOPSECRET") || (tool == "ls" || tool == "glob") && strings.Contains(got, "=/secret/a") {
						t.Errorf("%s: %s of %q ran without approval: %s", name, tool, p, got)
					}
				})
			}
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
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
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
