package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

type transferArgs struct {
	Agent string `json:"agent" jsonschema:"name of the agent"`
}

// transferTool is how a model hands over. The agent acts on it by itself.
var transferTool = NewTool("transfer_to_agent", "Hands the conversation over to another agent, who answers from then on.",
	func(context.Context, transferArgs) (string, error) { return "", nil })

// transferCall records that the conversation is handed over.
func (s *session) transferCall(ctx context.Context, c llm.Call) (Record, error) {
	reach := s.reachable()
	raw, _, err := transferTool.arguments(c.Args)
	var args transferArgs
	if err == nil {
		err = json.Unmarshal(raw, &args)
	}
	if err == nil {
		err = s.firstTransfer(c)
	}
	if err == nil && reach[args.Agent] == nil {
		err = fmt.Errorf("there is no agent %q to hand over to; there are: %s", args.Agent, strings.Join(slices.Sorted(maps.Keys(reach)), ", "))
	}
	if err != nil {
		return s.conclude(ctx, c, Record{Mistake: true}, Output{Error: true, Text: fmt.Sprintf("The conversation was not handed over: %v.", err)})
	}
	return perdure.Step(ctx, stepResult, func(ctx context.Context) (Record, error) {
		if _, ok := reach[args.Agent].(*modelAgent); ok {
			if err := s.visit.talk.keep(ctx, args.Agent); err != nil {
				return Record{}, err
			}
		}
		return s.finish(ctx, s.agent.tools[c.Name], c, Record{Transfer: args.Agent}, Output{Text: "The conversation is handed over to " + args.Agent + "."})
	})
}

// firstTransfer returns an error if a call before this one in its message hands
// over already.
func (s *session) firstTransfer(c llm.Call) error {
	for _, other := range s.last.Message.Calls() {
		switch {
		case other.ID == c.ID:
			return nil
		case other.Name == c.Name:
			return errors.New("another call of the same message hands it over")
		}
	}
	return nil
}

// maxHandovers is how often a conversation may be handed over in one run of an
// agent.
const maxHandovers = 20

// talk is a conversation, which agents hand over to each other.
type talk struct {
	name   string           // of the agent that it began with
	at     string           // the run and path of that agent's step
	kept   bool             // who holds it is kept for the thread's next run
	family map[string]Agent // to whom it can be handed over, and who has it
	via    []string         // who had it, besides the first
}

// inTool matches the paths of what agents do that a tool calls: they have
// conversations of their own.
var inTool = regexp.MustCompile(`/turn-[0-9]+/(serial[^/]*/)?[0-9]+-[^/]*/run/`)

// here reports whether a record comes from this call of the agents.
func (t *talk) here(r Record) bool {
	rest, inside := strings.CutPrefix(r.ID, t.at+"/")
	return inside && !inTool.MatchString("/"+rest)
}

// has reports whether a record is part of the conversation, in whichever run.
func (t *talk) has(r Record) bool {
	return t.here(r) || !r.Alone && (r.Talk == t.name || r.Talk == "" && r.Agent == t.name)
}

// sees reports whether a record is part of what the agent knows.
func (s *session) sees(r Record) bool {
	switch {
	case s.visit.talk.here(r):
		return true
	case r.Alone || s.visit.alone || s.agent.History == HistoryNone:
		return false
	}
	return s.agent.History == HistoryThread || r.Agent == s.agent.name || s.visit.talk.has(r)
}

// joins notes that an agent has the conversation: it brings those along whom it
// may hand over to.
func (t *talk) joins(a Agent) {
	if a.Name() != t.name && !slices.Contains(t.via, a.Name()) {
		t.via = append(t.via, a.Name())
	}
	if m, ok := a.(*modelAgent); ok {
		for _, other := range m.Options.Transfer {
			if t.family[other.Name()] == nil {
				t.family[other.Name()] = other
			}
		}
	}
}

// takeOver gives an agent without a conversation of its own what a user said
// last in the one that it takes over.
func (v *visit) takeOver(ctx context.Context) error {
	if v.talk == nil {
		return nil
	}
	t := v.talk
	v.talk, v.root, v.within = nil, false, t.name
	if len(v.in) > 0 {
		return nil
	}
	all, err := transcript.Get(ctx)
	if err != nil {
		return err
	}
	said := ""
	for _, r := range all {
		if m := r.Message; m.Role == llm.RoleUser && m.Text() != "" && !r.Mistake && r.Summary == nil && (t.here(r) || !v.alone && t.has(r)) {
			said = m.Text()
		}
	}
	v.in = Content{llm.User(said)}
	return nil
}

// converse lets the agent answer, or, if the conversation is this one's, whoever
// holds it, and then those whom it is handed over to, until one of them has an
// answer.
func (a *modelAgent) converse(ctx context.Context, v visit) (*Result, error) {
	if v.talk != nil {
		return a.speak(ctx, v) // whoever called it does the handing over
	}
	here, err := perdure.Here(ctx)
	if err != nil {
		return nil, err
	}
	t := &talk{name: a.name, at: here.Run + here.Path, kept: v.root && !a.Return, family: map[string]Agent{a.name: a}}
	t.joins(a)
	n, next, in := 0, "", v.in
	total := new(Result)
	if next, err = t.holder(ctx); err != nil {
		return nil, err
	}
	if next == "" {
		v.talk = t
		if total, err = a.speak(ctx, v); err != nil || total.Transfer == "" {
			return total, err
		}
		n, next, in = 1, total.Transfer, nil
	}
	for ; ; n++ {
		if n > maxHandovers {
			return nil, perdure.Permanent(fmt.Errorf("%w: agent %q: the conversation was handed over %d times", ErrLimit, a.name, maxHandovers))
		}
		to := t.family[next]
		if to == nil {
			return nil, perdure.Permanent(fmt.Errorf("%w: there is no agent %q to hand over to", ErrOption, next))
		}
		t.joins(to)
		r, err := to.run(ctx, fmt.Sprintf("handover-%d-%s", n, to.Name()), visit{in: in, talk: t, alone: v.alone, within: v.within})
		if err != nil {
			return nil, err
		}
		usage, escalate, turns := total.Usage.Add(r.Usage), total.Escalate || r.Escalate, total.Turns+r.Turns
		out := *r
		total = &out
		total.Usage, total.Escalate, total.Turns = usage, escalate, turns
		if next, in = r.Transfer, nil; next == "" {
			return total, nil
		}
	}
}
