package adk

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/server/internal/foreign"
)

// The names of the calls that ask a client for something.
const (
	callConfirm    = "adk_request_confirmation"
	callInput      = "adk_request_input"
	callCredential = "adk_request_credential"
)

// view projects the events of a thread, or of one run of it from its
// beginning. Its output depends only on these, so that a replay has the same bytes
// as the stream had.
type view struct {
	app   string
	asks  map[string]string   // the name of the call of each ask
	said  map[string][]string // what agents said in each run that has not ended
	texts int                 // kept in said
}

func newView(app string) *view {
	return &view{app: app, asks: map[string]string{}, said: map[string][]string{}}
}

// event returns what a client sees of an event, nil if nothing.
func (v *view) event(e perdure.Event) *wireEvent {
	out := &wireEvent{
		ID: fmt.Sprintf("%s-%d", e.Thread, e.Seq), InvocationID: e.Run, Author: v.app,
		Timestamp: float64(e.Time.UnixMicro()) / 1e6,
		Actions:   wireActions{StateDelta: map[string]any{}, ArtifactDelta: map[string]any{}},
	}
	switch e.Kind {
	case "queued":
		out.Author, out.Content = "user", &wireContent{Role: "user", Parts: showInput(e.Value)}
	case "step":
		r, ok := recordIn(e)
		if !ok {
			return nil
		}
		v.record(out, e, r)
	case "asked":
		v.asked(out, e)
	case "answered":
		out.Author = "user"
		response := map[string]any{}
		if e.Decision != "" {
			response["decision"] = e.Decision
		}
		if e.Value != nil {
			response["result"] = e.Value
		}
		if e.Reason != "" {
			response["message"] = e.Reason
		}
		name := v.asks[e.Ask]
		if name == callConfirm && e.Decision != agent.DecisionRespond {
			response["confirmed"] = e.Decision != agent.DecisionReject
		}
		out.Content = &wireContent{Role: "user", Parts: []wirePart{{Response: &wireResponse{ID: e.Ask, Name: name, Response: response}}}}
	case "blocked":
		out.ErrorCode, out.ErrorMessage = "BLOCKED", e.Diff
	case "quarantined":
		out.ErrorCode, out.ErrorMessage = "QUARANTINED", "the run ended too many workers; a person has to look at it"
	case "suspended":
		if e.Error == "" {
			return nil
		}
		out.ErrorCode, out.ErrorMessage = "BRANCH_FAILED", e.Error
	case "ended":
		v.ended(out, e)
	default:
		return nil
	}
	return out
}

// recordIn returns the message that a step has recorded, if any.
func recordIn(e perdure.Event) (r agent.Record, ok bool) {
	if e.Error != "" || !bytes.HasPrefix(e.Value, []byte("{")) || json.Unmarshal(e.Value, &r) != nil {
		return r, false
	}
	// What the agent is given is the user's, or another agent's, and is there
	// already; a summary stands for what is.
	ok = r.ID != "" && strings.HasSuffix(r.ID, e.Path) && r.Agent != "" && r.Summary == nil &&
		(r.Message.Role == llm.RoleAssistant || r.Message.Role == llm.RoleTool)
	return r, ok
}

// record shows a reply of a model, or the result of a tool.
func (v *view) record(out *wireEvent, e perdure.Event, r agent.Record) {
	out.Author = r.Agent
	out.Actions.Transfer, out.Actions.Escalate = r.Transfer, r.Escalate
	out.Content = &wireContent{Role: "model", Parts: showParts(r.Message.Parts)}
	if r.Message.Role == llm.RoleTool {
		out.Content.Role = "user"
		return
	}
	if text := r.Message.Text(); text != "" && v.texts < 1<<20 {
		v.texts += len(text)
		v.said[e.Run] = append(v.said[e.Run], text)
	}
	out.ModelVersion = r.Model
	reasons := map[llm.Stop]string{llm.StopLength: "MAX_TOKENS", llm.StopRefused: "SAFETY", llm.StopOther: "OTHER"}
	out.FinishReason = cmp.Or(reasons[r.Stop], "STOP")
	if u := r.Usage; u != nil {
		out.Usage = &wireUsage{Prompt: u.Input, Candidates: u.Output, Total: u.Total(), Cached: u.CacheRead, Thoughts: u.Reasoning}
	}
}

