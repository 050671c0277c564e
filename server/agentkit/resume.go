// Package agentkit lets operators who answer the prompts of an agentkit runtime
// answer those of a Perdure server: one call, POST /resume, takes {traceId,
// promptId, response}. It may import package server and what that imports.
package agentkit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/internal/foreign"
)

// Face returns the route. A trace is a thread or one of its runs, and a prompt is an ask.
func Face() server.Face {
	return server.Face{{Pattern: "POST /resume", Scope: api.ScopeAnswer, Serve: resume}}
}

func resume(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	in, err := foreign.Read(w, r, c)
	if err != nil {
		return err
	}
	var trace, prompt string
	if err := cmp.Or(in.Decode("traceId", &trace), in.Decode("promptId", &prompt)); err != nil {
		return err
	}
	response, err := in.Get("response")
	if err != nil {
		return err
	}
	if trace == "" || prompt == "" || response == nil {
		return fmt.Errorf("%w: traceId, promptId and response are required", api.ErrBody)
	}
	ask, err := findPrompt(r.Context(), c, trace, prompt)
	if err != nil {
		return err
	}
	reply, secret, err := plainReply(ask, response)
	if err != nil {
		return err
	}
	if secret != "" {
		err = agent.Provide(r.Context(), c.Runtime, c.AskAnswer(ask.ID, api.Reply{}, 0), secret)
	} else {
		err = c.Runtime.Answer(r.Context(), c.AskAnswer(ask.ID, reply, 0))
	}
	if err != nil {
		return err
	}
	c.About(ask.Thread)
	return c.Send(w, http.StatusOK, map[string]any{"ok": true, "thread": ask.Thread, "run": ask.Run, "ask": ask.ID})
}

// maxTraced is how many threads with open asks are looked at for a run.
const maxTraced = 1000

// findPrompt returns an ask by its id, or by its name if that is unique: among the
// open asks of the thread or run, or else the newest closed one, so that a repeated
// answer is recognised.
func findPrompt(ctx context.Context, c *server.Call, trace, prompt string) (*perdure.AskInfo, error) {
	unknown := fmt.Errorf("%w: %.80q has no prompt %.80q; promptId is the id of an ask or the last part of its path", perdure.ErrNoAsk, trace, prompt)
	ask, err := c.Runtime.GetAsk(ctx, prompt)
	switch {
	case err == nil && (ask.Thread == trace || ask.Run == trace):
		return ask, nil
	case err == nil:
		return nil, unknown
	case !errors.Is(err, perdure.ErrNoAsk):
		return nil, err
	}
	t, err := c.Runtime.GetPage(ctx, trace, perdure.RunPage{Limit: 1}) // and all that have not ended
	if errors.Is(err, perdure.ErrNoThread) || errors.Is(err, perdure.ErrInvalid) {
		return findTraced(ctx, c, trace, prompt, unknown)
	}
	if err != nil {
		return nil, err
	}
	if ask, err := openPrompt(t, "", prompt); ask != nil || err != nil {
		return ask, err
	}
	newest := ""
	for e, err := range c.Runtime.Events(ctx, t.ID, perdure.EventOptions{Replay: true}) {
		if err != nil {
			return nil, err
		}
		if e.Kind == "asked" && foreign.LastName(e.Path) == prompt {
			newest = e.Ask
		}
	}
	if newest == "" {
		return nil, unknown
	}
	return c.Runtime.GetAsk(ctx, newest)
}

// findTraced looks for a run among the threads with open asks: there is no other
// way from a run to its thread.
func findTraced(ctx context.Context, c *server.Call, run, prompt string, unknown error) (*perdure.AskInfo, error) {
	for sum, err := range c.Runtime.List(ctx, perdure.ListOptions{Asks: true, Limit: maxTraced}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			break
		}
		if err != nil {
			return nil, err
		}
		t, err := c.Runtime.Get(ctx, sum.ID)
		if foreign.Gone(err) || errors.Is(err, perdure.ErrCorrupt) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(t.Runs, func(r *perdure.Run) bool { return r.ID == run }) {
			ask, err := openPrompt(t, run, prompt)
			if ask == nil && err == nil {
				err = unknown
			}
			return ask, err
		}
	}
	return nil, unknown
}

// openPrompt returns the open ask of a thread, or of one run of it, with a name;
// nil if there is none.
func openPrompt(t *perdure.Thread, run, prompt string) (found *perdure.AskInfo, err error) {
	var ids []string
	for _, r := range t.Runs {
		for _, ask := range r.Asks {
			if (run == "" || r.ID == run) && foreign.LastName(ask.Path) == prompt {
				found, ids = &ask, append(ids, ask.ID)
			}
		}
	}
	if len(ids) > 1 {
		return nil, fmt.Errorf("%w: %d open asks are called %q; name one by its id: %s", api.ErrAmbiguous, len(ids), prompt, strings.Join(ids, ", "))
	}
	return found, nil
}

// plainReply turns what a person says into an answer: approve or yes, a reason for
// a rejection, or the requested value. A secret is returned separately.
func plainReply(ask *perdure.AskInfo, raw json.RawMessage) (reply api.Reply, secret string, err error) {
	o, _ := foreign.ParseObject(raw)
	if reply, decided, err := foreign.Decided(ask, o); decided || err != nil {
		return reply, "", err
	}
	var text string
	var yes bool
	isText, isBool := json.Unmarshal(raw, &text) == nil, json.Unmarshal(raw, &yes) == nil
	word := strings.ToLower(strings.TrimSpace(text))
	agreed := word == "approve" || word == "yes" || isBool && yes
	switch {
	case ask.Kind == agent.KindCredential:
		if secret = foreign.Secret(raw); secret == "" {
			err = fmt.Errorf("%w: ask %s needs a secret", perdure.ErrAnswer, ask.ID)
		}
	case slices.Contains(ask.Decisions, agent.DecisionApprove):
		switch {
		case !isText && !isBool:
			err = fmt.Errorf("%w: ask %s needs approve, a reason for a rejection, or an object with a decision", perdure.ErrAnswer, ask.ID)
		case agreed:
			reply.Decision = agent.DecisionApprove
		default:
			reply.Decision = agent.DecisionReject
			if word != "reject" && word != "no" {
				reply.Message = text
			}
		}
	case slices.Contains(ask.Decisions, agent.DecisionRespond):
		reply = api.Reply{Decision: agent.DecisionRespond, Value: raw}
	case len(ask.Decisions) > 0: // the runtime says which there are
		reply.Decision = strings.TrimSpace(text)
	case ask.Want == "boolean" && isText:
		if agreed = agreed || word == "true"; !agreed && word != "no" && word != "reject" && word != "false" {
			return reply, "", fmt.Errorf("%w: ask %s needs yes or no", perdure.ErrAnswer, ask.ID)
		}
		reply.Value, _ = json.Marshal(agreed)
	default:
		reply.Value = raw
		value, there := o["value"]
		message, more := o["message"]
		if there && ask.Want != "object" && (len(o) == 1 || more && len(o) == 2 && json.Unmarshal(message, &reply.Message) == nil) {
			reply.Value = value
		}
	}
	return reply, secret, err
}
