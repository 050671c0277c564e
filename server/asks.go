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

func (s *Server) askRoutes() {
	handle(s, api.AsksList, s.listAsks)
	handle(s, api.AsksGet, func(ctx context.Context, c *Call, in *api.OneAsk) (*perdure.AskInfo, error) {
		return c.Runtime.GetAsk(ctx, in.Ask)
	})
	handle(s, api.AsksAnswer, s.answerAsk)
	handle(s, api.AsksAnswerAll, s.answerAsks)
	handle(s, api.AsksProgress, func(ctx context.Context, c *Call, in *api.TellProgress) (*api.None, error) {
		ask, err := c.Runtime.GetAsk(ctx, in.Ask)
		if err != nil {
			return nil, err
		}
		if !c.mayAnswer(ask.Who) {
			return nil, fmt.Errorf("%w: ask %s: only those who may answer it can report its progress", perdure.ErrForbidden, in.Ask)
		}
		return nil, c.Runtime.Progress(ctx, in.Ask, in.Value, c.note(in.Reason, in.IfMatch))
	})
	handle(s, api.AsksSecret, func(ctx context.Context, c *Call, in *api.ProvideSecret) (*api.None, error) {
		if err := agent.Provide(ctx, c.Runtime, c.AskAnswer(in.Ask, api.Reply{}, in.IfMatch), in.Secret); err != nil {
			return nil, err
		}
		if ask, err := c.Runtime.GetAsk(ctx, in.Ask); err == nil {
			c.About(ask.Thread)
		}
		return nil, nil
	})
	handle(s, api.SignalsSend, func(ctx context.Context, c *Call, in *api.SendSignal) (*api.None, error) {
		return nil, c.Runtime.Signal(ctx, in.Thread, in.Name, given(in.Value), perdure.SignalOptions{Key: in.Key, By: c.Who.Subject, IfSeq: in.IfMatch, Attach: in.Attach})
	})
	handle(s, api.RulesList, func(ctx context.Context, c *Call, in *api.ListRules) (*api.RuleList, error) {
		rules, err := agent.RulesOf(c.Runtime).List(ctx, s.owner(c, in.User))
		list := &api.RuleList{Rules: some(rules)}
		return list, damage(&list.Damage, err)
	})
	handle(s, api.RulesRevoke, func(ctx context.Context, c *Call, in *api.OneRule) (*api.None, error) {
		rules := agent.RulesOf(c.Runtime)
		if c.Who.User != "" {
			own, err := rules.List(ctx, c.Who.User)
			if err != nil && !errors.Is(err, perdure.ErrCorrupt) {
				return nil, err
			}
			if !slices.ContainsFunc(own, func(r agent.Rule) bool { return r.ID == in.ID }) {
				return nil, fmt.Errorf("%w: %.80q", agent.ErrNoRule, in.ID)
			}
		}
		return nil, rules.Revoke(ctx, in.ID, c.Who.Subject)
	})
}

// given returns a value of a body as an any that is nil if there is none.
func given(v json.RawMessage) any {
	if v == nil {
		return nil
	}
	return strict.Read(v)
}

// maxOpened is how many threads with open asks a page of the inbox reads.
const maxOpened = 500

// listAsks is the inbox: it reads the threads whose summaries have open asks, one
// after the other.
func (s *Server) listAsks(ctx context.Context, c *Call, in *api.ListAsks) (*api.AskPage, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return nil, err
	}
	page := &api.AskPage{Asks: []perdure.AskInfo{}}
	if in.Thread != "" {
		t, err := c.Runtime.GetPage(ctx, in.Thread, perdure.RunPage{Limit: 1})
		if t == nil {
			return nil, err
		}
		if err := damage(&page.Damage, err); err != nil {
			return nil, err
		}
		page.Asks = append(page.Asks, c.asksOf(t, in)...)
		return page, nil
	}
	opened, size := 0, 0
	var failed error
	o := perdure.ListOptions{User: in.User, Asks: true}
	switch in.Order {
	case "", "opened":
	case "expires":
		o.Expiring = true
	default:
		return nil, api.Invalid("query order: %.40q is neither opened nor expires", in.Order)
	}
	if in.Mine {
		o.AsksOf = []string{c.Who.Subject}
		for _, g := range c.Who.Groups {
			o.AsksOf = append(o.AsksOf, "group:"+g)
		}
	}
	page.Next, err = c.list(ctx, in.After, o, func(t perdure.Summary) bool {
		thread, err := c.Runtime.GetPage(ctx, t.ID, perdure.RunPage{Limit: 1})
		switch {
		case thread != nil: // up to where it is good
			if err := damage(&page.Damage, err); err != nil {
				failed = err
				return false
			}
			asks := c.asksOf(thread, in)
			for _, a := range asks {
				size += len(a.Data) + len(a.Prompt)
			}
			page.Asks = append(page.Asks, asks...)
		case errors.Is(err, perdure.ErrNoThread), errors.Is(err, perdure.ErrErased): // since it was listed
		default:
			failed = err
			return false
		}
		opened++
		return len(page.Asks) < limit && opened < maxOpened && size < pageBytes
	})
	return page, errors.Join(failed, damage(&page.Damage, err))
}

