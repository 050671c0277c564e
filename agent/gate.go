package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/agent/internal/arguments"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/llm"
)

// decision is what is to happen with a call.
type decision struct {
	args   json.RawMessage // with which it runs
	record Record          // what is known about the decision
	out    *Output         // its result, if it does not run
}

// decide lets a person decide on a call, if the tool says so. The ask carries
// the hash of exactly this call: its place, tool and arguments.
func (s *session) decide(ctx context.Context, t Tool, c llm.Call, d decision) (decision, error) {
	a, args := t.approval, d.args
	if a == nil || a.If != nil && !a.If(args) {
		return d, nil
	}
	same := callHash(t.name, args)
	allowed := a.Decisions
	if allowed == nil {
		allowed = []string{DecisionApprove, DecisionEdit, DecisionReject, DecisionRespond}
	}
	offer := Rule{Agent: s.agent.name, Tool: t.name, Schema: t.Digest(), Exact: true}
	always := slices.Contains(allowed, DecisionAlways)
	if always {
		if ruled, err := s.applyRule(ctx, t, offer, &d); err != nil || ruled {
			return d, err
		}
	}
	here, err := perdure.Here(ctx)
	if err != nil {
		return d, err
	}
	data := callData{Agent: s.agent.name, Tool: t.name, Description: t.description, Call: c.ID, Args: args}
	if always {
		offer.User, offer.Flow = here.User, here.Flow
		data.Always = &alwaysData{offer.Agent, offer.Describe(), offer.Flow, offer.Schema, offer.Tool, offer.User}
		named := slices.DeleteFunc(slices.Clone(a.Who), journal.IsGroup)
		if _, err := arguments.Exact(args); err != nil {
			data.Always.Allows = "nothing but this call: " + err.Error()
		} else if len(a.Who) > 0 && len(named) == 0 {
			data.Always.Allows = "nothing but this call: only people whom the approval names make rules, and it names groups"
		} else if len(a.Who) > len(named) {
			data.Always.Allows += fmt.Sprintf("; from others than %s nothing but this call", strings.Join(named, ", "))
		}
	}
	prompt := cmp.Or(a.Prompt, fmt.Sprintf("%s wants to call %s. %s", s.agent.name, t.name, shorten(t.description, 1000)))
	q := perdure.Question{
		Kind: KindApproval, Prompt: prompt, Decisions: allowed, Who: a.Who, Expires: a.Expires,
		Guards: callHash(here.Path, c.ID, same), Allows: []string{stepRun, stepResult}, Data: data, Schemas: map[string]json.RawMessage{},
	}
	if len(t.schema.JSON()) > maxEditSchema {
		q.Decisions = slices.DeleteFunc(slices.Clone(allowed), func(d string) bool { return d == DecisionEdit })
		allowed = q.Decisions
	}
	for _, decision := range allowed {
		switch decision {
		case DecisionEdit:
			q.Schemas[decision] = t.schema.JSON()
		case DecisionAlways:
			q.Schemas[decision] = json.RawMessage(ruleSchema)
		case DecisionApprove, DecisionReject:
			q.Schemas[decision] = json.RawMessage(`{"type":"null"}`)
		}
	}
	if a.Expires > 0 {
		q.Default = &perdure.Answer{Decision: DecisionReject}
		if a.Default == DecisionApprove {
			q.Default = &perdure.Answer{Decision: DecisionApprove}
		}
		if !slices.Contains(allowed, q.Default.Decision) {
			q.Decisions = append(slices.Clone(allowed), q.Default.Decision)
		}
	}
	// The name holds the hash, so that an answer can never be that of another
	// call in the same place.
	answer, err := perdure.Ask[perdure.Answer](ctx, "approve-"+same[:12], q)
	if err != nil {
		return d, err
	}
	return s.decided(ctx, t, same, answer, d)
}

// maxEditSchema is how large the schema of a tool may be whose arguments a
// person can edit: it is part of the question.
const maxEditSchema = 32 << 10

// decided follows a person's decision.
func (s *session) decided(ctx context.Context, t Tool, same string, answer perdure.Answer, d decision) (decision, error) {
	value, _ := answer.Value.(json.RawMessage)
	d.record.Decision, d.record.By, d.record.Expired = answer.Decision, answer.By, answer.Expired
	switch answer.Decision {
	case DecisionApprove:
	case DecisionAlways:
		rule := Rule{Agent: s.agent.name, Tool: t.name, Schema: t.Digest(), Args: value, Who: t.approval.Who, By: answer.By}
		if value == nil || string(value) == "null" {
			rule.Args, rule.Exact = d.args, true
		}
		_, err := perdure.Step(ctx, "allow", func(ctx context.Context) (bool, error) {
			return true, makeRule(ctx, rule)
		}, perdure.Retry(perdure.RetryPolicy{}))
		if _, done := outcome(err); done && errors.Is(err, ErrRule) {
			err = nil // the call is approved all the same; that there is no rule is on record
		}
		return d, err
	case DecisionEdit:
		args, _, err := t.arguments(string(value))
		if err != nil {
			d.record.Args = nil // it was made with none
			d.out = &Output{Error: true, Text: fmt.Sprintf("The call was not made: %s edited its arguments, and they are wrong: %v.", personName(answer.By), err)}
			return d, nil
		}
		if bytes.Equal(args, d.args) {
			d.record.Decision = DecisionApprove // nothing was changed
			return d, nil
		}
		d.args, d.record.Args = args, args
	case DecisionReject:
		d.record.Rejected = same
		if one, err := arguments.Exact(d.args); err == nil { // the same however its numbers are written, as for rules
			d.record.Rejected = callHash(t.name, one)
		}
		text := fmt.Sprintf("The call was rejected by %s and was not made.", personName(answer.By))
		switch {
		case answer.Expired:
			text = "The call was not made: nobody approved it in time."
		case answer.Message != "":
			text = fmt.Sprintf("The call was rejected by %s and was not made: %s", personName(answer.By), validText(answer.Message))
		}
		d.out = &Output{Error: true, Text: text + "\nDo not make the same call again."}
	case DecisionRespond:
		out := responseOf(value)
		d.out = &out
	default:
		return d, perdure.Permanent(fmt.Errorf("%w: the decision %q on %s", ErrOption, answer.Decision, t.name))
	}
	return d, nil
}

