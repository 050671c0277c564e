package agent

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// Record is one message of a thread's transcript, with who wrote it and what it
// cost. It is the recorded result of the step that it comes from.
type Record struct {
	ID      string      `json:"id"`    // the run and the path of the step that it comes from
	Agent   string      `json:"agent"` // the agent whose conversation it belongs to
	Message llm.Message `json:"message"`
	From    string      `json:"from,omitempty"` // of an input that is another agent's output: that agent

	Talk  string `json:"talk,omitempty"`  // the agent whose conversation it is part of, if that was handed over to Agent
	Alone bool   `json:"alone,omitempty"` // in a context of its own, which no other call of the agent sees

	// Of a reply.
	Usage *llm.Usage `json:"usage,omitempty"`
	Cost  int64      `json:"cost,omitempty"` // in millionths, see [Price]
	Stop  llm.Stop   `json:"stop,omitempty"`
	Model string     `json:"model,omitempty"`
	Over  bool       `json:"over,omitempty"` // it used up the run's budget

	// Of the result of a call.
	Args     json.RawMessage   `json:"args,omitempty"`     // the arguments it ran with, if they differ from the model's: a person edited them, see Decision, or the tool normalised them
	Decision string            `json:"decision,omitempty"` // of a person
	By       string            `json:"by,omitempty"`       // who decided
	Expired  bool              `json:"expired,omitempty"`  // nobody decided, and the default was taken
	Rejected string            `json:"rejected,omitempty"` // hash of the call that was rejected
	Mistake  bool              `json:"mistake,omitempty"`  // the call was invalid; of a reply: it does not fit; of a message: it tells the model so
	Pending  string            `json:"pending,omitempty"`  // it continues elsewhere under this ref
	File     string            `json:"file,omitempty"`     // where the whole output is
	Progress []json.RawMessage `json:"progress,omitempty"` // what the tool reported on the way
	Escalate bool              `json:"escalate,omitempty"` // see [Escalate]
	Transfer string            `json:"transfer,omitempty"` // the agent that the conversation is handed over to

	// Of a reply or a result: how long it took, in milliseconds.
	Took int64 `json:"took,omitempty"`

	Summary *Summary `json:"summary,omitempty"` // it replaces earlier ones
}

// Said returns the message as models read it. If a person edited the arguments of a
// call, the result says so, since the call itself stays as the model made it: providers
// verify what they signed, and their caches rely on it.
func (r Record) Said() llm.Message {
	m := r.Message
	if r.Decision != DecisionEdit || r.Args == nil || len(m.Parts) != 1 || m.Parts[0].Result == nil {
		return m
	}
	by := "A person"
	if r.By != "" {
		by = "A person, " + validText(r.By) + ","
	}
	p, res := m.Parts[0], *m.Parts[0].Result
	res.Text = strings.TrimSuffix(fmt.Sprintf("[%s changed the arguments before the call was made. It was made with %s. The result:]\n%s",
		by, shorten(string(r.Args), 8<<10), res.Text), "\n")
	p.Result = &res
	m.Parts = []llm.Part{p}
	return m
}

// Summary says which records a record replaces.
type Summary struct {
	Before string `json:"before"` // id of the agent's first record that it does not replace; "" if it replaces all
	Count  int    `json:"count"`  // of records
}

// transcriptKey is the key of the state under which a thread has its transcript.
const transcriptKey = "agent.messages"

var transcript = perdure.NewList[Record](transcriptKey)

// Transcript returns everything that was said on the thread, in the order of the
// journal. [perdure.Runtime.StateAt] returns the state, now or at any earlier time.
func Transcript(state map[string]json.RawMessage) ([]Record, error) {
	return readState[[]Record](state, transcriptKey, "the transcript")
}

