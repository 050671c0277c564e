package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/llm"
)

// session is one call of an agent, as far as it has come. All of it follows
// from what is recorded.
type session struct {
	agent   *modelAgent
	visit   visit
	records []Record      // that it sees, the newest last
	spoken  []llm.Message // the same as a model reads it; nil: to be made anew

	turns    int
	usage    llm.Usage
	cost     int64
	took     time.Duration
	mistakes int            // turns in a row
	rejected map[string]int // in the run so far, by the call's hash
	escalate bool
	transfer string
	last     Record
}

// run is the agent's step: turns until it has said something.
func (a *modelAgent) run(ctx context.Context, step string, v visit) (*Result, error) {
	return composite(ctx, step, a.name, v.in, func(ctx context.Context) (*Result, error) {
		ctx = context.WithValue(ctx, belowKey{}, true)
		if before := a.Callbacks.BeforeAgent; before != nil {
			r, err := perdure.Step(ctx, "before", func(ctx context.Context) (*Result, error) { return before(ctx, v.in) })
			if err != nil || r != nil {
				return r, err
			}
		}
		r, err := a.converse(ctx, v)
		if err != nil {
			return nil, err
		}
		after := a.Callbacks.AfterAgent
		if after == nil {
			return r, nil
		}
		changed, err := perdure.Step(ctx, "after", func(ctx context.Context) (Result, error) {
			changed := *r
			err := after(ctx, &changed)
			return changed, err
		})
		return &changed, err
	})
}

// speak takes turns until the agent has said something, or hands over.
func (a *modelAgent) speak(ctx context.Context, v visit) (*Result, error) {
	s, err := a.begin(ctx, v)
	if err != nil {
		return nil, err
	}
	for done := false; !done; {
		s.turns++
		done, err = perdure.Scope(ctx, fmt.Sprintf("turn-%d", s.turns), s.turn)
		if err != nil {
			return nil, err
		}
	}
	return s.result(), nil
}

