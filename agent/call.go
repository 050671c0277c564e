package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/agent/internal/arguments"
	"github.com/perdure/perdure/llm"
)

// calls makes the calls of one message, each durable on its own: at the same
// time, but for serial ones, which come one after the other in their order.
// Calls whose credentials are missing wait for those, and no other call does.
func (s *session) calls(ctx context.Context, calls []llm.Call) error {
	results := make([]*Record, len(calls))
	missing, err := s.missingCredentials(ctx, calls)
	if err != nil {
		return err
	}
	waits := func(c llm.Call) bool {
		return slices.ContainsFunc(s.agent.tools[c.Name].wants(), func(n Credential) bool { return missing[n.Name] })
	}
	refused := map[string]string{}
	if err := s.round(ctx, calls, results, func(c llm.Call) bool { return !waits(c) }, missing, refused); err != nil {
		for i, c := range calls {
			if waits(c) {
				s.notBegun(ctx, "not-begun-"+callName(i, c), c, err)
			}
		}
		return err
	}
	if len(missing) > 0 {
		for i, c := range calls {
			for _, need := range s.agent.tools[c.Name].wants() {
				if why, no := refused[need.Name]; no && results[i] == nil {
					r, err := perdure.Scope(ctx, "refused-"+callName(i, c), func(ctx context.Context) (Record, error) {
						return s.conclude(ctx, c, Record{}, Output{Text: "The call was not made: " + why, Error: true})
					})
					if err != nil {
						return err
					}
					results[i] = &r
				}
			}
		}
		if err := s.round(ctx, calls, results, waits, nil, nil); err != nil {
			return err
		}
	}
	for _, r := range results {
		s.add(*r)
	}
	for i, c := range calls {
		if h := results[i].Rejected; h != "" && s.rejected[h] >= maxRejections {
			return perdure.Permanent(fmt.Errorf("%w: %s with %s was rejected %d times, the last time by %q: %.300s", ErrRejected,
				c.Name, shorten(c.Args, 300), s.rejected[h], results[i].By, results[i].Message.Parts[0].Result.Text))
		}
	}
	return nil
}

// maxRejections is how often the same call may be rejected before the run ends.
const maxRejections = 3

