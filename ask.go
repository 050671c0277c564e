package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
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
	n, raw, err := ask(ctx, name, q, want)
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
	return recordedAs[T](ctx, "the answer of the ask", name, raw)
}

func ask(ctx context.Context, name string, q Question, want string) (*tree.Node, json.RawMessage, error) {
	// A question that is refused is refused in every replay, before it counts
	// as visited.
	p, k, data, err := checkQuestion(ctx, q, want)
	if err != nil {
		return nil, nil, fmt.Errorf("ask %q: %w", name, err)
	}
	f, v, err := enter(ctx, tree.Ask, name, tree.Options{Allows: q.Allows})
	if err != nil {
		return nil, nil, err
	}
	defer f.finish()
	n := v.Node
	if n == nil {
		if err := p.gate(ctx, f); err != nil {
			return nil, nil, err
		}
		b, err := p.question(k, data, q)
		if err != nil {
			return nil, nil, err
		}
		if err := p.open(f, func() threads.Line {
			return threads.Line{Kind: journal.Asked, Path: v.Path, Body: b}
		}); err != nil {
			return nil, nil, err
		}
		n = p.node(v.Path)
	}
	if err := p.until(ctx, f, v.Path, n); err != nil {
		return nil, nil, err
	}
	f.takeOver(n)
	if n.Fail != nil {
		return nil, nil, &fault.StepError{Path: n.Path(), Attempt: 1, Err: &fault.Recorded{Fail: *n.Fail}}
	}
	raw, err := p.load(f, n.Answer.Value)
	return n, raw, err
}

// until parks the frame until a node has its outcome, if need be that its time
// is over.
func (p *pass) until(ctx context.Context, f *frame, path string, n *tree.Node) error {
	if done := func() bool { p.mu.Lock(); defer p.mu.Unlock(); return n.Done }(); done {
		return nil
	}
	// What waits may be cancelled; what a cleanup waits for may not.
	if err := p.gate(ctx, f); err != nil {
		return err
	}
	fire := func() error {
		return p.commit(func() batch {
			w := p.run.Waits[path]
			if n.Done || w == nil {
				return batch{}
			}
			return batch{lines: []threads.Line{over(p.thread, p.run, path, w)}}
		})
	}
	if n.Due != 0 && clock.Micros() >= n.Due {
		return fire()
	}
	return p.park(ctx, &waiter{frame: f, due: n.Due, ready: func() bool { return n.Done }, fire: fire})
}

// over is the entry which says that the time of a wait is over. Whoever sees
// it due appends it.
func over(t *journal.Thread, run *journal.Run, path string, w *journal.Wait) threads.Line {
	l := threads.Line{Kind: journal.Fired, Run: run.N, Path: path}
	switch w.Kind {
	case journal.Waiting:
		l.Body.Fail = fault.Failure(fault.ErrTimeout)
	case journal.Asked:
		l.Kind, l.Body.Of = journal.Expired, w.Ask
		if a := t.Asks[w.Ask]; a != nil && a.Question.Default != nil {
			l.Body.Answer = a.Question.Default
		} else {
			l.Body.Fail = fault.Failure(fault.ErrExpired)
		}
	}
	return l
}

// maxQuestion is how much text a question may have. Its data may be larger.
const maxQuestion = 64 << 10

// checkQuestion returns what is recorded of a question, and its data.
func checkQuestion(ctx context.Context, q Question, want string) (*pass, journal.Question, json.RawMessage, error) {
	k := journal.Question{Kind: q.Kind, Prompt: q.Prompt, Schema: q.Schema, Schemas: q.Schemas, Decisions: q.Decisions,
		Guards: q.Guards, Allows: q.Allows, Who: q.Who, Want: want}
	f, err := inside(ctx)
	if err != nil {
		return nil, k, nil, err
	}
	p := f.pass
	size := len(q.Kind) + len(q.Prompt) + len(q.Schema) + len(q.Guards)
	for _, text := range slices.Concat(q.Decisions, q.Who, q.Allows) {
		size += len(text)
	}
	for decision, schema := range q.Schemas {
		size += len(decision) + len(schema)
		if !json.Valid(schema) || !slices.Contains(q.Decisions, decision) {
			return p, k, nil, fmt.Errorf("%w: the schema of %q is no JSON, or there is no such decision", fault.ErrOption, decision)
		}
	}
	switch {
	case size > maxQuestion:
		return p, k, nil, fmt.Errorf("%w: a question has at most %d bytes of text, not %d; put the rest into its Data", fault.ErrTooLarge, maxQuestion, size)
	case (q.Schema != nil || q.Schemas != nil) && p.rt.opts.Validator == nil:
		return p, k, nil, fmt.Errorf("%w: a question with a schema needs Options.Validator", fault.ErrOption)
	case q.Schema != nil && !json.Valid(q.Schema):
		return p, k, nil, fmt.Errorf("%w: the schema is no JSON", fault.ErrOption)
	case q.Expires < 0:
		return p, k, nil, fmt.Errorf("%w: a negative Expires", fault.ErrOption)
	case q.Default != nil && q.Expires == 0:
		return p, k, nil, fmt.Errorf("%w: a default without Expires", fault.ErrOption)
	}
	if q.Default != nil {
		if _, _, err := p.rt.checkAnswer(&k, *q.Default); err != nil {
			return p, k, nil, fmt.Errorf("its default: %w", err)
		}
	}
	if q.Data == nil {
		return p, k, nil, nil
	}
	data, err := exact.Encode(q.Data, reflect.TypeOf(q.Data))
	return p, k, data, err
}

// question returns the body of an ask's entry.
func (p *pass) question(k journal.Question, data json.RawMessage, q Question) (b journal.Body, err error) {
	if data != nil {
		if k.Data, err = p.value(data); err != nil {
			return b, err
		}
	}
	if q.Default != nil {
		d, raw, err := p.rt.checkAnswer(&k, *q.Default)
		if err == nil && raw != nil {
			d.Value, err = p.value(raw)
		}
		if err != nil {
			return b, err
		}
		k.Default = &d
	}
	if q.Expires > 0 {
		b.Due = clock.Now().Add(q.Expires).UnixMicro()
	}
	b.Ask = &k
	return b, nil
}
