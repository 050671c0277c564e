package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// Context says what happens when a conversation grows too long for the model.
// Messages that are left out stay in the journal and in the transcript; only the
// model no longer sees them.
type Context struct {
	// Strategy is what to do; "" means nothing, and a conversation that is too
	// long ends the agent with ErrTooLong.
	Strategy Strategy
	// MaxTokens is how long the conversation may be, as estimated from the provider's
	// last count; 0 means until the provider says that it is too long.
	MaxTokens int64
	// Keep is how many of the newest messages stay as they are; 0 means 20. A
	// call is never separated from its results. If the provider says that fewer
	// messages than that are too long, about half of them stay.
	Keep int
	// Model writes the summaries; nil means the agent's own.
	Model llm.Model
	// Prompt tells that model how to write summaries; "" means the default prompt.
	Prompt string
}

// Strategy is a way to make a conversation shorter.
type Strategy string

// The strategies.
const (
	Trim      Strategy = "trim"      // the oldest messages are left out, except the task
	Summarise Strategy = "summarise" // the oldest messages become a summary
)

const summaryPrompt = "Summarise this conversation for yourself, so that you can go on with the task without it: the task, what was found out and decided, with names, numbers and places exactly as they are, what was done, and what is left to do. Write nothing else."

// compact records what stands for the oldest messages from now on.
func (s *session) compact(ctx context.Context, step string) error {
	seen := afterSummary(s.records, s.agent.name)
	cut := s.cut()
	if cut == 0 {
		cut = s.half(seen) // the provider says that these few are too long
	}
	if cut == 0 {
		return perdure.Permanent(fmt.Errorf("%w: agent %q has nothing left to leave out", ErrTooLong, s.agent.name))
	}
	summary := &Summary{Count: cut}
	if cut < len(seen) {
		summary.Before = seen[cut].ID
	}
	opts := []perdure.StepOption{perdure.Retry(perdure.RetryPolicy{Attempts: 8, Wait: time.Second})}
	if s.agent.Context.Strategy != Trim {
		opts = append(opts, describeModel(s.agent.name, s.summariser()))
	}
	return s.write(ctx, step, func(ctx context.Context) (Record, error) {
		if s.agent.Context.Strategy == Trim {
			return Record{Message: withMedia(s.trimmed(seen[:cut]), seen[:cut]), Summary: summary}, nil
		}
		return s.summarise(ctx, seen[:cut], summary)
	}, opts...)
}

// summariser returns the model that makes summaries.
func (s *session) summariser() llm.Model {
	if m := s.agent.Context.Model; m != nil {
		return m
	}
	return s.agent.model
}

// cut returns how many of the oldest messages can be left out. What stays is at
// most half of what may stay, so that this is not needed again soon.
func (s *session) cut() int {
	seen := afterSummary(s.records, s.agent.name)
	at := max(0, len(seen)-cmp.Or(s.agent.Context.Keep, 20))
	if half := s.agent.Context.MaxTokens / 2; half > 0 {
		rest := int64(0)
		for _, r := range seen[at:] {
			rest += estimateTokens(r)
		}
		for ; rest > half && at < len(seen)-1; at++ {
			rest -= estimateTokens(seen[at])
		}
	}
	at = s.whole(seen, at)
	if at == 1 && seen[0].Summary != nil {
		return 0 // only what stands for others already
	}
	return at
}

// whole moves a cut to where it parts no calls from their results and leaves out
// nothing that the model has not seen.
func (s *session) whole(seen []Record, at int) int {
	for at < len(seen) && seen[at].Message.Role == llm.RoleTool {
		at++
	}
	return min(at, s.unseen(seen))
}

// half returns about how many messages half of them are, and 0 if that would
// leave nothing.
func (s *session) half(seen []Record) int {
	at := s.whole(seen, (len(seen)+1)/2)
	if at == len(seen) || at == 1 && seen[0].Summary != nil {
		return 0
	}
	return at
}

// unseen returns where that begins which the model has not answered yet: the
// results of its last calls, with these, or what it was told since.
func (s *session) unseen(seen []Record) int {
	for i, r := range slices.Backward(seen) {
		if r.Agent != s.agent.name || r.Message.Role != llm.RoleAssistant || r.Usage == nil {
			continue
		}
		if len(r.Message.Calls()) > 0 {
			return i
		}
		return i + 1
	}
	return max(0, len(seen)-1)
}