// round makes those calls that which chooses and that have no result yet, and
// asks for the credentials that are missing.
func (s *session) round(ctx context.Context, calls []llm.Call, results []*Record, which func(llm.Call) bool, missing map[string]bool, refused map[string]string) error {
	g := perdure.NewGroup(ctx)
	var serial []int
	one := func(ctx context.Context, i int) error {
		r, err := s.call(ctx, calls[i])
		if err == nil {
			results[i] = &r
		}
		return err
	}
	for i, c := range calls {
		switch {
		case results[i] != nil || !which(c):
		case s.agent.tools[c.Name].tool != nil && s.agent.tools[c.Name].serial:
			serial = append(serial, i)
		default:
			g.Go(callName(i, c), func(ctx context.Context) error { return one(ctx, i) })
		}
	}
	lane := "serial"
	if refused == nil { // of those that waited for credentials
		lane = "serial-then"
	}
	if len(serial) > 0 {
		g.Go(lane, func(ctx context.Context) error {
			for n, i := range serial {
				if _, err := perdure.Scope(ctx, callName(i, calls[i]), func(ctx context.Context) (bool, error) { return true, one(ctx, i) }); err != nil {
					for _, i := range serial[n+1:] {
						s.notBegun(ctx, "not-begun-"+callName(i, calls[i]), calls[i], err)
					}
					return err
				}
			}
			return nil
		})
	}
	answers := make([]string, len(missing))
	for k, name := range slices.Sorted(maps.Keys(missing)) {
		g.Go(fmt.Sprintf("credential-%d-%s", k, frameName(name)), func(ctx context.Context) (err error) {
			answers[k], err = s.askCredential(ctx, calls, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for k, name := range slices.Sorted(maps.Keys(missing)) {
		if answers[k] != "" {
			refused[name] = answers[k]
		}
	}
	return nil
}

// The steps that a decision on a call is about: the call, and its result where
// that is a step of its own.
const stepRun, stepResult = "run", "result"

// callName names the frame of a call.
func callName(i int, c llm.Call) string { return fmt.Sprintf("%d-%s", i, frameName(c.Name)) }

// frameName makes a text of a model or user one that can name a frame.
func frameName(s string) string {
	out := []byte(shorten(s, 60))
	for i, c := range out {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			out[i] = '_'
		}
	}
	return string(out)
}

// wants returns the credentials that a tool needs.
func (t Tool) wants() []Credential {
	if t.tool == nil {
		return nil
	}
	return t.needs
}

// approvers returns who may approve a tool's calls, and so also say what came of
// one; nil: anyone.
func (t Tool) approvers() []string {
	if t.approval == nil {
		return nil
	}
	return t.approval.Who
}

// call makes one call: it is checked, decided on if need be, run, and has
// exactly one result.
func (s *session) call(ctx context.Context, c llm.Call) (Record, error) {
	if c.Name == transferTool.name {
		return s.transferCall(ctx, c)
	}
	t, there := s.agent.tools[c.Name]
	if !there {
		return s.conclude(ctx, c, Record{Mistake: true}, Output{Error: true,
			Text: fmt.Sprintf("There is no tool %q. The tools are: %s.", c.Name, strings.Join(slices.Sorted(maps.Keys(s.agent.tools)), ", "))})
	}
	args, changed, err := t.arguments(c.Args)
	if err != nil {
		return s.conclude(ctx, c, Record{Mistake: true}, Output{Error: true,
			Text: fmt.Sprintf("The arguments of %s are wrong: %v. Call it again with arguments that fit its schema.", c.Name, err)})
	}
	d := decision{args: args}
	if changed {
		d.record.Args = args
	}
	d, err = s.decide(ctx, t, c, d)
	if err != nil {
		s.notBegun(ctx, "not-begun", c, err)
		return Record{}, err
	}
	if d.out != nil {
		return s.conclude(ctx, c, d.record, *d.out)
	}
	return s.perform(ctx, t, c, d)
}

// notBegun records that a call will never be made, if the run was cancelled
// before it could be. Without it the next run has to tell the model that the
// call may have happened.
func (s *session) notBegun(ctx context.Context, step string, c llm.Call, err error) {
	s.cutShort(ctx, step, c, err, "The call was not made: the run was cancelled before it began.")
}

// cutShort records what is known about a call, if the run was cancelled.
func (s *session) cutShort(ctx context.Context, step string, c llm.Call, err error, text string) {
	if !errors.Is(err, perdure.ErrCancelled) {
		return
	}
	_ = perdure.Cleanup(ctx, step, func(ctx context.Context) error { // its failure is on record
		return transcript.Append(ctx, s.stamp(ctx, s.resultRecord(c, Record{}, Output{Text: text, Error: true})))
	})
}

// arguments returns the arguments of a call in one form, if they fit. It is what
// everything after it sees: predicates, people, rules and the tool. It reports
// whether normalising changed them.
func (t Tool) arguments(text string) (args json.RawMessage, changed bool, err error) {
	if t := strings.TrimSpace(text); t == "" || t == "null" {
		text = "{}"
	}
	given, err := arguments.Canonical(json.RawMessage(text))
	if err != nil {
		return nil, false, err
	}
	if t.fits != nil && t.fits(given) != nil {
		// 1.0 is an integer for a schema, and none for Go.
		if whole := arguments.WholeNumbers(given); t.accepts(whole) == nil {
			given = whole
		}
	}
	if err := t.accepts(given); err != nil || t.normal == nil {
		return given, false, err
	}
	if args, err = t.normal(given); err != nil {
		return nil, false, err
	}
	return args, !bytes.Equal(given, args), t.accepts(args)
}

// accepts checks arguments in their one form.
func (t Tool) accepts(raw json.RawMessage) error {
	if err := t.schema.Check(raw); err != nil || t.fits == nil {
		return err
	}
	return t.fits(raw)
}

// perform runs the tool and records its result.
func (s *session) perform(ctx context.Context, t Tool, c llm.Call, d decision) (Record, error) {
	call := ToolCall{Agent: s.agent.name, Tool: t.name, ID: c.ID, Args: d.args}
	if before := s.agent.Callbacks.BeforeTool; before != nil && t.verbs {
		out, err := perdure.Step(ctx, "before", func(ctx context.Context) (*Output, error) { return before(ctx, call) })
		if err != nil {
			s.notBegun(ctx, "not-begun", c, err)
			return s.failed(ctx, c, d, err)
		}
		if out != nil {
			return s.conclude(ctx, c, d.record, *out)
		}
	}
	opts := []perdure.StepOption{describeCall(t, call)}
	if t.timeout > 0 {
		opts = append(opts, perdure.Timeout(t.timeout))
	}
	if t.retry != nil {
		opts = append(opts, perdure.Retry(*t.retry))
	}
	if t.once {
		opts = append(opts, perdure.AtMostOnce(), perdure.AskOutcome(perdure.Question{
			Prompt: fmt.Sprintf("%s called %s, and nobody knows whether that happened. Did it?", s.agent.name, t.name),
			Data:   callData{Agent: s.agent.name, Tool: t.name, Description: t.description, Call: c.ID, Args: d.args},
			Who:    t.approvers(),
		}))
	}
	if t.reconcile != nil {
		opts = append(opts, perdure.Reconcile(func(ctx context.Context) (ran, perdure.Outcome, error) {
			found := perdure.OutcomeUnknown
			out, err := guarded(ctx, func(ctx context.Context) (out Output, err error) {
				out, found, err = t.reconcile(ctx, d.args)
				return out, err
			})
			return ran{s.resultRecord(c, d.record, out)}, found, err
		}))
	}
	// The result of a plain function is a record of the transcript. That of
	// flow code, of what was found out or decided about an at-most-once step,
	// and of what goes on elsewhere becomes one in a step of its own.
	plain := !t.verbs && !t.once
	r, err := perdure.Step(ctx, stepRun, func(ctx context.Context) (ran, error) {
		begin := time.Now()
		news := new(callNews)
		out, err := s.invoke(context.WithValue(ctx, newsKey{}, news), t, call)
		elsewhere, pending := errors.AsType[*pendingError](err)
		if err != nil && !pending {
			return ran{}, err
		}
		annotateResult(ctx, out)
		rec := d.record
		if pending {
			rec.Pending = cmp.Or(elsewhere.ref, perdure.Key(ctx))
		}
		rec.Escalate, rec.Progress = news.told()
		rec.Took = time.Since(begin).Milliseconds()
		if pending || !plain {
			out.Text = validText(truncate(out.Text, maxKept))
			return ran{s.resultRecord(c, rec, out)}, nil
		}
		rec, err = s.finish(ctx, t, c, rec, out)
		return ran{rec}, err
	}, opts...)
	if t.once && !errors.Is(err, perdure.ErrUnknownOutcome) {
		s.notBegun(ctx, "not-begun", c, err)
	}
	if t.once {
		// What a person said came of it is a result, not a record: who decided,
		// and everything else, is as it is known here.
		known := d.record
		known.Message, known.Pending = r.Message, r.Pending
		known.Took, known.Progress, known.Escalate = r.Took, r.Progress, r.Escalate
		r.Record = known
	}
	switch {
	case err != nil:
		return s.failed(ctx, c, d, err)
	case r.Pending != "":
		return s.pend(ctx, t, c, call, d, r.Record)
	case plain:
		return r.Record, nil
	}
	out := Output{}
	if len(r.Message.Parts) > 0 { // else a person said that it is done, and nothing more
		res := r.Message.Parts[0].Result
		out = Output{Text: res.Text, Media: res.Media, Error: res.Error}
	}
	if t.verbs {
		return s.afterwards(ctx, c, call, d, r.Record, out)
	}
	return s.conclude(ctx, c, r.Record, out)
}

// afterwards records a result that did not come from a plain function, after the
// callback has seen it.
func (s *session) afterwards(ctx context.Context, c llm.Call, call ToolCall, d decision, r Record, out Output) (Record, error) {
	if after := s.agent.Callbacks.AfterTool; after != nil {
		changed, err := perdure.Step(ctx, "after", func(ctx context.Context) (Output, error) {
			changed := out
			err := after(ctx, call, &changed)
			return changed, err
		})
		if err != nil {
			return s.failed(ctx, c, d, err)
		}
		out = changed
	}
	return s.conclude(ctx, c, r, out)
}

// ran is what the step of a tool comes to. Where a person says what came of an
// at-most-once call, it is any value.
type ran struct{ Record }

// UnmarshalJSON implements json.Unmarshaler.
func (r *ran) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &r.Record); err == nil && len(r.Message.Parts) == 1 && r.Message.Parts[0].Result != nil {
		return nil
	}
	out := responseOf(raw)
	r.Record = Record{Message: llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Text: out.Text}}}}}
	return nil
}

