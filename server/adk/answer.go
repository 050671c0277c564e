package adk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/internal/foreign"
)

// respond answers asks with the responses of a message, all or nothing, and
// returns the turn that follows.
func respond(ctx context.Context, c *server.Call, t *perdure.Thread, q *runRequest, turn *excerpt) error {
	if !c.Who.May(api.ScopeAnswer) {
		return fmt.Errorf("%w: responding to a call answers an ask, which needs the scope %s", api.ErrScope, api.ScopeAnswer)
	}
	var answers []perdure.AskAnswer
	var first *perdure.AskInfo
	secrets := map[string]string{}
	for _, r := range q.responses {
		ask, err := findAsk(ctx, c, t, r)
		if err != nil {
			return err
		}
		first = cmp.Or(first, ask)
		if ask.Run != first.Run {
			return fmt.Errorf("%w: responses to several invocations in one message; send several", api.ErrUnsupported)
		}
		reply, secret, err := replyTo(ask, r)
		if err != nil {
			return err
		}
		if secret != "" {
			secrets[ask.ID] = secret
			continue
		}
		answers = append(answers, c.AskAnswer(ask.ID, reply, 0))
	}
	if q.invocation != "" && q.invocation != first.Run {
		return fmt.Errorf("%w: the call %s is not of invocation %.80q", perdure.ErrRunNotFound, first.ID, q.invocation)
	}
	run, err := findRun(ctx, c, t, first.Run)
	if err != nil {
		return err
	}
	if len(answers) > 0 {
		if err := c.Runtime.Answer(ctx, answers...); err != nil {
			return err
		}
	}
	for ask, secret := range secrets {
		if err := agent.Provide(ctx, c.Runtime, c.AskAnswer(ask, api.Reply{}, 0), secret); err != nil {
			return err
		}
	}
	turn.run = run
	for e, err := range c.Runtime.Events(ctx, t.ID, perdure.EventOptions{After: run.Seq - 1, Run: run.ID, Replay: true}) {
		if err != nil {
			return err
		}
		if e.Kind == "answered" && e.Ask == first.ID {
			turn.after = e.Seq
		}
	}
	return nil
}