// begin records what the agent is given, and collects what it sees.
func (a *modelAgent) begin(ctx context.Context, v visit) (*session, error) {
	s := &session{agent: a, visit: v, rejected: map[string]int{}}
	here, err := perdure.Here(ctx)
	if err != nil {
		return nil, err
	}
	oldest, enough := "", false // the first record that the newest summary does not stand for
	var seen []*Record          // newest first, shared with other runs
	for r, err := range engine.ReadBackward[Record](ctx, transcriptKey, true) {
		if err != nil {
			return nil, err
		}
		own := strings.HasPrefix(r.ID, here.Run+"/") // those of the run are the newest ones
		if enough && !own {
			break
		}
		if r.Rejected != "" && own {
			s.rejected[r.Rejected]++ // by whichever agent of the run
		}
		if s.sees(*r) {
			seen = append(seen, r)
			if oldest == "" && r.Summary != nil && r.Agent == a.name {
				oldest = cmp.Or(r.Summary.Before, r.ID)
			}
		}
		enough = enough || oldest != "" && r.ID == oldest
	}
	s.records = make([]Record, 0, len(seen)+16)
	for _, r := range slices.Backward(seen) {
		own := *r
		own.Message = cloneMessage(r.Message)
		s.records = append(s.records, own)
	}
	for i, m := range v.in {
		if err := s.hear(ctx, nthName("input", i+1), m, v.from, false); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// hear records a message that comes from outside.
func (s *session) hear(ctx context.Context, step string, m llm.Message, from string, mistake bool) error {
	return s.write(ctx, step, func(ctx context.Context) (Record, error) {
		kept, err := keepMedia(ctx, m)
		return Record{Message: kept, From: from, Mistake: mistake}, err
	}, perdure.Input(m))
}

// write is a step whose result is a record of the transcript.
func (s *session) write(ctx context.Context, step string, fn func(ctx context.Context) (Record, error), opts ...perdure.StepOption) error {
	r, err := perdure.Step(ctx, step, func(ctx context.Context) (Record, error) {
		r, err := fn(ctx)
		if err != nil {
			return r, err
		}
		return s.stamp(ctx, r), transcript.AppendResult(ctx)
	}, opts...)
	if err == nil {
		s.add(r)
	}
	return err
}

// stamp says in a record whose it is.
func (s *session) stamp(ctx context.Context, r Record) Record {
	here, _ := perdure.Here(ctx) // it is a step's
	r.ID, r.Agent, r.Alone = here.Run+here.Path, s.agent.name, s.visit.alone
	if r.Talk = s.visit.talk.name; s.visit.within != "" {
		r.Talk = s.visit.within
	}
	if r.Talk == s.agent.name {
		r.Talk = ""
	}
	return r
}

// add counts a record.
func (s *session) add(r Record) {
	s.records = append(s.records, r)
	s.say(r)
	s.took += time.Duration(r.Took) * time.Millisecond
	s.cost += r.Cost
	if r.Usage != nil {
		s.usage = s.usage.Add(*r.Usage)
	}
	if r.Rejected != "" {
		s.rejected[r.Rejected]++
	}
	s.escalate = s.escalate || r.Escalate
	if r.Transfer != "" {
		s.transfer = r.Transfer
	}
}

// say adds a record to the conversation, which is not made anew in each turn.
func (s *session) say(r Record) {
	n := len(s.spoken)
	switch {
	case s.spoken == nil, len(r.Message.Parts) == 0:
	case r.Summary != nil:
		s.spoken = nil
	case r.Message.Role == llm.RoleTool && s.spoken[n-1].Role == llm.RoleTool:
		parts := s.spoken[n-1].Parts // of the calls before it, in the same message
		s.spoken[n-1].Parts = append(parts[:len(parts):len(parts)], r.Said().Parts...)
	default:
		s.spoken = append(s.spoken, r.Said())
	}
}

// checkLimits ends the agent before it asks the model more than it may.
func (s *session) checkLimits() error {
	l := s.agent.Limits
	over := func(what string, used, limit any) error {
		return perdure.Permanent(fmt.Errorf("%w: agent %q has used %v of %v %s", ErrLimit, s.agent.name, used, limit, what))
	}
	l.Turns = cmp.Or(l.Turns, 100)
	switch {
	case s.turns > l.Turns:
		return over("turns", s.turns-1, l.Turns)
	case l.Tokens > 0 && s.usage.Total() >= l.Tokens:
		return over("tokens", s.usage.Total(), l.Tokens)
	case l.Cost > 0 && s.cost >= l.Cost:
		return over("millionths of its cost", s.cost, l.Cost)
	case l.Time > 0 && s.took >= l.Time:
		return over("of its time", s.took, l.Time)
	}
	return nil
}

// turn asks the model once and does what it says. It returns true if the agent
// is done.
func (s *session) turn(ctx context.Context) (bool, error) {
	if err := s.checkLimits(); err != nil {
		return false, err
	}
	if err := s.steer(ctx); err != nil {
		return false, err
	}
	if s.agent.Context.MaxTokens > 0 && s.estimate() > s.agent.Context.MaxTokens && s.cut() > 0 {
		if err := s.compact(ctx, "compact"); err != nil {
			return false, err
		}
	}
	r, err := s.reply(ctx)
	if err != nil {
		return false, err
	}
	s.last = r
	switch {
	case r.Stop == llm.StopRefused:
		return false, perdure.Permanent(fmt.Errorf("%w: %.200s", ErrRefused, r.Message.Text()))
	case r.Over && (r.Mistake || len(r.Message.Calls()) > 0): // it cannot be asked again
		return false, fmt.Errorf("%w: agent %q, with its reply in turn %d", perdure.ErrBudget, s.agent.name, s.turns)
	}
	calls := r.Message.Calls()
	before := len(s.records)
	switch {
	case len(calls) > 0:
		if err := s.calls(ctx, calls); err != nil {
			return false, err
		}
	case !r.Mistake:
		return true, nil
	default:
		_, err := s.value(r.Message.Text())
		m := llm.User(fmt.Sprintf("Your answer does not fit the JSON Schema that it has to: %v. Answer again, with JSON only.", err))
		if err := s.hear(ctx, "correct", m, "", true); err != nil {
			return false, err
		}
	}
	return s.transfer != "", s.countMistakes(r, s.records[before:])
}

// countMistakes counts turns in a row with a mistake.
func (s *session) countMistakes(reply Record, results []Record) error {
	if !reply.Mistake && !slices.ContainsFunc(results, func(r Record) bool { return r.Mistake }) {
		s.mistakes = 0
		return nil
	}
	if s.mistakes++; s.mistakes < cmp.Or(s.agent.Limits.Mistakes, 3) {
		return nil
	}
	why := reply.Message.Text()
	for _, r := range results {
		if r.Mistake && r.Message.Role == llm.RoleTool {
			why = r.Message.Parts[0].Result.Text
		}
	}
	return perdure.Permanent(fmt.Errorf("%w: agent %q, in %d turns in a row; the last one: %.300s", ErrMistakes, s.agent.name, s.mistakes, why))
}

// steer takes what a user said while the agent was busy.
func (s *session) steer(ctx context.Context) error {
	if s.visit.alone {
		return nil // it is for the one who talks with the user
	}
	for i := range 100 {
		raw, ok, err := perdure.Take[json.RawMessage](ctx, fmt.Sprintf("steer-%d", i+1))
		if err != nil || !ok {
			return err
		}
		var in Content
		if json.Unmarshal(raw, &in) != nil {
			in = contentOf(string(raw)) // the input of a flow that takes something else
		}
		for j, m := range in {
			if err := s.hear(ctx, fmt.Sprintf("heard-%d-%d", i+1, j+1), m, "", false); err != nil {
				return err
			}
		}
	}
	return nil
}

// result returns what the agent has come to.
func (s *session) result() *Result {
	r := &Result{Agent: s.agent.name, Text: s.last.Message.Text(), Escalate: s.escalate, Turns: s.turns, Usage: s.usage, Transfer: s.transfer, Stop: s.last.Stop}
	if s.agent.Output != nil && s.transfer == "" {
		r.Value, _ = s.value(r.Text) // it was checked when it was recorded
	}
	return r
}

// reachable returns the agents that this one may hand over to.
func (s *session) reachable() map[string]Agent {
	all := maps.Clone(s.visit.talk.family)
	for _, a := range s.agent.Transfer {
		all[a.Name()] = a
	}
	delete(all, s.agent.name)
	return all
}

// value returns the JSON in a text, if it fits the output's schema.
func (s *session) value(text string) (json.RawMessage, error) {
	raw := json.RawMessage(unfence(text))
	if err := s.agent.Output.schema.Check(raw); err != nil {
		return nil, err
	}
	return raw, nil
}
