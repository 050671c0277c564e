package agent

import (
	"encoding/json"

	"github.com/perdure/perdure/agent/internal/arguments"
)

// Normalize brings the arguments of a tool into the form in which it uses them:
// "//notes/a" becomes "/notes/a". Everything that looks at a call sees that form:
// predicates, the person who is asked, rules, callbacks and the function. Edited
// arguments are normalised too. Without it a call can be spelled so that a
// predicate does not recognise what the tool will do.
//
// Fn must depend on its argument only: it is called again on resume. Its error is
// reported to the model as wrong arguments. What it returns must fit the tool's
// schema. If the option is given twice, both apply, in order.
func Normalize[A any](fn func(args A) (A, error)) ToolOption {
	return func(t *tool) {
		before := t.normal
		t.normal = func(raw json.RawMessage) (json.RawMessage, error) {
			if before != nil {
				var err error
				if raw, err = before(raw); err != nil {
					return nil, err
				}
			}
			var args A
			if err := json.Unmarshal(raw, &args); err != nil {
				return nil, err
			}
			old, err := json.Marshal(args)
			if err != nil {
				return nil, err
			}
			if args, err = fn(args); err != nil {
				return nil, err
			}
			return arguments.Change(raw, old, args)
		}
	}
}