// finish makes an output the result of a call, in the step that it is called
// in.
func (s *session) finish(ctx context.Context, t Tool, c llm.Call, r Record, out Output) (Record, error) {
	out, file, err := s.fitOutput(ctx, t, c, out)
	if err != nil {
		return r, err
	}
	r.File = file
	r = s.stamp(ctx, s.resultRecord(c, r, out))
	if r.Message, err = keepMedia(ctx, r.Message); err != nil {
		return r, err
	}
	return r, transcript.AppendResult(ctx)
}

// failed makes the failure of a tool the result of its call, unless it is to
// fail the run.
func (s *session) failed(ctx context.Context, c llm.Call, d decision, err error) (Record, error) {
	e, ok := outcome(err)
	if !ok {
		return Record{}, err
	}
	if isAny(err, ErrFatal, ErrRejected, ErrOption, credentials.ErrOpen, perdure.ErrBudget, perdure.ErrComposite, perdure.ErrOption) {
		return Record{}, err
	}
	return s.conclude(ctx, c, d.record, Output{Error: true, Text: fmt.Sprintf("%s failed: %v", c.Name, e.Err)})
}

// invoke calls the tool's function, with the callbacks around it. Those of flow
// code have steps of their own, so that they are called once.
func (s *session) invoke(ctx context.Context, t Tool, call ToolCall) (out Output, err error) {
	if before := s.agent.Callbacks.BeforeTool; before != nil && !t.verbs {
		if o, err := before(ctx, call); err != nil || o != nil {
			if o == nil {
				o = new(Output)
			}
			return *o, err
		}
	}
	if out, err = guarded(ctx, func(ctx context.Context) (Output, error) { return t.call(ctx, call.Args) }); err != nil {
		return out, err
	}
	if after := s.agent.Callbacks.AfterTool; after != nil && !t.verbs {
		err = after(ctx, call, &out)
	}
	return out, err
}

