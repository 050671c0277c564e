package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestProgressHoldsNoSecret has a tool that tells its secret on the way.
func TestProgressHoldsNoSecret(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	const secret = `hush-"hush"-hush`
	login := agent.NewTool("login", "Logs in.", func(ctx context.Context, _ struct{}) (string, error) {
		s, err := agent.Secret(ctx, "desk")
		agent.Progress(ctx, "I log in with "+s)
		return "in", err
	}, agent.Needs(agent.Credential{Name: "desk"}))
	flow := agent.NewFlow("f", agent.New("a", scripted(calls(call("login", "{}")), llm.Assistant("done")), agent.Options{Tools: []agent.Tool{login}}))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		if err := agent.CredentialsOf(e.Runtime()).Give(t.Context(), "", "desk", secret, ""); err != nil {
			t.Fatal(err)
		}
		e.Start("t", "f", "go")
		e.Wait("t", perdure.Succeeded)
		told := false
		for ev, err := range e.Runtime().Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			if err != nil {
				t.Fatal(err)
			}
			told = told || strings.Contains(string(ev.Value), "I log in with")
			if strings.Contains(string(ev.Value), "hush") {
				t.Errorf("event %d holds the secret: %s", ev.Seq, ev.Value)
			}
		}
		if !told {
			t.Error("the progress is not on record")
		}
	})
}