func personName(by string) string { return cmp.Or(by, "a person") }

// applyRule looks whether a rule allows the call; each use is an event.
func (s *session) applyRule(ctx context.Context, t Tool, like Rule, d *decision) (bool, error) {
	r, err := perdure.Step(ctx, "rules", func(ctx context.Context) (*Rule, error) { return findRule(ctx, like, d.args, t.approval.Who...) },
		perdure.Retry(perdure.RetryPolicy{}), perdure.Allows(stepRun, stepResult))
	if err != nil || r == nil {
		return false, err
	}
	d.record.Decision, d.record.By = DecisionAlways, r.By
	return true, perdure.Emit(ctx, "rule-used", ruleUsed{Args: d.args, By: r.By, Rule: r.ID, Tool: t.name})
}

type ruleUsed struct {
	Args json.RawMessage `json:"args"`
	By   string          `json:"by"`
	Rule string          `json:"rule"`
	Tool string          `json:"tool"`
}

// callData is what a question shows of a call: the arguments as they are, since
// a map would round large numbers.
type callData struct {
	Agent       string          `json:"agent"`
	Always      *alwaysData     `json:"always,omitempty"`
	Args        json.RawMessage `json:"args"`
	Call        string          `json:"call"`
	Description string          `json:"description,omitempty"`
	Ref         string          `json:"ref,omitempty"`
	Tool        string          `json:"tool"`
}

// alwaysData is the rule that the decision always makes, and what it allows.
type alwaysData struct {
	Agent  string `json:"agent"`
	Allows string `json:"allows"`
	Flow   string `json:"flow"`
	Schema string `json:"schema"`
	Tool   string `json:"tool"`
	User   string `json:"user"`
}

// callHash returns a hash of texts that tells them apart.
func callHash(texts ...any) string {
	h := sha256.New()
	for _, t := range texts {
		s := fmt.Sprintf("%s", t)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// missingCredentials returns those that calls need and that are not there.
func (s *session) missingCredentials(ctx context.Context, calls []llm.Call) (map[string]bool, error) {
	needs := map[string]bool{}
	for _, c := range calls {
		for _, n := range s.agent.tools[c.Name].wants() {
			needs[n.Name] = true
		}
	}
	if len(needs) == 0 {
		return nil, nil
	}
	return perdure.Step(ctx, "credentials", func(ctx context.Context) (map[string]bool, error) {
		missing := map[string]bool{}
		for name := range needs {
			there, err := opens(ctx, name)
			if err != nil {
				return nil, err
			}
			if !there {
				missing[name] = true
			}
		}
		return missing, nil
	}, perdure.Retry(perdure.RetryPolicy{}))
}

// opens reports whether a credential is there. One that cannot be opened is an error
// now, so that no call begins that would fail for it.
func opens(ctx context.Context, name string) (bool, error) {
	err := scrub.Guard(ctx, func(ctx context.Context, _ *scrub.Set) error {
		_, err := credentials.Secret(ctx, name)
		return err
	})
	if errors.Is(err, credentials.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// askCredential asks for a credential, once for all calls that need it. It
// returns why there is none, "" if it is there.
func (s *session) askCredential(ctx context.Context, calls []llm.Call, name string) (string, error) {
	need := Credential{Name: name}
	var waiting []string
	for _, c := range calls {
		for _, n := range s.agent.tools[c.Name].wants() {
			if n.Name != name {
				continue
			}
			waiting = append(waiting, c.ID)
			may := n.Who
			if len(need.Who) > 0 && len(may) > 0 { // those who may give it to all of them
				may = slices.DeleteFunc(slices.Clone(may), func(name string) bool { return !slices.Contains(need.Who, name) })
				if len(may) == 0 {
					return fmt.Sprintf("nobody may give the credential %q to all tools that need it here; call them one after the other.", name), nil
				}
			} else if len(may) == 0 {
				may = need.Who
			}
			need, need.Who = n, may
		}
	}
	need.Prompt = cmp.Or(need.Prompt, fmt.Sprintf("%s needs the credential %q.", s.agent.name, name))
	q := perdure.Question{
		Kind: KindCredential, Prompt: need.Prompt, Who: need.Who,
		Decisions: []string{DecisionProvided, DecisionReject},
		Schema:    json.RawMessage(`{"type":"null"}`), // the secret itself never comes this way
		Data:      map[string]any{"credential": name, "agent": s.agent.name, "calls": slices.Compact(waiting)},
	}
	for n := 1; ; n++ {
		a, err := perdure.Ask[perdure.Answer](ctx, nthName("provide", n), q)
		if err != nil {
			return "", err
		}
		if a.Decision != DecisionProvided {
			return fmt.Sprintf("%s refused to give the credential %q. %s", personName(a.By), name, validText(a.Message)), nil
		}
		there, err := perdure.Step(ctx, nthName("there", n), func(ctx context.Context) (bool, error) { return opens(ctx, name) },
			perdure.Retry(perdure.RetryPolicy{}), perdure.Added())
		if err != nil || there {
			return "", err
		}
		q.Prompt = "It was said to be provided, and it is not there. " + need.Prompt
	}
}

// nthName names a verb that comes again in its frame.
func nthName(name string, n int) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, n)
}