// conclude records a result in a step of its own.
func (s *session) conclude(ctx context.Context, c llm.Call, r Record, out Output) (Record, error) {
	return perdure.Step(ctx, stepResult, func(ctx context.Context) (Record, error) {
		return s.finish(ctx, s.agent.tools[c.Name], c, r, out)
	})
}

// resultRecord makes the record of a call's result.
func (s *session) resultRecord(c llm.Call, r Record, out Output) Record {
	r.Message = llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{
		Call: c.ID, Name: c.Name, Text: out.Text, Media: out.Media, Error: out.Error}}}}
	return r
}

// pend waits for the result of a call that goes on elsewhere.
func (s *session) pend(ctx context.Context, t Tool, c llm.Call, call ToolCall, d decision, rec Record) (Record, error) {
	ref := rec.Pending
	a, err := perdure.Ask[perdure.Answer](ctx, "pending", perdure.Question{
		Kind:   KindPending,
		Prompt: fmt.Sprintf("%s goes on elsewhere as %s. The answer's value is its result; a message without a value says that it failed.", call.Tool, ref),
		Data:   callData{Agent: s.agent.name, Tool: call.Tool, Call: c.ID, Args: d.args, Ref: ref},
		Who:    t.approvers(),
	})
	if err != nil {
		s.cutShort(ctx, "cut-short", c, err, fmt.Sprintf("There is no result: the run was cancelled while this call went on elsewhere as %s. It has begun, and may have happened or may still happen.", ref))
		return Record{}, err
	}
	raw, _ := a.Value.(json.RawMessage)
	if rec.Decision == "" { // else it is who decided that the call is made
		rec.By = a.By
	}
	if raw == nil && a.Message != "" {
		return s.afterwards(ctx, c, call, d, rec, Output{Error: true, Text: fmt.Sprintf("%s failed: %s", call.Tool, validText(a.Message))})
	}
	return s.afterwards(ctx, c, call, d, rec, responseOf(raw))
}

// Pending is the error that a tool's function returns when the call continues
// elsewhere: a job was started, a mail was sent. The run is suspended with an ask
// of kind [KindPending] whose data has the ref, or the step's key if ref is
// empty. [perdure.Runtime.Progress] reports progress, and the value of
// [perdure.Runtime.Answer] is the call's result, hours later and from any
// process. An answer with a message and no value means failure. If the tool has
// an [Approval] with a Who, only those may answer.
func Pending(ref string) error { return &pendingError{ref} }

type pendingError struct{ ref string }

func (p *pendingError) Error() string { return "agent: the call is pending as " + p.ref }

// responseOf makes a person's or a system's value the output of a call: a text
// as it is, parts with media as these, and anything else as JSON.
func responseOf(raw json.RawMessage) Output {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return Output{Text: text}
	}
	var parts Content
	if json.Unmarshal(raw, &parts) == nil && len(parts) == 1 && len(mediaOf(parts[0])) > 0 {
		return Output{Text: parts[0].Text(), Media: mediaOf(parts[0])}
	}
	return Output{Text: string(raw)}
}
