package script

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/llm"
)

// Reply is what a model of [New] says: reasoning, then text, then calls, each of
// which may be left out.
type Reply struct {
	When  func(*llm.Request) bool // nil: in turn, see New
	Times int                     // if positive, the reply is used only so many times

	Text      string
	Pieces    []string // instead of Text, already cut
	Reasoning string
	Calls     []llm.Call // those without an ID get one
	Chunks    int        // pieces into which Text, Reasoning and the arguments of calls are cut, at least 1

	Wait  time.Duration // before the first piece
	Delay time.Duration // between pieces

	Usage *llm.Usage // nil means estimated from the lengths
	Stop  llm.Stop   // "" means llm.StopCalls with calls, and otherwise llm.StopEnd
	Cut   bool       // the reply ends without a Stop

	Err   error // instead of the end
	After int   // pieces that come before Err
}

// Say returns a reply of text.
func Say(text string) Reply { return Reply{Text: text} }

// Call returns a reply that calls a tool, with arguments in JSON.
func Call(tool, args string) Reply {
	return Reply{Calls: []llm.Call{{Name: tool, Args: args}}}
}

// Fail returns a reply that is an error.
func Fail(err error) Reply { return Reply{Err: err} }

// deltas returns the pieces of the reply, without its end.
func (y *Reply) deltas(r *llm.Request) []llm.Delta {
	var list []llm.Delta
	part := 0
	add := func(pieces []string, piece func(string) llm.Delta) {
		from := len(list)
		for _, s := range pieces {
			if s != "" {
				d := piece(s)
				d.Part = part
				list = append(list, d)
			}
		}
		if len(list) > from {
			part++
		}
	}
	add(cut(y.Reasoning, y.Chunks), func(s string) llm.Delta { return llm.Delta{Reasoning: s} })
	text := y.Pieces
	if text == nil {
		text = cut(y.Text, y.Chunks)
	}
	add(text, func(s string) llm.Delta { return llm.Delta{Text: s} })
	ids := free(r)
	for i, call := range y.Calls {
		call.ID = cmp.Or(call.ID, fmt.Sprintf("call-%d-%d", ids, i))
		pieces := cut(call.Args, y.Chunks)
		call.Args = pieces[0]
		list = append(list, llm.Delta{Part: part, Call: &call})
		for _, s := range pieces[1:] {
			list = append(list, llm.Delta{Part: part, Call: &llm.Call{Args: s}})
		}
		part++
	}
	return list
}

// free returns the number that the ids of new calls begin with: that of the
// messages, or a higher one if a call of the request has it already, as in a
// history that was shortened.
func free(r *llm.Request) int {
	n := len(r.Messages)
	for _, msg := range r.Messages {
		for _, p := range msg.Parts {
			var used, i int
			if p.Call == nil {
				continue
			}
			if _, err := fmt.Sscanf(p.Call.ID, "call-%d-%d", &used, &i); err == nil {
				n = max(n, used+1)
			}
		}
	}
	return n
}

// cut cuts a text into at most n pieces of about the same length, at least one,
// and never inside a character.
func cut(s string, n int) []string {
	left := utf8.RuneCountInString(s)
	n = min(n, left)
	if n <= 1 {
		return []string{s}
	}
	pieces := make([]string, 0, n)
	for ; n > 0; n-- {
		runes := (left + n - 1) / n
		end := 0
		for range runes {
			_, size := utf8.DecodeRuneInString(s[end:])
			end += size
		}
		pieces = append(pieces, s[:end])
		s, left = s[end:], left-runes
	}
	return pieces
}

// play yields the reply.
func (y *Reply) play(ctx context.Context, model string, r *llm.Request, yield func(llm.Delta, error) bool) {
	list := y.deltas(r)
	usage := y.usage(r, list)
	end := llm.Delta{Usage: &usage, Stop: y.Stop}
	if end.Stop == "" {
		end.Stop = llm.StopEnd
		if len(y.Calls) > 0 {
			end.Stop = llm.StopCalls
		}
	}
	if y.Err != nil {
		list = list[:min(max(y.After, 0), len(list))]
	} else if !y.Cut {
		list = append(list, end)
	}
	wait := y.Wait
	for i, d := range list {
		if d.Stop != "" && i > 0 {
			wait = 0 // nothing new to say
		}
		if err := pause(ctx, wait); err != nil {
			yield(llm.Delta{}, err)
			return
		}
		if i == 0 {
			d.Model, d.ID = model, fmt.Sprintf("reply-%d", len(r.Messages))
		}
		if !yield(d, nil) {
			return
		}
		wait = y.Delay
	}
	if y.Err == nil {
		return
	}
	yield(llm.Delta{}, cmp.Or(pause(ctx, wait), y.Err))
}

// pause waits, or returns the context's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// usage returns the usage of the reply, estimated if it has none.
func (y *Reply) usage(r *llm.Request, list []llm.Delta) llm.Usage {
	if y.Usage != nil {
		return *y.Usage
	}
	in := len(r.System)
	for _, msg := range r.Messages {
		for _, p := range msg.Parts {
			in += len(p.Text)
			if p.Reasoning != nil {
				in += len(p.Reasoning.Text)
			}
			if p.Call != nil {
				in += len(p.Call.Name) + len(p.Call.Args)
			}
			if p.Result != nil {
				in += len(p.Result.Text)
			}
		}
	}
	for _, t := range r.Tools {
		in += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	var out, thought int
	for _, d := range list {
		out += len(d.Text) + len(d.Reasoning)
		thought += len(d.Reasoning)
		if d.Call != nil {
			out += len(d.Call.Name) + len(d.Call.Args)
		}
	}
	return llm.Usage{Input: tokens(in), Output: tokens(out), Reasoning: tokens(thought)}
}

// tokens estimates the tokens of a text by its bytes.
func tokens(n int) int64 { return int64(n+3) / 4 }

// quote shortens a text for an error.
func quote(s string) string {
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