// trimmed is what stands for messages that are left out.
func (s *session) trimmed(old []Record) string {
	task := ""
	for _, r := range old {
		if r.Message.Role != llm.RoleUser {
			continue
		}
		if task = r.Message.Text(); task != "" {
			break
		}
	}
	if rest, ok := strings.CutPrefix(task, trimmedPrefix); ok {
		_, task, _ = strings.Cut(rest, "\n")
	}
	return fmt.Sprintf("%s%d earlier messages are left out. The conversation began with:\n%s", trimmedPrefix, len(old), shorten(task, 4<<10))
}

// withMedia returns a message that stands for others: a text, and the media
// that the conversation began with, which are part of the task.
func withMedia(text string, old []Record) llm.Message {
	m := llm.User(text)
	for _, r := range old {
		if r.Message.Role == llm.RoleUser {
			for _, p := range r.Message.Parts {
				if p.Media != nil {
					m.Parts = append(m.Parts, p)
				}
			}
			break
		}
	}
	return m
}

const trimmedPrefix = "[Note] "

// summarise asks a model for a summary. It is a step.
func (s *session) summarise(ctx context.Context, old []Record, summary *Summary) (Record, error) {
	begin := time.Now()
	var b strings.Builder
	for _, r := range old {
		for _, p := range r.Said().Parts {
			switch {
			case p.Call != nil:
				fmt.Fprintf(&b, "[%s calls %s] %s\n", r.Agent, p.Call.Name, shorten(p.Call.Args, 2<<10))
			case p.Result != nil:
				fmt.Fprintf(&b, "[result of %s] %s\n", p.Result.Name, shorten(p.Result.Text, 4<<10))
			case p.Text != "":
				fmt.Fprintf(&b, "[%s] %s\n", r.Message.Role, shorten(p.Text, 8<<10))
			}
		}
	}
	req := &llm.Request{System: cmp.Or(s.agent.Context.Prompt, summaryPrompt), Messages: []llm.Message{llm.User(b.String())}}
	annotateRequest(ctx, req)
	reply, err := llm.Collect(s.summariser().Generate(ctx, req))
	if err != nil {
		return Record{}, modelError(err)
	}
	text := validText(strings.TrimSpace(reply.Message.Text()))
	if text == "" {
		return Record{}, modelError(fmt.Errorf("%w: the summary is empty", llm.ErrInterrupted))
	}
	reply.Usage = saneUsage(reply.Usage)
	r := Record{Message: withMedia("[Summary of the conversation so far]\n"+text, old), Summary: summary,
		Usage: &reply.Usage, Cost: s.agent.Price.cost(reply.Usage), Model: reply.Model, Took: time.Since(begin).Milliseconds()}
	annotateReply(ctx, reply, r.Cost)
	_, err = spend(ctx, reply.Usage, r.Cost)
	return r, err
}

// estimate returns about how many tokens the conversation has: what the
// provider counted last, and a quarter of the bytes that came since.
func (s *session) estimate() int64 {
	seen := afterSummary(s.records, s.agent.name)
	total := int64(0)
	for _, r := range slices.Backward(seen) {
		if r.Usage != nil && r.Summary == nil && r.Usage.Total() > 0 && (seen[0].Summary == nil || recordedAfter(s.records, r.ID, seen[0].ID)) {
			return total + r.Usage.Total()
		}
		total += estimateTokens(r)
	}
	return total
}

// estimateTokens returns about how many tokens a record has.
func estimateTokens(r Record) int64 {
	n := 0
	for _, p := range r.Said().Parts {
		n += len(p.Text)
		if p.Call != nil {
			n += len(p.Call.Args)
		}
		if p.Result != nil {
			n += len(p.Result.Text)
		}
	}
	return int64(n) / 4
}

// recordedAfter reports whether one record comes after another.
func recordedAfter(records []Record, id, than string) bool {
	first := slices.IndexFunc(records, func(r Record) bool { return r.ID == id || r.ID == than })
	return first >= 0 && records[first].ID != id
}

// shorten shows the beginning and the end of a long text.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head, tail := text[:limit*2/3], text[len(text)-limit/3:]
	head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
	return head + fmt.Sprintf("\n[… %d bytes are left out …]\n", len(text)-len(head)-len(tail)) + tail
}
