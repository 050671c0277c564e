package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/internal/arguments"
	"github.com/perdure/perdure/internal/schema"
	"github.com/perdure/perdure/llm"
)

// Tool is something that an agent can do. Make one with [NewTool], or with one
// of the functions that return built-in ones.
type Tool struct{ *tool }

type tool struct {
	name        string
	description string
	schema      *schema.Schema
	err         error // what is wrong with it, reported when an agent with it runs

	fits      func(args json.RawMessage) error                    // beyond the schema; may be nil
	normal    func(args json.RawMessage) (json.RawMessage, error) // see Normalize; may be nil
	call      func(ctx context.Context, args json.RawMessage) (Output, error)
	reconcile func(ctx context.Context, args json.RawMessage) (Output, perdure.Outcome, error)

	approval *Approval
	needs    []Credential
	timeout  time.Duration
	retry    *perdure.RetryPolicy
	once     bool
	verbs    bool // its function is flow code
	serial   bool
	agents   []Agent // that it calls, for checks
	limit    int     // bytes of output that the model sees
}

// Output is the part of a tool call's result that the model reads.
type Output struct {
	Text  string      `json:"text"`
	Media []llm.Media `json:"media,omitempty"`
	Error bool        `json:"error,omitempty"` // Text says what went wrong
}

// NewTool makes a tool from a function. The model sees the name (of 1 to 64 letters,
// digits, - and _), the description and a JSON Schema of A, a struct. For each field
// of A, the tag json gives the name and, by omitempty or omitzero, whether it is
// optional; the tag jsonschema gives the description, and the tag schema further rules,
// joined by commas:
//
//	type Order struct {
//		ID    string `json:"id" jsonschema:"number of the order" schema:"pattern=^[A-Z]-[0-9]+$"`
//		Count int    `json:"count" schema:"min=1,max=10"`
//		Speed string `json:"speed,omitempty" schema:"enum=slow|fast"`
//	}
//
// The rules are enum=a|b, min= and max= (of numbers), minlen= and maxlen= (of texts
// and lists), and pattern= (which comes last, since it may contain commas).
//
// A call with other arguments never reaches the function: the model is told
// what is wrong. What the function returns is encoded as JSON, except for a string
// and an [Output], which are used as they are. After the tool's retries, an error
// is reported to the model; [Fatal] makes it fail the run.
//
// The function is a step: once its result is recorded it is not called again. It
// can use [perdure.Key], state and deps, and calls no verbs unless the tool has
// the option [UsesVerbs].
func NewTool[A, R any](name, description string, fn func(ctx context.Context, args A) (R, error), opts ...ToolOption) Tool {
	s, err := schemaOf(reflect.TypeFor[A]())
	t := newTool(name, description, s, err, fn != nil)
	t.fits = func(raw json.RawMessage) error { return json.Unmarshal(raw, new(A)) }
	t.call = func(ctx context.Context, raw json.RawMessage) (Output, error) {
		var args A
		if err := json.Unmarshal(raw, &args); err != nil {
			return Output{}, perdure.Permanent(fmt.Errorf("agent: the arguments of %s: %w", name, err))
		}
		v, err := fn(ctx, args)
		if err != nil {
			return Output{}, err
		}
		return outputOf(v)
	}
	return Tool{t}.With(opts...)
}

// RawTool makes a tool from a function whose arguments have the given JSON Schema,
// such as one of another system.
func RawTool(name, description string, schema json.RawMessage, fn func(ctx context.Context, args json.RawMessage) (Output, error), opts ...ToolOption) Tool {
	s, err := parseSchema(schema)
	t := newTool(name, description, s, err, fn != nil)
	t.call = fn
	return Tool{t}.With(opts...)
}

func newTool(name, description string, s *schema.Schema, err error, hasFunc bool) *tool {
	if err != nil {
		err = fmt.Errorf("its arguments: %w", err)
	}
	if !hasFunc {
		err = errors.Join(err, errors.New("it has no function"))
	}
	return &tool{name: name, description: description, schema: s, err: err}
}

// With returns the tool with more options.
func (t Tool) With(opts ...ToolOption) Tool {
	if t.tool == nil {
		return t
	}
	c := *t.tool
	for _, o := range opts {
		o(&c)
	}
	return Tool{&c}
}

// Name returns what models call the tool.
func (t Tool) Name() string { return t.name }

// Description returns what models read about the tool.
func (t Tool) Description() string { return t.description }

// Schema returns the JSON Schema of its arguments.
func (t Tool) Schema() json.RawMessage { return t.schema.JSON() }

