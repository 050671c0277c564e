package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
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
			if of := adkCallOf(a.Data); a.Kind != agent.KindPending || of.Call != r.id || of.Tool != r.name {
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
	want := adkAskName(ask.Kind, ask.Decisions)
	confirms := want == adkConfirm || want == adkInput && len(ask.Decisions) == 0 && ask.Want == "boolean"
	switch {
	case r.name == "", r.name == want:
	case r.name == adkConfirm && confirms:
	case r.name == adkInput && slices.Contains(ask.Decisions, agent.DecisionRespond):
	case ask.Kind == agent.KindPending && r.name == adkCallOf(ask.Data).Tool:
	default:
		return reply, "", wrong("it is to " + want)
	}
	raw, err := adkUnwrap(ask, r.response, "response")
	if err != nil {
		return reply, "", err
	}
	o, _ := membersOf(raw)
	if reply, decided, err := replyOf(ask, o); decided || err != nil {
		return reply, "", err
	}
	switch {
	case ask.Kind == agent.KindCredential:
		if secret = adkSecret(raw, secretDepth); secret == "" {
			err = wrong("there is no secret in it")
		}
		return reply, secret, err
	case r.name == adkConfirm || r.name == "" && want == adkConfirm:
		return adkConfirmed(ask, o, wrong)
	}
	var failure string
	if ask.Kind == agent.KindPending && len(o) == 1 && json.Unmarshal(o["error"], &failure) == nil {
		return api.Reply{Message: failure}, "", nil
	}
	reply.Value, err = adkUnwrap(ask, raw, "result", "payload")
	if slices.Contains(ask.Decisions, agent.DecisionRespond) {
		reply.Decision = agent.DecisionRespond
	}
	return reply, "", err
}

// adkUnwrap returns what is in the only member of an object, if it has one of
// these names: clients put it around what is no object itself, and write JSON
// into it as a text where that is wanted. Anything else is returned as it is, so
// that no other member is lost.
func adkUnwrap(ask *perdure.AskInfo, raw json.RawMessage, names ...string) (json.RawMessage, error) {
	o, _ := membersOf(raw)
	for _, name := range names {
		inner, there := o[name]
		if !there || len(o) != 1 {
			continue
		}
		var text string
		if json.Unmarshal(inner, &text) == nil && json.Valid([]byte(text)) {
			_, isObject := membersOf(json.RawMessage(text))
			if isObject && name == "response" || ask.Want != "" && ask.Want != "string" {
				if err := shallow([]byte(text)); err != nil {
					return nil, err
				}
				inner = json.RawMessage(text)
			}
		}
		if _, isObject := membersOf(inner); isObject || ask.Want != "object" {
			return inner, nil
		}
	}
	return raw, nil
}

// adkConfirmed makes an answer of a confirmation. The web interface sends the
// arguments back with each: they are an edit only if they are others.
func adkConfirmed(ask *perdure.AskInfo, o members, wrong func(string) error) (reply api.Reply, _ string, err error) {
	var confirmed *bool
	if err := o.into("hint", &reply.Message); err != nil {
		return reply, "", err
	}
	if o.into("confirmed", &confirmed) != nil {
		return reply, "", fmt.Errorf("%w: confirmed is neither true nor false", api.ErrBody)
	}
	payload, err := o.get("payload")
	switch {
	case err != nil:
	case confirmed == nil:
		err = wrong("confirmed is neither true nor false")
	case len(ask.Decisions) == 0 && payload != nil:
		err = wrong("it has a payload, and yes or no is asked for")
	case len(ask.Decisions) == 0:
		reply.Value, _ = json.Marshal(*confirmed)
	case !*confirmed:
		reply.Decision = agent.DecisionReject
	default:
		reply.Message = ""
		reply.Decision, reply.Value, err = adkEdited(ask, payload, wrong)
	}
	return reply, "", err
}

// adkEdited tells an edit from an approval.
func adkEdited(ask *perdure.AskInfo, payload json.RawMessage, wrong func(string) error) (decision string, value json.RawMessage, err error) {
	shown, _ := json.Marshal(adkOriginal(ask.Kind, ask.ID, ask.Path, ask.Data).Args)
	var v any
	_ = json.Unmarshal(shown, &v)
	rounded, _ := json.Marshal(v)
	switch {
	case payload == nil || strict.Same(payload, shown):
		return agent.DecisionApprove, nil, nil
	case strict.Same(payload, rounded):
		err = wrong("a number of the arguments was rounded on its way; leave payload out to approve the call as it was made")
	case !slices.Contains(ask.Decisions, agent.DecisionEdit):
		err = wrong("it has a payload, and the arguments of this call cannot be edited")
	}
	return agent.DecisionEdit, payload, err
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
