package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// reply asks the model. The reply is recorded before anything acts on it. A
// conversation that turns out too long is made shorter, once, as the policy
// says.
func (s *session) reply(ctx context.Context) (Record, error) {
	err := s.ask(ctx, "reply")
	if _, done := outcome(err); done && errors.Is(err, ErrTooLong) && s.agent.Context.Strategy != "" {
		if err := s.compact(ctx, "compact-again"); err != nil {
			return Record{}, err
		}
		err = s.ask(ctx, "reply-again")
	}
	if err != nil {
		return Record{}, err
	}
	return s.records[len(s.records)-1], nil
}

func (s *session) ask(ctx context.Context, step string) error {
	policy := perdure.RetryPolicy{Attempts: 8, Wait: time.Second}
	if s.agent.Retry != nil {
		policy = *s.agent.Retry
	}
	return s.write(ctx, step, s.generate, perdure.Retry(policy), perdure.Timeout(cmp.Or(s.agent.ReplyTimeout, 10*time.Minute)), describeModel(s.agent.name, s.agent.model))
}

// generate is the step in which the model is asked.
func (s *session) generate(ctx context.Context) (Record, error) {
	begin := time.Now()
	req, err := s.request(ctx)
	if err != nil {
		return Record{}, err
	}
	reply, err := s.answer(ctx, req)
	if err != nil {
		return Record{}, err
	}
	if after := s.agent.Callbacks.AfterModel; after != nil {
		if err := after(ctx, reply); err != nil {
			return Record{}, err
		}
	}
	// A callback may have made it: it is the model's, and without results.
	reply.Message.Role = llm.RoleAssistant
	reply.Message.Parts = slices.DeleteFunc(slices.Clone(reply.Message.Parts), func(p llm.Part) bool { return p.Result != nil })
	for i := range reply.Message.Parts {
		p := &reply.Message.Parts[i]
		p.Text = validText(p.Text)
		if p.Call != nil {
			p.Call.ID, p.Call.Name, p.Call.Args = validText(p.Call.ID), validText(p.Call.Name), validText(p.Call.Args)
		}
	}
	ownCalls(&reply.Message)
	kept, err := keepMedia(ctx, reply.Message)
	if err != nil {
		return Record{}, err
	}
	reply.Usage = saneUsage(reply.Usage)
	r := Record{Message: kept, Usage: &reply.Usage, Cost: s.agent.Price.cost(reply.Usage), Stop: reply.Stop, Model: reply.Model}
	annotateReply(ctx, reply, r.Cost)
	r.Took = time.Since(begin).Milliseconds()
	if r.Over, err = spend(ctx, reply.Usage, r.Cost); err != nil {
		return r, err
	}
	if len(r.Message.Calls()) > 0 || r.Stop == llm.StopRefused {
		return r, nil
	}
	text := r.Message.Text()
	if s.agent.Output == nil {
		return r, s.putOutput(ctx, text)
	}
	v, err := s.value(text)
	if r.Mistake = err != nil; r.Mistake {
		return r, nil
	}
	return r, s.putOutput(ctx, v)
}