// asksOf returns the open asks of a thread that a request selects.
func (c *Call) asksOf(t *perdure.Thread, in *api.ListAsks) []perdure.AskInfo {
	if in.User != "" && t.User != in.User {
		return nil
	}
	var asks []perdure.AskInfo
	for _, run := range t.Runs {
		if in.Flow != "" && run.Flow != in.Flow {
			continue
		}
		for _, a := range run.Asks {
			if (in.Kind == "" || a.Kind == in.Kind) && (!in.Mine || c.mayAnswer(a.Who)) {
				asks = append(asks, a)
			}
		}
	}
	return asks
}

// mayAnswer reports whether the caller may answer an ask for these people.
func (c *Call) mayAnswer(who []string) bool {
	return len(who) == 0 || slices.Contains(who, c.Who.Subject) ||
		slices.ContainsFunc(c.Who.Groups, func(g string) bool { return slices.Contains(who, "group:"+g) })
}

// AskAnswer returns a reply to an ask in the caller's name, for
// [perdure.Runtime.Answer]. If ifSeq is not 0, the thread must be at that sequence.
func (c *Call) AskAnswer(ask string, r api.Reply, ifSeq uint64) perdure.AskAnswer {
	return perdure.AskAnswer{Ask: ask, IfSeq: ifSeq, Groups: c.Who.Groups, Attach: r.Attach,
		Answer: perdure.Answer{Decision: r.Decision, Value: given(r.Value), Message: r.Message, By: c.Who.Subject}}
}

func (s *Server) answerAsk(ctx context.Context, c *Call, in *api.AnswerAsk) (*perdure.AskInfo, error) {
	if err := c.Runtime.Answer(ctx, c.AskAnswer(in.Ask, in.Reply, in.IfMatch)); err != nil {
		return nil, err
	}
	return c.Runtime.GetAsk(ctx, in.Ask)
}

func (s *Server) answerAsks(ctx context.Context, c *Call, in *api.AnswerAsks) (*api.AskList, error) {
	if len(in.Answers) == 0 {
		return nil, api.Invalid("there are no answers")
	}
	if len(in.Answers) > maxPage {
		return nil, api.Invalid("there are more than %d answers", maxPage)
	}
	if _, err := c.Runtime.GetPage(ctx, in.Thread, perdure.RunPage{Limit: 1}); err != nil {
		return nil, err
	}
	var answers []perdure.AskAnswer
	for _, a := range in.Answers {
		info, err := c.Runtime.GetAsk(ctx, a.Ask)
		if err != nil {
			return nil, err
		}
		if info.Thread != in.Thread {
			return nil, fmt.Errorf("%w: thread %s has no ask %s", perdure.ErrNoAsk, in.Thread, a.Ask)
		}
		answers = append(answers, c.AskAnswer(a.Ask, a.Reply, in.IfMatch))
	}
	if err := c.Runtime.Answer(ctx, answers...); err != nil {
		return nil, err
	}
	out := &api.AskList{Asks: []perdure.AskInfo{}}
	for _, a := range in.Answers {
		info, err := c.Runtime.GetAsk(ctx, a.Ask)
		if err != nil {
			return nil, err
		}
		out.Asks = append(out.Asks, *info)
	}
	return out, nil
}
