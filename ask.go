package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Question is the question that [Ask] puts to a person.
type Question struct {
	Kind      string                     // kind of ask, for lists: "approval", "input", …
	Prompt    string                     // what the person reads
	Data      any                        // what the person needs to see
	Schema    json.RawMessage            // JSON Schema of the answer's value; needs Options.Validator
	Schemas   map[string]json.RawMessage // the same by decision, in place of Schema
	Decisions []string                   // the allowed decisions; an answer names one of them
	Guards    string                     // hash of the call that the answer allows; kept and shown, not checked here
	Allows    []string                   // names of the steps in the same frame that the answer is about; empty means any. In a fork the answer counts only if one of them has an outcome, see Fork
	Who       []string                   // who may answer: names, for the answer's By, and group:NAME, for the Groups that By is in; empty means anyone
	Expires   time.Duration              // after which the ask expires, counted from when it is asked; 0 means never
	Default   *Answer                    // the answer in that case; nil means ErrExpired
}

// Answer is the answer to an ask. To give an answer, set Value to anything that
// encodes to JSON; an answer that is read has it as JSON.
type Answer struct {
	Decision string    `json:"decision,omitempty"` // one of the question's Decisions, "" if it has none
	Value    any       `json:"value,omitempty"`    // what Ask returns
	Message  string    `json:"message,omitempty"`  // a remark
	By       string    `json:"by,omitempty"`       // who gave it, according to the caller
	Expired  bool      `json:"expired,omitempty"`  // nobody answered, so this is the default; set by the runtime
	Time     time.Time `json:"time,omitzero"`      // set by the runtime
}

// Ask suspends the run until the question is answered, and returns the
// answer's value. The value must fit T: Runtime.Answer refuses a value of another JSON
// kind, and a value that does not fit for another reason blocks the run. Types that
// decode JSON themselves, other than time.Time, accept any kind. Ask[Answer] returns the
// whole answer, with the decision and who made it; its Value is a json.RawMessage.
//
// The question is recorded when it is asked, and changing it later has no effect.
// If no answer comes in time, Ask returns the default, or ErrExpired.
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
			a.Value = json.RawMessage(bytes.Clone(raw))
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

// The possible statuses of an ask.
const (
	AskOpen     = "open"
	AskAnswered = "answered"
	AskExpired  = "expired"
	AskClosed   = "closed" // its run or step ended without an answer
)

// AskInfo describes an ask to code outside the run: see [Question].
type AskInfo struct {
	ID        string                     `json:"id"` // for AskAnswer
	Thread    string                     `json:"thread"`
	Run       string                     `json:"run"`
	Path      string                     `json:"path"`
	Status    string                     `json:"status"` // AskOpen, AskAnswered, AskExpired or AskClosed
	Kind      string                     `json:"kind,omitempty"`
	Prompt    string                     `json:"prompt,omitempty"`
	Data      json.RawMessage            `json:"data,omitempty"`
	Schema    json.RawMessage            `json:"schema,omitempty"`
	Schemas   map[string]json.RawMessage `json:"schemas,omitempty"` // by decision, in place of Schema
	Want      string                     `json:"want,omitempty"`    // the expected kind of JSON value; "" means any
	Decisions []string                   `json:"decisions,omitempty"`
	Guards    string                     `json:"guards,omitempty"`
	Who       []string                   `json:"who,omitempty"`
	Asked     time.Time                  `json:"asked"`
	Expires   time.Time                  `json:"expires,omitzero"`
	Progress  int                        `json:"progress,omitempty"` // number of progress reports
	Answer    *Answer                    `json:"answer,omitempty"`   // the answer, or the default if it expired; its Value is a json.RawMessage
}

// GetAsk returns an ask by its id, open or closed. An ask whose deadline has passed is
// reported as expired; its Answer is set once a worker has recorded the expiry. GetAsk
// returns ErrNoAsk for an ask that never existed or that a rewind took back, and
// ErrErased if the thread was erased.
func (r *Runtime) GetAsk(ctx context.Context, id string) (*AskInfo, error) {
	o, a, err := r.tenant.ReadAsk(ctx, id)
	if err != nil {
		return nil, err
	}
	info, err := r.askInfo(ctx, o, a)
	if err != nil {
		return nil, err
	}
	return &info, nil
}

func (r *Runtime) askInfo(ctx context.Context, o *threads.Opened, a *journal.Ask) (AskInfo, error) {
	q := a.Question
	data, err := r.core.threads.Load(ctx, o.Name, q.Data)
	info := AskInfo{ID: threads.AskID(o.Name, a.ID), Thread: o.Thread.ID, Run: a.Run.ID, Path: tree.Names(a.Path), Kind: q.Kind, Status: askStatus(a),
		Prompt: q.Prompt, Data: bytes.Clone(data), Schema: bytes.Clone(q.Schema), Schemas: maps.Clone(q.Schemas), Want: q.Want, Decisions: slices.Clone(q.Decisions), Guards: q.Guards,
		Who: slices.Clone(q.Who), Asked: clock.Stamp(a.Time), Expires: clock.Stamp(a.Due), Progress: len(a.Progress)}
	for decision, schema := range info.Schemas {
		info.Schemas[decision] = bytes.Clone(schema)
	}
	if err != nil || a.Answer == nil {
		return info, err
	}
	info.Answer = &Answer{Decision: a.Answer.Decision, Message: a.Answer.Message, By: a.Answer.By, Expired: a.Expired, Time: clock.Stamp(a.AnswerAt)}
	raw, err := r.core.threads.Load(ctx, o.Name, a.Answer.Value)
	if raw != nil {
		info.Answer.Value = json.RawMessage(bytes.Clone(raw))
	}
	return info, err
}

func askStatus(a *journal.Ask) string {
	switch {
	case a.Expired, a.Open() && !threads.Answerable(a):
		return AskExpired
	case a.Answer != nil:
		return AskAnswered
	case a.Closed:
		return AskClosed
	}
	return AskOpen
}