// putOutput writes the agent's output into the state.
func (s *session) putOutput(ctx context.Context, v any) error {
	if s.agent.OutputKey == "" {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return perdure.NewState[json.RawMessage](s.agent.OutputKey).Set(ctx, raw)
}

// saneUsage returns a usage that can be counted: servers report negative and absurd
// numbers, which may not cost the reply.
func saneUsage(u llm.Usage) llm.Usage {
	limit := func(n, most int64) int64 { return min(max(n, 0), most) }
	u.Input, u.Output = limit(u.Input, math.MaxInt32), limit(u.Output, math.MaxInt32)
	u.CacheRead = limit(u.CacheRead, u.Input)
	u.CacheWrite = limit(u.CacheWrite, u.Input-u.CacheRead)
	u.Reasoning = limit(u.Reasoning, u.Output)
	return u
}

// spend counts a reply against the run's budget. One that uses it up is
// recorded all the same, since it is paid for.
func spend(ctx context.Context, u llm.Usage, cost int64) (over bool, err error) {
	for unit, n := range map[string]int64{"tokens": u.Total(), "cost": cost} {
		if n == 0 {
			continue
		}
		switch err := perdure.Spend(ctx, unit, n); {
		case errors.Is(err, perdure.ErrBudget):
			over = true
		case err != nil:
			return over, err
		}
	}
	return over, nil
}

// Delta is a piece of a reply, as [perdure.Runtime.Deltas] yields it, with the
// name of the agent whose reply it is.
type Delta struct {
	llm.Delta
	Agent string `json:"agent"`
}

// answer gets a reply from a callback or from the model, and shows it on the
// way.
func (s *session) answer(ctx context.Context, req *llm.Request) (*llm.Reply, error) {
	if before := s.agent.Callbacks.BeforeModel; before != nil {
		req.Messages = cloneMessages(req.Messages)
		if r, err := before(ctx, req); err != nil || r != nil {
			return r, err
		}
	}
	annotateRequest(ctx, req)
	var fold llm.Fold
	said := Delta{Agent: s.agent.name} // reused, since each is encoded at once
	for d, err := range s.agent.model.Generate(ctx, req) {
		if err == nil {
			err = fold.Add(d)
		}
		if err != nil {
			return nil, modelError(err)
		}
		said.Delta = d
		perdure.Delta(ctx, &said)
	}
	r, err := fold.Reply()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, modelError(err)
	}
	return r, nil
}

// cloneMessages returns messages that can be changed without changing what is recorded
// or sent later.
func cloneMessages(messages []llm.Message) []llm.Message {
	out := slices.Clone(messages)
	for i := range out {
		out[i] = cloneMessage(out[i])
	}
	return out
}

func cloneMessage(m llm.Message) llm.Message {
	m.Parts = slices.Clone(m.Parts)
	for i := range m.Parts {
		p := &m.Parts[i]
		p.Call, p.Media, p.Reasoning, p.Opaque = clonePointer(p.Call), clonePointer(p.Media), clonePointer(p.Reasoning), clonePointer(p.Opaque)
		if p.Result = clonePointer(p.Result); p.Result != nil {
			p.Result.Media = slices.Clone(p.Result.Media)
		}
	}
	return m
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// request puts together what the model is asked.
func (s *session) request(ctx context.Context) (*llm.Request, error) {
	system, err := s.agent.instruction(ctx)
	if err != nil {
		return nil, perdure.Permanent(err)
	}
	req := &llm.Request{System: system, Choice: s.agent.Choice, MaxTokens: s.agent.MaxTokens, Temperature: s.agent.Temperature, Effort: s.agent.Effort}
	reach := s.reachable()
	for _, t := range s.agent.order {
		if t.tool == transferTool.tool && len(reach) == 0 {
			continue
		}
		req.Tools = append(req.Tools, llm.Tool{Name: t.name, Description: t.description, Schema: t.schema.JSON()})
	}
	if len(reach) > 0 {
		if !slices.ContainsFunc(s.agent.order, func(t Tool) bool { return t.tool == transferTool.tool }) {
			t := transferTool
			req.Tools = append(req.Tools, llm.Tool{Name: t.name, Description: t.description, Schema: t.schema.JSON()})
		}
		var b strings.Builder
		b.WriteString("You can hand the conversation over to one of these agents with " + transferTool.name + ":")
		for _, name := range slices.Sorted(maps.Keys(reach)) {
			fmt.Fprintf(&b, "\n- %s: %s", name, reach[name].description())
		}
		req.System = strings.TrimSpace(req.System + "\n\n" + b.String())
	}
	if s.agent.Output != nil {
		req.Output = &llm.Output{Name: s.agent.name, Schema: s.agent.Output.schema.JSON()}
	}
	if s.spoken == nil {
		s.spoken = conversation(s.records, s.agent.name)
	}
	if len(s.spoken) == 0 {
		s.spoken = []llm.Message{llm.User("Begin.")} // there is no input, and providers want a message
	}
	req.Messages, err = bringMedia(ctx, s.spoken)
	return req, err
}

// unfence takes JSON out of a fence of Markdown, in which models like to put it.
func unfence(text string) string {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, "```"); ok {
		if _, body, ok := strings.Cut(rest, "\n"); ok {
			if body, ok = strings.CutSuffix(strings.TrimSpace(body), "```"); ok {
				return strings.TrimSpace(body)
			}
		}
	}
	return text
}