// Digest returns a digest of the JSON Schema of its arguments, by which a [Rule]
// recognises the tool.
func (t Tool) Digest() string {
	raw := t.Schema()
	if one, err := arguments.Canonical(raw); err == nil {
		raw = one
	}
	sum := sha256.Sum256(append([]byte("schema\n"), raw...))
	return hex.EncodeToString(sum[:16])
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// check returns everything that is wrong with the tool.
func (t Tool) check() error {
	if t.tool == nil {
		return fmt.Errorf("%w: a tool that was not made by NewTool", ErrOption)
	}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: tool %q: %w", ErrOption, t.name, fmt.Errorf(format, args...)))
	}
	if !toolName.MatchString(t.name) {
		wrong("its name is not 1 to 64 letters, digits, - and _")
	}
	if t.err != nil {
		wrong("%w", t.err)
	}
	if t.once && t.timeout <= 0 {
		wrong("AtMostOnce needs a time after which a lost start can no longer be running")
	}
	if t.once && t.verbs {
		wrong("what is done at most once cannot use verbs; put AtMostOnce on the step inside it")
	}
	if a := t.approval; a != nil {
		for _, d := range a.Decisions {
			if !slices.Contains(allDecisions, d) {
				wrong("%q is not a decision", d)
			}
		}
		if a.Decisions != nil && len(a.Decisions) == 0 {
			wrong("its approval allows no decision; nil allows the usual ones")
		}
		if a.Expires < 0 {
			wrong("its approval expires after a negative time")
		}
		if d := a.Default; d != "" && (a.Expires <= 0 || d != DecisionApprove && d != DecisionReject) {
			wrong("its default is approve or reject, and needs Expires")
		}
		if a.Default == DecisionApprove && a.Decisions != nil && !slices.Contains(a.Decisions, DecisionApprove) {
			wrong("its default is approve, a decision that it does not allow")
		}
	}
	return errors.Join(errs...)
}

// outputOf encodes what a tool's function returned.
func outputOf(v any) (Output, error) {
	switch v := v.(type) {
	case Output:
		return v, nil
	case string:
		return Output{Text: v}, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return Output{}, perdure.Permanent(fmt.Errorf("agent: the tool's result: %w", err))
	}
	return Output{Text: string(raw)}, nil
}

// maxKept is how much of a tool's output is kept at all.
const maxKept = 4 << 20

// fitOutput makes an output one that a model can read: valid, and not too long. The
// whole of a long one goes into a file, if the agent has files.
func (s *session) fitOutput(ctx context.Context, t Tool, c llm.Call, out Output) (Output, string, error) {
	limit := 32 << 10
	if t.tool != nil && t.limit > 0 {
		limit = t.limit
	}
	whole := len(out.Text)
	out.Text = validText(truncate(out.Text, maxKept))
	if len(out.Text) <= limit {
		return out, "", nil
	}
	note := fmt.Sprintf("[The output has %d bytes, of which this is the beginning and the end.", whole)
	file := ""
	if s.agent.Files != nil {
		here, err := perdure.Here(ctx)
		if err != nil {
			return out, "", err
		}
		// Ids of calls may come again in each turn; the path does not.
		file = fmt.Sprintf("/outputs/%s-%s.txt", frameName(c.Name), callHash(here.Run, here.Path)[:12])
		if err := s.agent.Files.Write(ctx, file, out.Text); err != nil {
			// The tool has done what it does; its result is not to be lost.
			file, note = "", note+fmt.Sprintf(" It could not be kept in a file: %v.", err)
		} else {
			note += fmt.Sprintf(" The file %s has the first %d bytes of it; read it with read_file.", file, len(out.Text))
		}
	}
	out.Text = note + "]\n" + shorten(out.Text, limit)
	return out, file, nil
}

func truncate(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// A ToolOption changes how a tool is called.
type ToolOption func(*tool)

// Timeout ends the context of the tool's function after d.
func Timeout(d time.Duration) ToolOption { return func(t *tool) { t.timeout = d } }

// Retry calls the tool's function again when it fails, before the failure is
// reported to the model. Without it a failure is reported at once.
func Retry(p perdure.RetryPolicy) ToolOption { return func(t *tool) { t.retry = &p } }

// AtMostOnce ensures that the function is never started twice for one call
// unless the first start certainly had no effect; see [perdure.AtMostOnce]. Limit is
// the timeout of the function, after which a lost start cannot still be running.
func AtMostOnce(limit time.Duration) ToolOption {
	return func(t *tool) { t.once, t.timeout = true, limit }
}

// Reconcile gives an at-most-once tool a function that finds out the outcome of
// an earlier start; see [perdure.Reconcile].
func Reconcile[A, R any](fn func(ctx context.Context, args A) (R, perdure.Outcome, error)) ToolOption {
	return func(t *tool) {
		t.reconcile = func(ctx context.Context, raw json.RawMessage) (Output, perdure.Outcome, error) {
			var args A
			if err := json.Unmarshal(raw, &args); err != nil {
				return Output{}, perdure.OutcomeUnknown, err
			}
			v, outcome, err := fn(ctx, args)
			if err != nil || outcome != perdure.OutcomeDone {
				return Output{}, outcome, err
			}
			out, err := outputOf(v)
			return out, outcome, err
		}
	}
}

// Normalize brings the arguments of a tool into the form in which it uses them:
// "//notes/a" becomes "/notes/a". Everything that looks at a call sees that form:
// predicates, the person who is asked, rules, callbacks and the function. Edited
// arguments are normalised too. Without Normalize, a call can be spelled so that a
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

// UsesVerbs says that the tool's function is flow code: it may call Step, Ask and
// the other verbs, and runs again on resume, so it does everything else in steps.
func UsesVerbs() ToolOption { return func(t *tool) { t.verbs = true } }

// Serial says that the calls of the tool in one message run one after the other,
// in order with other serial ones, and see each other's changes of the state.
// Without it calls run concurrently.
func Serial() ToolOption { return func(t *tool) { t.serial = true } }

// MaxOutput limits how many bytes of the tool's output the model sees; the default is
// 32 KiB. Of a longer output it sees the beginning and the end; if the agent has files,
// the whole output is kept in one.
func MaxOutput(n int) ToolOption { return func(t *tool) { t.limit = n } }
