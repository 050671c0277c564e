package agent

import (
	"encoding/json"
	"time"

	"github.com/perdure/perdure/agent/internal/arguments"
)

// The decisions of a person about a call. Those that an [Approval] allows are
// all but DecisionAlways, unless it says otherwise. Arguments whose schema has
// more than 32 KiB cannot be edited.
const (
	DecisionApprove = "approve" // the call runs as it is
	DecisionEdit    = "edit"    // it runs with the answer's value as its arguments
	DecisionReject  = "reject"  // it does not run; the model reads the answer's message
	DecisionRespond = "respond" // it does not run; the answer's value is its result
	DecisionAlways  = "always"  // it runs, and a [Rule] is made: for exactly these arguments or, if the answer's value is a pattern (see [Rule.Args]), for all that fit it. If no rule can be made, as the ask's data says, it means DecisionApprove
)

// DecisionProvided answers an ask of kind [KindCredential]: the secret was given,
// though not in the answer; see [Provide]. The other decision is DecisionReject.
const DecisionProvided = "provided"

var allDecisions = []string{DecisionApprove, DecisionEdit, DecisionReject, DecisionRespond, DecisionAlways}

// The kinds of asks that agents open, see [perdure.AskInfo]. The data of an
// approval, of a pending call and of an unknown outcome ([perdure.KindOutcome]) is
// an object with agent, tool, call (its id) and args; a pending call also has ref,
// the others description. Where a person may decide DecisionAlways, there is also
// always: an object with flow, agent, tool, schema and user of the rule that will be
// made, and allows, which says in words what the rule will allow if the answer has no
// value. The data of a credential has credential (its name), agent and calls (the ids
// of the calls that wait for it); that of a question has choices, if the model gives
// any.
const (
	KindApproval   = "approval"   // may this call run? Decisions as above
	KindPending    = "pending"    // the result of a call that continues elsewhere, see [Pending]
	KindCredential = "credential" // a tool needs a secret, see [Credential]
	KindQuestion   = "question"   // the model asks a person, see [AskPerson]
)

// Approval says which calls of a tool need a person's decision, and whose.
type Approval struct {
	If        func(args json.RawMessage) bool // nil means every call; see ApprovalIf
	Prompt    string                          // what the person reads; "" means a text made from the tool's name and description
	Decisions []string                        // the allowed decisions; nil means approve, edit, reject and respond
	Who       []string                        // who may decide, as in perdure.Question, and report the result of a pending call or an unknown outcome; nil means anyone. Only people listed by name can make rules
	Expires   time.Duration                   // after which the default is taken; 0 means never
	Default   string                          // the decision on expiry: DecisionApprove or DecisionReject; "" means reject
}

// NeedsApproval has a person decide before each call of the tool.
func NeedsApproval() ToolOption { return WithApproval(Approval{}) }

// WithApproval has a person decide on the calls that a selects.
func WithApproval(a Approval) ToolOption { return func(t *tool) { t.approval = &a } }

// ApprovalIf has a person decide on the calls for which fn returns true. Fn must
// depend on its argument only: it is called again on resume. The arguments are
// those that the tool gets, see [Normalize]. Arguments that cannot be read need
// approval, and so do those whose names are spelled differently from A's, or
// differ from each other only in case: the tool may read them differently.
func ApprovalIf[A any](fn func(args A) bool) ToolOption {
	return func(t *tool) {
		a := Approval{}
		if t.approval != nil {
			a = *t.approval
		}
		a.If = func(raw json.RawMessage) bool {
			var args A
			return !arguments.Decode(raw, &args) || fn(args)
		}
		t.approval = &a
	}
}
