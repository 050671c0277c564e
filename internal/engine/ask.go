package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// Question is the question of an ask: see perdure.Question.
type Question struct {
	Kind      string
	Prompt    string
	Data      any
	Schema    json.RawMessage
	Schemas   map[string]json.RawMessage
	Decisions []string
	Guards    string
	Allows    []string
	Who       []string
	Expires   time.Duration
	Default   *Answer
}

// Answer is the answer to an ask: see perdure.Answer.
type Answer struct {
	Decision string
	Value    any
	Message  string
	By       string
	Expired  bool
	Time     time.Time
}

// Ask suspends the run until a question is answered, and returns the node of
// the ask and the value of its answer. Want is the kind of JSON that the value
// must have.
func Ask(ctx context.Context, name string, q Question, want string) (*tree.Node, json.RawMessage, error) {
	// A refused question is refused in every replay, and never counts as
	// visited.
	p, k, data, err := checkQuestion(ctx, q, want)
	if err != nil {
		return nil, nil, fmt.Errorf("ask %q: %w", name, err)
	}
	return carry(ctx, tree.Ask, name, tree.Options{Allows: q.Allows}, func(f *frame, path string) error {
		b, err := p.question(k, data, q)
		if err != nil {
			return err
		}
		return p.open(f, threads.Line{Kind: journal.Asked, Path: path, Body: b})
	})
}

// until parks the frame until a node has its outcome, or records that its time
// is up.
func (p *Pass) until(ctx context.Context, f *frame, path string, n *tree.Node) error {
	if locked(p, func() bool { return n.Done }) {
		return nil
	}
	// A wait may be cancelled, unless it is a cleanup's.
	if err := p.gate(ctx, f); err != nil {
		return err
	}
	fire := func() error {
		return p.commit(func() batch {
			w := p.run.Waits[path]
			if n.Done || w == nil {
				return batch{}
			}
			return batch{lines: []threads.Line{dueLine(p.thread, p.run, path, w)}}
		})
	}
	if n.Due != 0 && clock.Micros() >= n.Due {
		return fire()
	}
	return p.park(ctx, &waiter{frame: f, due: n.Due, ready: func() bool { return n.Done }, fire: fire})
}

// dueLine returns the entry that says that the time of a wait is up. Whoever
// notices first appends it.
func dueLine(t *journal.Thread, run *journal.Run, path string, w *journal.Wait) threads.Line {
	l := threads.Line{Kind: journal.Fired, Run: run.N, Path: path}
	switch w.Kind {
	case journal.Waiting:
		l.Body.Fail = fault.Failure(fault.ErrTimeout)
	case journal.Asked:
		l.Kind, l.Body.Of = journal.Expired, w.Ask
		if a := t.Ask(w.Ask); a != nil && a.Question.Default != nil {
			l.Body.Answer = a.Question.Default
		} else {
			l.Body.Fail = fault.Failure(fault.ErrExpired)
		}
	}
	return l
}

