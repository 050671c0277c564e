package server

import (
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
)

// resumeRoutes binds the one call by which operators of other runtimes answer:
// {traceId, promptId, response}.
func (s *Server) resumeRoutes() {
	s.face("POST /resume", api.ScopeAnswer, s.resume)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request, c *call) error {
	in, err := s.lenient(w, r)
	if err != nil {
		return err
	}
	var trace, prompt string
	if err := firstError(in.into("traceId", &trace), in.into("promptId", &prompt)); err != nil {
		return err
	}
	response, err := in.get("response")
	if err != nil {
		return err
	}
	if trace == "" || prompt == "" || response == nil {
		return fmt.Errorf("%w: traceId, promptId and response have to be there", api.ErrBody)
	}
	ask, err := c.findPrompt(r.Context(), trace, prompt)
	if err != nil {
		return err
	}
	reply, secret, err := plainReply(ask, response)
	if err != nil {
		return err
	}
	if secret != "" {
		err = c.provide(r.Context(), ask.ID, secret)
	} else {
		err = c.Answer(r.Context(), c.reply(ask.ID, reply))
	}
	if err != nil {
		return err
	}
	follows(r.Context(), ask.Thread)
	return send(w, http.StatusOK, map[string]any{"ok": true, "thread": ask.Thread, "run": ask.Run, "ask": ask.ID})
}

// reply returns an answer of the caller's.
func (c *call) reply(ask string, r api.Reply) perdure.AskAnswer {
	a := perdure.AskAnswer{Ask: ask, Groups: c.who.Groups, Answer: perdure.Answer{Decision: r.Decision, Message: r.Message, By: c.who.Subject}}
	if r.Value != nil {
		a.Value = r.Value
	}
	return a
}

// maxTraced is how many threads with open asks are looked at for a run.
const maxTraced = 1000

// findPrompt returns an ask by its id, or by its name if that is the only one:
// among the open asks of the thread or run, and otherwise the newest that is
// over, so that a repeated answer is recognised.
func (c *call) findPrompt(ctx context.Context, trace, prompt string) (*perdure.AskInfo, error) {
	unknown := fmt.Errorf("%w: %.80q has no prompt %.80q; promptId is the id of an ask or the last part of its path", perdure.ErrNoAsk, trace, prompt)
	ask, err := c.GetAsk(ctx, prompt)
	switch {
	case err == nil && (ask.Thread == trace || ask.Run == trace):
		return ask, nil
	case err == nil:
		return nil, unknown
	case !errors.Is(err, perdure.ErrNoAsk):
		return nil, err
	}
	t, err := c.Get(ctx, trace)
	if errors.Is(err, perdure.ErrNoThread) || errors.Is(err, perdure.ErrInvalid) {
		return c.findTraced(ctx, trace, prompt, unknown)
	}
	if err != nil {
		return nil, err
	}
	if ask, err := openPrompt(t, "", prompt); ask != nil || err != nil {
		return ask, err
	}
	newest := ""
	for e, err := range c.Events(ctx, t.ID, perdure.EventOptions{Replay: true}) {
		if err != nil {
			return nil, err
		}
		if e.Kind == "asked" && lastName(e.Path) == prompt {
			newest = e.Ask
		}
	}
	if newest == "" {
		return nil, unknown
	}
	return c.GetAsk(ctx, newest)
}

// findTraced looks for a run among the threads with open asks: there is no other
// way from a run to its thread.
func (c *call) findTraced(ctx context.Context, run, prompt string, unknown error) (*perdure.AskInfo, error) {
	for sum, err := range c.List(ctx, perdure.ListOptions{Asks: true, Limit: maxTraced}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			break
		}
		if err != nil {
			return nil, err
		}
		t, err := c.Get(ctx, sum.ID)
		if gone(err) || errors.Is(err, perdure.ErrCorrupt) {
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
			if (run == "" || r.ID == run) && lastName(ask.Path) == prompt {
				found, ids = &ask, append(ids, ask.ID)
			}
		}
	}
	if len(ids) > 1 {
		return nil, fmt.Errorf("%w: %d open asks are called %q; name one by its id: %s", api.ErrAmbiguous, len(ids), prompt, strings.Join(ids, ", "))
	}
	return found, nil
}

// provide gives the secret that an ask wants.
func (c *call) provide(ctx context.Context, ask, secret string) error {
	return agent.Provide(ctx, c.Runtime, c.reply(ask, api.Reply{}), secret)
}

// replyOf makes an answer of {decision, value, message}, if that is what o is.
// What else is in it would be lost, so that it is refused.
func replyOf(ask *perdure.AskInfo, o members) (reply api.Reply, ok bool, err error) {
	if json.Unmarshal(o["decision"], &reply.Decision) != nil || !slices.Contains(ask.Decisions, reply.Decision) || reply.Decision == agent.DecisionProvided {
		return api.Reply{}, false, nil
	}
	for name := range o {
		if name != "decision" && name != "value" && name != "message" {
			return api.Reply{}, false, fmt.Errorf("%w: ask %s: a decision has value and message beside it, not %.40q", perdure.ErrAnswer, ask.ID, name)
		}
	}
	reply.Value, _ = o.get("value")
	return reply, true, o.into("message", &reply.Message)
}

// plainReply makes an answer of what a person says: approve or yes, why not, or
// the value that is asked for. A secret is returned apart.
func plainReply(ask *perdure.AskInfo, raw json.RawMessage) (reply api.Reply, secret string, err error) {
	o, _ := membersOf(raw)
	if reply, decided, err := replyOf(ask, o); decided || err != nil {
		return reply, "", err
	}
	var text string
	var yes bool
	isText, isBool := json.Unmarshal(raw, &text) == nil, json.Unmarshal(raw, &yes) == nil
	word := strings.ToLower(strings.TrimSpace(text))
	agreed := word == "approve" || word == "yes" || isBool && yes
	switch {
	case ask.Kind == agent.KindCredential:
		if secret = adkSecret(raw, secretDepth); secret == "" {
			err = fmt.Errorf("%w: ask %s wants a secret", perdure.ErrAnswer, ask.ID)
		}
	case slices.Contains(ask.Decisions, agent.DecisionApprove):
		switch {
		case !isText && !isBool:
			err = fmt.Errorf("%w: ask %s wants approve, why not, or an object with a decision", perdure.ErrAnswer, ask.ID)
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
			return reply, "", fmt.Errorf("%w: ask %s wants yes or no", perdure.ErrAnswer, ask.ID)
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
