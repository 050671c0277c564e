package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
)

// adkRespond answers asks with the responses of a message, all or none, and
// returns the turn that follows them.
func (c *call) adkRespond(ctx context.Context, t *perdure.Thread, q *adkRequest, turn *adkTurn) error {
	if !c.who.May(api.ScopeAnswer) {
		return fmt.Errorf("%w: a response to a call is an answer, and needs the scope %s", api.ErrScope, api.ScopeAnswer)
	}
	var answers []perdure.AskAnswer
	var first *perdure.AskInfo
	secrets := map[string]string{}
	for _, r := range q.responses {
		ask, err := c.adkAsk(ctx, t, r)
		if err != nil {
			return err
		}
		if first == nil {
			first = ask
		}
		if ask.Run != first.Run {
			return fmt.Errorf("%w: responses to several invocations in one message; send several", api.ErrUnsupported)
		}
		reply, secret, err := adkReply(ask, r)
		if err != nil {
			return err
		}
		if secret != "" {
			secrets[ask.ID] = secret
			continue
		}
		answers = append(answers, c.reply(ask.ID, reply))
	}
	if q.invocation != "" && q.invocation != first.Run {
		return fmt.Errorf("%w: the call %s is not of invocation %.80q", perdure.ErrRunNotFound, first.ID, q.invocation)
	}
	run, err := adkFind(t, first.Run)
	if err != nil {
		return err
	}
	if len(answers) > 0 {
		if err := c.Answer(ctx, answers...); err != nil {
			return err
		}
	}
	for ask, secret := range secrets {
		if err := c.provide(ctx, ask, secret); err != nil {
			return err
		}
	}
	turn.run = run
	for e, err := range c.Events(ctx, t.ID, perdure.EventOptions{After: run.Seq - 1, Run: run.ID, Replay: true}) {
		if err != nil {
			return err
		}
		if e.Kind == "answered" && e.Ask == first.ID {
			turn.after = e.Seq
		}
	}
	return nil
}

// adkAsk returns the ask that a response is for. The result of a call that goes
// on elsewhere may also name the call itself, as the model did.
func (c *call) adkAsk(ctx context.Context, t *perdure.Thread, r adkReceived) (*perdure.AskInfo, error) {
	ask, err := c.GetAsk(ctx, r.id)
	switch {
	case err == nil && ask.Thread == t.ID:
		return ask, nil
	case err != nil && !errors.Is(err, perdure.ErrNoAsk) && !gone(err):
		return nil, err // such as a store that does not answer
	}
	var found *perdure.AskInfo
	for _, run := range t.Runs {
		for _, a := range run.Asks {
			var data struct{ Call, Tool string }
			if a.Kind != agent.KindPending || json.Unmarshal(a.Data, &data) != nil || data.Call != r.id || data.Tool != r.name {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("%w: the call %q, as %s and %s; name one of these", api.ErrAmbiguous, r.id, found.ID, a.ID)
			}
			found = &a
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: session %q waits for no response to %.80q", perdure.ErrNoAsk, t.ID, r.id)
	}
	return found, nil
}

// adkReply makes an answer of a response. A secret is returned apart: it belongs
// into no journal.
func adkReply(ask *perdure.AskInfo, r adkReceived) (reply api.Reply, secret string, err error) {
	wrong := func(why string) error {
		return fmt.Errorf("%w: the response to %s (%s): %s", perdure.ErrAnswer, ask.ID, r.name, why)
	}
	want := adkAskName(ask.Kind, ask.Decisions, ask.Data)
	confirms := want == adkConfirm || want == adkInput && len(ask.Decisions) == 0 && ask.Want == "boolean"
	if r.name != "" && r.name != want && !(r.name == adkConfirm && confirms) && !(r.name == adkInput && slices.Contains(ask.Decisions, agent.DecisionRespond)) {
		return reply, "", wrong("it is to " + want)
	}
	raw := r.response
	o, isObject := membersOf(raw)
	// Some clients put the response as a text into a member of the same name.
	if inner, there := o["response"]; there && len(o) == 1 {
		raw = inner
		var text string
		if json.Unmarshal(inner, &text) == nil && json.Valid([]byte(text)) && bytes.HasPrefix([]byte(text), []byte("{")) {
			if err := shallow([]byte(text)); err != nil {
				return reply, "", err
			}
			raw = json.RawMessage(text)
		}
		o, isObject = membersOf(raw)
	}
	if decided, ok := replyOf(ask, o); ok {
		return decided, "", nil
	}
	switch {
	case ask.Kind == agent.KindCredential:
		if secret = adkSecret(raw, secretDepth); secret == "" {
			err = wrong("there is no secret in it")
		}
		return reply, secret, err
	case r.name == adkConfirm || r.name == "" && want == adkConfirm:
		return adkConfirmed(ask, o, wrong)
	case want != adkInput && r.name != adkInput: // the result of a call
		reply.Value = raw
		var text string
		if msg, there := o["error"]; there && len(o) == 1 && json.Unmarshal(msg, &text) == nil {
			reply = api.Reply{Message: text}
		} else if result, there := o["result"]; there && len(o) == 1 {
			reply.Value = result
		}
		return reply, "", nil
	}
	reply.Value = raw
	if isObject {
		for _, name := range []string{"payload", "result", "response"} {
			if value, there := o[name]; there {
				reply.Value = value
				break
			}
		}
	}
	if slices.Contains(ask.Decisions, agent.DecisionRespond) {
		reply.Decision = agent.DecisionRespond
	}
	return reply, "", nil
}

// adkConfirmed makes an answer of a confirmation.
func adkConfirmed(ask *perdure.AskInfo, o members, wrong func(string) error) (reply api.Reply, _ string, err error) {
	var confirmed *bool
	if err := firstError(o.into("confirmed", &confirmed), o.into("hint", &reply.Message)); err != nil {
		return reply, "", err
	}
	payload, err := o.get("payload")
	switch {
	case err != nil:
	case confirmed == nil:
		err = wrong("confirmed is neither true nor false")
	case len(ask.Decisions) == 0:
		reply.Value, _ = json.Marshal(*confirmed)
	case !*confirmed:
		reply.Decision = agent.DecisionReject
	case payload == nil:
		reply.Decision, reply.Message = agent.DecisionApprove, ""
	case slices.Contains(ask.Decisions, agent.DecisionEdit):
		reply.Decision, reply.Message, reply.Value = agent.DecisionEdit, "", payload
	default:
		err = wrong("it has a payload, and the arguments of this call cannot be edited")
	}
	return reply, "", err
}

// secretDepth is how deep in a response a secret is looked for: each level is
// all that is below it, read once more.
const secretDepth = 5

// adkSecret finds the secret in what a client sends for a credential.
func adkSecret(raw json.RawMessage, depth int) string {
	var text string
	if depth == 0 {
		return ""
	}
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	o, _ := membersOf(raw)
	for _, name := range []string{"secret", "payload", "result", "apiKey", "accessToken", "token"} {
		value, _ := o.get(name)
		if json.Unmarshal(value, &text) == nil && text != "" {
			return text
		}
	}
	for _, name := range []string{"authConfig", "exchangedAuthCredential", "oauth2", "http", "credentials"} {
		if inner, _ := o.get(name); inner != nil {
			if text := adkSecret(inner, depth-1); text != "" {
				return text
			}
		}
	}
	return ""
}
