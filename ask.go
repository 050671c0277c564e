package perdure

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
)

// Question is what an ask asks.
type Question struct {
	Kind      string                     // what kind of ask it is, for those who list them: "approval", "input", …
	Prompt    string                     // what the person reads
	Data      any                        // what the person needs to see
	Schema    json.RawMessage            // JSON Schema of the answer's value; needs Options.Validator
	Schemas   map[string]json.RawMessage // the same by decision, in place of Schema
	Decisions []string                   // the decisions that are allowed; an answer names one of them
	Guards    string                     // hash of the call that the answer allows; kept and shown, not checked here
	Allows    []string                   // names of the steps in the same frame that the answer is about; empty: any. In a fork the answer counts once one of them has its outcome, see Fork
	Who       []string                   // who may answer: names, for the answer's By, and group:NAME, for the Groups that By is in; empty: anyone
	Expires   time.Duration              // after which the ask is over, counted from when it is asked; 0: never
	Default   *Answer                    // the answer then; nil: ErrExpired
}

// Answer is the answer of an ask. Value is JSON, or anything that encodes to
// it when the answer is given.
type Answer struct {
	Decision string    `json:"decision,omitempty"` // one of the question's Decisions, "" if it has none
	Value    any       `json:"value,omitempty"`    // what Ask returns
	Message  string    `json:"message,omitempty"`  // a remark to it
	By       string    `json:"by,omitempty"`       // who gave it, as the caller says
	Expired  bool      `json:"expired,omitempty"`  // nobody answered: it is the default; set by the runtime
	Time     time.Time `json:"time,omitzero"`      // set by the runtime
}

// Ask suspends the run until the question is answered, and returns the
// answer's value. The value has to fit T: Runtime.Answer refuses one that is of
// another kind of JSON, and one that does not fit otherwise blocks the run. Types
// that read JSON themselves take any kind, but for time.Time. Ask[Answer] returns the whole answer, with the decision
// and who took it; its Value is a json.RawMessage then.
//
// The question is recorded when it is asked; another one in the same place
// later changes nothing. Without an answer in time Ask returns the default, or
// ErrExpired.
func Ask[T any](ctx context.Context, name string, q Question) (T, error) {
	var zero T
	whole := reflect.TypeFor[T]() == reflect.TypeFor[Answer]()
	want := ""
	if !whole {
		want = exact.KindOf(reflect.TypeFor[T]())
	}
	n, raw, err := engine.Ask(ctx, name, q.inner(), want)
	if err != nil {
		return zero, err
	}
	if whole {
		a := Answer{Decision: n.Answer.Decision, Message: n.Answer.Message, By: n.Answer.By,
			Expired: n.Expired, Time: time.UnixMicro(n.Time).UTC()}
		if raw != nil {
			a.Value = raw
		}
		return any(a).(T), nil
	}
	return engine.RecordedAs[T](ctx, "the answer of the ask", name, raw)
}

// inner returns the question as the engine takes it.
func (q Question) inner() engine.Question {
	return engine.Question{Kind: q.Kind, Prompt: q.Prompt, Data: q.Data, Schema: q.Schema, Schemas: q.Schemas, Decisions: q.Decisions,
		Guards: q.Guards, Allows: q.Allows, Who: q.Who, Expires: q.Expires, Default: (*engine.Answer)(q.Default)}
}
