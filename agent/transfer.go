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
	return s.conclude(ctx, c, Record{Transfer: args.Agent}, Output{Text: "The conversation is handed over to " + args.Agent + "."})
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

// handOver lets other agents go on with the conversation, one after the other,
// until one of them has an answer.
func (s *session) handOver(ctx context.Context, r *Result) (*Result, error) {
	family := map[string]Agent{s.name: s.modelAgent}
	maps.Copy(family, s.reachable())
	said := s.records
	usage, escalate, turns := r.Usage, r.Escalate, r.Turns
	for n := 1; r.Transfer != ""; n++ {
		if n > maxHandovers {
			return nil, perdure.Permanent(fmt.Errorf("%w: agent %q: the conversation was handed over %d times", ErrLimit, s.name, maxHandovers))
		}
		next := family[r.Transfer]
		if next == nil {
			return nil, perdure.Permanent(fmt.Errorf("%w: there is no agent %q to hand over to", ErrOption, r.Transfer))
		}
		if m, ok := next.(*modelAgent); ok {
			for _, a := range m.Options.Transfer {
				if family[a.Name()] == nil {
					family[a.Name()] = a
				}
			}
		}
		var err error
		v := visit{before: said, family: family, chained: true, alone: s.alone}
		if len(said) == 0 {
			v.before = []Record{}
		}
		if r, err = next.run(ctx, fmt.Sprintf("handover-%d-%s", n, next.Name()), v); err != nil {
			return nil, err
		}
		usage, escalate, turns = usage.Add(r.Usage), escalate || r.Escalate, turns+r.Turns
		if said, err = s.everything(ctx, said); err != nil {
			return nil, err
		}
	}
	out := *r
	out.Usage, out.Escalate, out.Turns = usage, escalate, turns
	return &out, nil
}

// everything returns what was said, with what came to the transcript since.
func (s *session) everything(ctx context.Context, said []Record) ([]Record, error) {
	all, err := transcript.Get(ctx)
	if err != nil {
		return nil, err
	}
	here, err := perdure.Here(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, r := range said {
		seen[r.ID] = true
	}
	for _, r := range all {
		rest, inside := strings.CutPrefix(r.ID, here.Run+here.Path+"/handover-")
		if inside && !seen[r.ID] && !inTool.MatchString(rest) {
			said = append(said, r)
		}
	}
	return said, nil
}

// inTool matches the paths of what agents do that a tool calls: they have
// conversations of their own.
var inTool = regexp.MustCompile(`/turn-[0-9]+/(serial[^/]*/)?[0-9]+-[^/]*/run/`)