// DueLines returns the entries to append for waits whose time is up.
func DueLines(t *journal.Thread, run *journal.Run, now int64) []threads.Line {
	var lines []threads.Line
	size := 0 // of default answers, which may be large; the rest is appended later
	for _, path := range slices.Sorted(maps.Keys(run.Waits)) {
		if w := run.Waits[path]; w.Due != 0 && w.Due <= now && len(lines) < 32 {
			l := dueLine(t, run, path, w)
			if l.Body.Answer != nil {
				size += len(l.Body.Answer.Value.JSON) + len(l.Body.Answer.Message)
			}
			if size > 128<<10 && len(lines) > 0 {
				break
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// maxQuestion is how much text a question may have, not counting its data.
const maxQuestion = 64 << 10

// checkQuestion returns the question as it is recorded, and its data.
func checkQuestion(ctx context.Context, q Question, want string) (*Pass, journal.Question, json.RawMessage, error) {
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
			return p, k, nil, fmt.Errorf("%w: the schema of %q is not JSON, or there is no such decision", fault.ErrOption, decision)
		}
	}
	switch {
	case size > maxQuestion:
		return p, k, nil, fmt.Errorf("%w: a question has at most %d bytes of text, not %d; put the rest into its Data", fault.ErrTooLarge, maxQuestion, size)
	case (q.Schema != nil || q.Schemas != nil) && p.engine.opts.Validator == nil:
		return p, k, nil, fmt.Errorf("%w: a question with a schema needs Options.Validator", fault.ErrOption)
	case q.Schema != nil && !json.Valid(q.Schema):
		return p, k, nil, fmt.Errorf("%w: the schema is not JSON", fault.ErrOption)
	case q.Expires < 0:
		return p, k, nil, fmt.Errorf("%w: a negative Expires", fault.ErrOption)
	case q.Default != nil && q.Expires == 0:
		return p, k, nil, fmt.Errorf("%w: a default without Expires", fault.ErrOption)
	}
	if q.Default != nil {
		if _, _, err := p.engine.checkAnswer(&k, *q.Default); err != nil {
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
func (p *Pass) question(k journal.Question, data json.RawMessage, q Question) (b journal.Body, err error) {
	if data != nil {
		if k.Data, err = p.value(data); err != nil {
			return b, err
		}
	}
	if q.Default != nil {
		d, raw, err := p.engine.checkAnswer(&k, *q.Default)
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

// KeepAnswer returns an answer as it is recorded, if the question allows it.
func (e *Engine) KeepAnswer(ctx context.Context, name string, q *journal.Question, a Answer) (journal.Answer, error) {
	kept, raw, err := e.checkAnswer(q, a)
	if err == nil && raw != nil {
		kept.Value, err = e.threads.Value(ctx, name, raw)
	}
	return kept, err
}

// checkAnswer returns an answer as it is recorded, and its value.
func (e *Engine) checkAnswer(q *journal.Question, a Answer) (journal.Answer, json.RawMessage, error) {
	kept := journal.Answer{Decision: a.Decision, Message: a.Message, By: a.By}
	if err := errors.Join(fault.CheckText("the message", a.Message, 16<<10), fault.CheckText("who answers", a.By, 500), fault.CheckText("the decision", a.Decision, 500)); err != nil {
		return kept, nil, fmt.Errorf("%w: %w", fault.ErrAnswer, err)
	}
	if len(q.Decisions) > 0 && !slices.Contains(q.Decisions, a.Decision) {
		return kept, nil, fmt.Errorf("%w: the decision must be one of %q", fault.ErrAnswer, q.Decisions) // the given decision may be a secret
	}
	if len(q.Decisions) == 0 && a.Decision != "" {
		return kept, nil, fmt.Errorf("%w: the ask does not accept a decision", fault.ErrAnswer)
	}
	var raw json.RawMessage
	if a.Value != nil {
		var err error
		if raw, err = exact.Encode(a.Value, reflect.TypeOf(a.Value)); err != nil {
			return kept, nil, fmt.Errorf("%w: %w", fault.ErrAnswer, err)
		}
	}
	got := exact.KindOfJSON(raw)
	want := wanted(q, a.Decision)
	if want == "integer" && got == "number" && !bytes.ContainsAny(raw, ".eE") {
		got = "integer"
	}
	if want != "" && got != want {
		return kept, nil, fmt.Errorf("%w: it must be a JSON %s, not %s", fault.ErrAnswer, want, cmp.Or(got, "nothing"))
	}
	schema := q.Schema
	if s, ok := q.Schemas[a.Decision]; ok {
		schema = s
	}
	if schema != nil {
		if e.opts.Validator == nil {
			return kept, nil, fmt.Errorf("%w: the ask has a schema, but this runtime has no Options.Validator", fault.ErrAnswer)
		}
		if err := e.opts.Validator.Validate(schema, raw); err != nil {
			return kept, nil, fmt.Errorf("%w: %w", fault.ErrAnswer, err)
		}
	}
	return kept, raw, nil
}