// asked shows an ask as the call of a function that takes long: the client's
// response to it is the answer.
func (v *view) asked(out *wireEvent, e perdure.Event) {
	data := subjectOf(e.Value)
	name := callName(e.AskKind, e.Decisions)
	v.asks[e.Ask] = name
	if data.Agent != "" && (e.AskKind == agent.KindApproval || e.AskKind == agent.KindPending || e.AskKind == agent.KindCredential) {
		out.Author = data.Agent
	}
	var args any
	switch name {
	case callConfirm:
		confirm := wireConfirmation{Hint: e.Name}
		original := originalCall(e.AskKind, e.Ask, e.Path, e.Value)
		out.Actions.Confirmations = map[string]wireConfirmation{original.ID: confirm}
		args = map[string]any{"originalFunctionCall": original, "toolConfirmation": confirm}
	case callCredential:
		args = map[string]any{"functionCallId": e.Ask, "authConfig": map[string]any{"credentialKey": data.Credential}, "message": e.Name}
	case callInput:
		input := map[string]any{"interruptId": e.Ask, "message": e.Name}
		if e.Value != nil {
			input["payload"] = e.Value
		}
		if len(e.Decisions) > 0 {
			input["decisions"] = e.Decisions
		}
		args = input
	}
	out.LongRunning = []string{e.Ask}
	out.Content = &wireContent{Role: "model", Parts: []wirePart{{Call: &wireCall{ID: e.Ask, Name: name, Args: args}}}}
}

// askSubject is what an ask of an agent is about.
type askSubject struct {
	Agent, Tool, Call, Credential string
	Args                          json.RawMessage
}

// subjectOf reads the data of an ask, which can be anything if a flow asks.
func subjectOf(data json.RawMessage) (of askSubject) {
	_ = json.Unmarshal(data, &of)
	return of
}

// originalCall returns the call that is to be confirmed.
func originalCall(kind, ask, path string, data json.RawMessage) wireCall {
	if of := subjectOf(data); kind == agent.KindApproval && of.Tool != "" {
		return wireCall{ID: of.Call, Name: of.Tool, Args: objectOrEmpty(of.Args)}
	}
	return wireCall{ID: ask, Name: foreign.LastName(path), Args: objectOrEmpty(data)}
}

// callName returns the name of the call that an ask is shown as. It is never a
// tool's own: that call is already in the reply of the model that made it.
func callName(kind string, decisions []string) string {
	switch {
	case kind == agent.KindCredential:
		return callCredential
	case slices.Contains(decisions, agent.DecisionApprove):
		return callConfirm
	}
	return callInput
}

// ended shows the end of a run, with its output if nobody has said it. The
// output is a message then and has no member of its own: the web interface shows
// both.
func (v *view) ended(out *wireEvent, e perdure.Event) {
	out.TurnComplete, out.Actions.EndOfAgent = true, true
	said := v.said[e.Run]
	for _, text := range said {
		v.texts -= len(text)
	}
	delete(v.said, e.Run)
	switch e.Status {
	case perdure.Failed:
		out.ErrorCode, out.ErrorMessage = "FAILED", e.Error
		return
	case perdure.Cancelled:
		out.ErrorCode, out.ErrorMessage = "CANCELLED", strings.TrimSpace("the run was cancelled "+e.Reason)
		return
	}
	text := textOf(e.Value)
	if text == "" || text == "null" || slices.ContainsFunc(said, func(s string) bool { return sameText(s, text) }) {
		return
	}
	out.Content = &wireContent{Role: "model", Parts: []wirePart{{Text: text}}}
}

// sameText reports whether two texts are equal, or the same JSON except for white
// space.
func sameText(a, b string) bool {
	if a == b {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, []byte(a)) == nil && json.Compact(&y, []byte(b)) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// textOf returns a JSON text as it is, and anything else as JSON.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// objectOrEmpty returns JSON unchanged if it is an object, or else an empty object.
func objectOrEmpty(raw json.RawMessage) any {
	raw = bytes.TrimSpace(raw)
	if !bytes.HasPrefix(raw, []byte("{")) || !json.Valid(raw) {
		return struct{}{}
	}
	return raw
}