// findAsk returns the ask that a response is for. The result of a call that
// continues elsewhere may also name the call itself, as the model did.
func findAsk(ctx context.Context, c *server.Call, t *perdure.Thread, r received) (*perdure.AskInfo, error) {
	ask, err := c.Runtime.GetAsk(ctx, r.id)
	switch {
	case err == nil && ask.Thread == t.ID:
		return ask, nil
	case err != nil && !errors.Is(err, perdure.ErrNoAsk) && !foreign.Gone(err):
		return nil, err // such as a store that does not answer
	}
	var found *perdure.AskInfo
	for _, run := range t.Runs {
		for _, a := range run.Asks {
			if of := subjectOf(a.Data); a.Kind != agent.KindPending || of.Call != r.id || of.Tool != r.name {
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

// replyTo turns a response into an answer. A secret is returned separately: it
// must not get into a journal.
func replyTo(ask *perdure.AskInfo, r received) (reply api.Reply, secret string, err error) {
	wrong := func(why string) error {
		return fmt.Errorf("%w: the response to %s (%s): %s", perdure.ErrAnswer, ask.ID, r.name, why)
	}
	want := callName(ask.Kind, ask.Decisions)
	confirms := want == callConfirm || want == callInput && len(ask.Decisions) == 0 && ask.Want == "boolean"
	switch {
	case r.name == "", r.name == want:
	case r.name == callConfirm && confirms:
	case r.name == callInput && slices.Contains(ask.Decisions, agent.DecisionRespond):
	case ask.Kind == agent.KindPending && r.name == subjectOf(ask.Data).Tool:
	default:
		return reply, "", wrong("it must be for " + want)
	}
	raw, err := unwrap(ask, r.response, "response")
	if err != nil {
		return reply, "", err
	}
	o, _ := foreign.ParseObject(raw)
	if reply, decided, err := foreign.Decided(ask, o); decided || err != nil {
		return reply, "", err
	}
	switch {
	case ask.Kind == agent.KindCredential:
		if secret = foreign.Secret(raw); secret == "" {
			err = wrong("it contains no secret")
		}
		return reply, secret, err
	case r.name == callConfirm || r.name == "" && want == callConfirm:
		return replyToConfirmation(ask, o, wrong)
	}
	var failure string
	if ask.Kind == agent.KindPending && len(o) == 1 && json.Unmarshal(o["error"], &failure) == nil {
		return api.Reply{Message: failure}, "", nil
	}
	reply.Value, err = unwrap(ask, raw, "result", "payload")
	if slices.Contains(ask.Decisions, agent.DecisionRespond) {
		reply.Decision = agent.DecisionRespond
	}
	return reply, "", err
}

// unwrap returns the only member of an object, if it has one of these names:
// clients wrap values that are not objects, and write JSON as text where that is
// expected. Anything else is returned unchanged, so that no other member is lost.
func unwrap(ask *perdure.AskInfo, raw json.RawMessage, names ...string) (json.RawMessage, error) {
	o, _ := foreign.ParseObject(raw)
	for _, name := range names {
		inner, there := o[name]
		if !there || len(o) != 1 {
			continue
		}
		var text string
		if json.Unmarshal(inner, &text) == nil && json.Valid([]byte(text)) {
			_, isObject := foreign.ParseObject(json.RawMessage(text))
			if isObject && name == "response" || ask.Want != "" && ask.Want != "string" {
				if err := foreign.Check([]byte(text)); err != nil {
					return nil, err
				}
				inner = json.RawMessage(text)
			}
		}
		if _, isObject := foreign.ParseObject(inner); isObject || ask.Want != "object" {
			return inner, nil
		}
	}
	return raw, nil
}

// replyToConfirmation turns a confirmation into an answer. The web interface always
// sends the arguments back: they are an edit only if they differ.
func replyToConfirmation(ask *perdure.AskInfo, o foreign.Object, wrong func(string) error) (reply api.Reply, _ string, err error) {
	var confirmed *bool
	if err := o.Decode("hint", &reply.Message); err != nil {
		return reply, "", err
	}
	if o.Decode("confirmed", &confirmed) != nil {
		return reply, "", fmt.Errorf("%w: confirmed is neither true nor false", api.ErrBody)
	}
	payload, err := o.Get("payload")
	switch {
	case err != nil:
	case confirmed == nil:
		err = wrong("confirmed is neither true nor false")
	case len(ask.Decisions) == 0 && payload != nil:
		err = wrong("it has a payload, but the question is yes or no")
	case len(ask.Decisions) == 0:
		reply.Value, _ = json.Marshal(*confirmed)
	case !*confirmed:
		reply.Decision = agent.DecisionReject
	default:
		reply.Message = ""
		reply.Decision, reply.Value, err = approveOrEdit(ask, payload, wrong)
	}
	return reply, "", err
}

// approveOrEdit tells an edit from an approval.
func approveOrEdit(ask *perdure.AskInfo, payload json.RawMessage, wrong func(string) error) (decision string, value json.RawMessage, err error) {
	shown, _ := json.Marshal(originalCall(ask.Kind, ask.ID, ask.Path, ask.Data).Args)
	var v any
	_ = json.Unmarshal(shown, &v)
	rounded, _ := json.Marshal(v)
	switch {
	case payload == nil || strict.Same(payload, shown):
		return agent.DecisionApprove, nil, nil
	case strict.Same(payload, rounded):
		err = wrong("a number in the arguments was rounded in transit; omit payload to approve the call as it was made")
	case !slices.Contains(ask.Decisions, agent.DecisionEdit):
		err = wrong("it has a payload, but the arguments of this call cannot be edited")
	}
	return agent.DecisionEdit, payload, err
}