// readState returns the value of a key of the state, zero if it has none. What
// names it in errors.
func readState[T any](state map[string]json.RawMessage, key, what string) (v T, err error) {
	if raw, ok := state[key]; ok {
		if err := json.Unmarshal(raw, &v); err != nil {
			var zero T
			return zero, fmt.Errorf("agent: %s: %w", what, err)
		}
	}
	return v, nil
}

// conversation makes messages for a model out of records, as an agent sees
// them: its own as they are, what others said as a text with their name. Calls
// that have no result, since the run was stopped, get one that says so, and
// results without a call are left out, so that providers accept it.
func conversation(records []Record, me string) []llm.Message {
	seen := afterSummary(records, me)
	out := make([]llm.Message, 0, len(seen))
	given := map[string]bool{} // what others said and the agent was given
	for _, r := range seen {
		if r.Agent == me && r.From != "" {
			given[r.Message.Text()] = true
		}
	}
	for _, r := range seen {
		m := r.Said()
		switch {
		case len(m.Parts) == 0: // providers do not take it
		case r.Agent != me && r.Mistake: // and what it was told about it
		case r.Agent != me && (r.From != "" || m.Role == llm.RoleAssistant && given[m.Text()]): // it is there already
		case r.Agent == me || m.Role == llm.RoleUser:
			out = append(out, m)
		case m.Role == llm.RoleAssistant:
			if text := m.Text(); text != "" {
				out = append(out, llm.User(fmt.Sprintf("[%s] %s", r.Agent, text)))
			}
		}
	}
	return repair(out)
}

// afterSummary leaves out what a later summary stands for, and puts the summary
// there.
func afterSummary(records []Record, me string) []Record {
	last := -1
	for i, r := range records {
		if r.Summary != nil && r.Agent == me {
			last = i
		}
	}
	out := make([]Record, 0, len(records)+1)
	if last >= 0 {
		out = append(out, records[last])
	}
	kept := last < 0
	for i, r := range records {
		if last >= 0 && (r.ID == records[last].Summary.Before || i > last) {
			kept = true
		}
		if kept && r.Summary == nil {
			out = append(out, r)
		}
	}
	return out
}

// noResult is what a model reads about a call that was cut off.
const noResult = "There is no result: the run was stopped before this call was finished. It may have happened, or not."

// repair puts the results of each message's calls behind it, one for each call,
// in their order.
func repair(messages []llm.Message) []llm.Message {
	out := make([]llm.Message, 0, len(messages)+8)
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == llm.RoleTool {
			continue // without its call
		}
		out = append(out, m)
		calls := m.Calls()
		if m.Role != llm.RoleAssistant || len(calls) == 0 {
			continue
		}
		results := map[string]llm.Part{}
		j := i + 1
		var between []llm.Message
		for ; j < len(messages) && messages[j].Role != llm.RoleAssistant; j++ {
			if messages[j].Role != llm.RoleTool {
				between = append(between, messages[j])
				continue
			}
			for _, p := range messages[j].Parts {
				if p.Result == nil {
					continue
				}
				if _, twice := results[p.Result.Call]; !twice {
					results[p.Result.Call] = p
				}
			}
		}
		answer := llm.Message{Role: llm.RoleTool}
		for _, c := range calls {
			p, ok := results[c.ID]
			if !ok {
				p = llm.Part{Result: &llm.Result{Call: c.ID, Name: c.Name, Text: noResult, Error: true}}
			}
			answer.Parts = append(answer.Parts, p)
		}
		out = append(append(out, answer), between...)
		i = j - 1
	}
	return out
}

// ownCalls gives the calls of a message ids that are unique in it, where the
// model did not.
func ownCalls(m *llm.Message) {
	seen := map[string]bool{}
	n := 0
	for i := range m.Parts {
		c := m.Parts[i].Call
		if c == nil {
			continue
		}
		for c.ID == "" || seen[c.ID] {
			n++
			c.ID = fmt.Sprintf("call_%d", n)
		}
		seen[c.ID] = true
	}
}

// validText makes a text one that JSON and providers take.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
