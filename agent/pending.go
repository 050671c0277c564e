package agent

import (
	"encoding/json"
	"errors"
)

// Pending is the error that a tool's function returns when the call continues
// elsewhere: a job was started, a mail was sent. The run is suspended with an ask
// of kind [KindPending] whose data has the ref, or the step's key if that is
// empty. [perdure.Runtime.Progress] reports progress, and the value of
// [perdure.Runtime.Answer] is the call's result, hours later and from any
// process. An answer with a message and no value means failure. If the tool has
// an [Approval] with a Who, only those may answer.
func Pending(ref string) error { return &pendingError{ref} }

type pendingError struct{ ref string }

func (p *pendingError) Error() string { return "agent: the call is pending as " + p.ref }

// pendingRef returns the ref of an error that says that a call is pending.
func pendingRef(err error) (string, bool) {
	p, ok := errors.AsType[*pendingError](err)
	if !ok {
		return "", false
	}
	return p.ref, true
}

// responseOf makes a person's or a system's value the output of a call: a text
// as it is, anything else as JSON.
func responseOf(raw json.RawMessage) Output {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return Output{Text: text}
	}
	return Output{Text: string(raw)}
}
