package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// Asks yields the open asks of all threads, by thread in order of creation. After and
// Limit apply to the first page.
func (c *Client) Asks(ctx context.Context, q api.ListAsks) iter.Seq2[perdure.AskInfo, error] {
	return func(yield func(perdure.AskInfo, error) bool) {
		var damage []string
		for {
			page, err := Do(ctx, c, api.AsksList, q)
			if err != nil {
				yield(perdure.AskInfo{}, err)
				return
			}
			for _, a := range page.Asks {
				if !yield(a, nil) {
					return
				}
			}
			damage = append(damage, page.Damage...)
			if page.Next == "" || page.Next == q.After {
				if len(damage) > 0 {
					yield(perdure.AskInfo{}, damaged(damage))
				}
				return
			}
			q.After = page.Next
		}
	}
}

// GetAsk returns an ask, open or closed, by its id.
func (c *Client) GetAsk(ctx context.Context, id string) (*perdure.AskInfo, error) {
	return Do(ctx, c, api.AsksGet, api.OneAsk{Ask: id})
}

// Answer answers asks of one thread, all or none: see [perdure.Runtime.Answer].
// The answers are recorded as given by the token's subject.
func (c *Client) Answer(ctx context.Context, answers ...perdure.AskAnswer) error {
	if len(answers) == 0 {
		return api.Invalid("no answers")
	}
	q, seq := api.AnswerAsks{}, uint64(0)
	for _, a := range answers {
		value, err := encode("the answer to "+a.Ask, a.Value)
		if err != nil {
			return err
		}
		q.Answers = append(q.Answers, api.AskReply{Ask: a.Ask, Reply: api.Reply{Decision: a.Decision, Value: value, Message: a.Message, Attach: a.Attach}})
		if seq != 0 && a.IfSeq != 0 && a.IfSeq != seq {
			return api.Invalid("the answers name the sequences %d and %d", seq, a.IfSeq)
		}
		seq = max(seq, a.IfSeq)
	}
	if len(answers) == 1 {
		first := q.Answers[0]
		_, err := again(ctx, c, api.AsksAnswer, api.AnswerAsk{OneAsk: api.OneAsk{Ask: first.Ask}, IfMatch: seq, Reply: first.Reply})
		return err
	}
	info, err := c.GetAsk(ctx, answers[0].Ask)
	if err != nil {
		return err
	}
	q.Thread, q.IfMatch = info.Thread, seq
	_, err = again(ctx, c, api.AsksAnswerAll, q)
	return err
}

// Progress records progress on an open ask.
func (c *Client) Progress(ctx context.Context, ask string, v any, n perdure.Note) error {
	value, err := encode("the progress", v)
	if err != nil {
		return err
	}
	if value == nil {
		value = []byte("null")
	}
	_, err = Do(ctx, c, api.AsksProgress, api.TellProgress{OneAsk: api.OneAsk{Ask: ask}, IfMatch: n.IfSeq, Value: value, Reason: n.Reason})
	return err
}

// Signal sends a named event to a thread.
func (c *Client) Signal(ctx context.Context, thread, name string, v any, o perdure.SignalOptions) error {
	value, err := encode(fmt.Sprintf("signal %q", name), v)
	if err != nil {
		return err
	}
	_, err = Do(ctx, c, api.SignalsSend, api.SendSignal{Thread: thread, Name: name, Key: o.Key, IfMatch: o.IfSeq, Value: value, Attach: o.Attach})
	return err
}
