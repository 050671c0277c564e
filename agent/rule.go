package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/internal/arguments"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// Errors of rules.
var (
	// ErrNoRule: there is no such rule.
	ErrNoRule = perdure.Coded("agent-no-rule", errors.New("agent: there is no such rule"))
	// ErrRule: a rule is not valid, or the caller may not change it.
	ErrRule = perdure.Coded("agent-rule", errors.New("agent: bad rule"))
)

// Rule lets certain calls on a user's threads run without asking. It is made by the
// decision [DecisionAlways] or by [Rules.Allow], and ends when it is revoked or
// expires, or when the tool's schema changes. It covers the calls of one tool by one
// agent in one flow; a tool of the same name elsewhere is a different tool. Rules apply
// only to tools whose [Approval] lists DecisionAlways among its Decisions; for others a
// person is always asked.
//
// Rules are kept apart from memory: code that uses memory cannot reach them.
type Rule struct {
	ID   string `json:"id"`   // set by the runtime
	User string `json:"user"` // the user on whose threads it applies
	Flow string `json:"flow"` // the flow of the run
	// Agent is the name of the calling agent, Tool the name of the tool, and Schema
	// the tool's Digest.
	Agent  string `json:"agent"`
	Tool   string `json:"tool"`
	Schema string `json:"schema"`

	// Exact says that Args is not a pattern but the complete arguments; numbers are
	// compared by their value.
	Exact bool `json:"exact,omitempty"`
	// Args is the pattern of the arguments, an object; {} fits any object.
	// Arguments fit if they have every member of the pattern, with a value that
	// fits:
	//
	//   - A text fits the same text. In it * stands for any characters, or none,
	//     including / and line ends; \* is a star and \\ a backslash, as is a
	//     backslash before any other character.
	//   - A number fits the same number, however it is written: 1, 1.0, 10e-1.
	//     It is compared exactly, never as a float.
	//   - True, false and null fit themselves.
	//   - A list fits one of the same length whose elements fit in their order.
	//   - An object inside fits one with the same members, whose values fit.
	//
	// At the outermost level only, arguments may have other members than the
	// pattern, with any value. Names are compared exactly. If several members of a
	// call have the same name, only the last one counts, for the tool too.
	// Arguments fit no pattern if they are not one JSON object of valid UTF-8, or
	// if the names of two members anywhere in them differ only in case: readers
	// disagree about which one counts. Such a pattern is invalid.
	//
	// Patterns compare texts, not their meaning: "/tmp/*" fits
	// "/tmp/../etc/passwd".
	Args json.RawMessage `json:"args,omitempty"`

	Who     []string  `json:"who,omitempty"` // who may make and revoke it, as the approval says; empty: anyone
	By      string    `json:"by,omitempty"`  // who made it
	Created time.Time `json:"created"`       // set by the runtime
	Expires time.Time `json:"expires,omitzero"`

	// Allows says in words what it allows, as Describe does; set by Rules.List.
	Allows string `json:"allows,omitempty"`
}

// Describe returns in words what a rule allows. It may quote a model: show it as
// plain text.
func (r Rule) Describe() string {
	if err := r.complete(); err != nil {
		return "nothing: it does not say for which flow, agent and schema of the tool it is; revoke it, and decide again when you are asked"
	}
	what := "with any arguments"
	switch {
	case r.Exact && r.Args == nil:
		what = "with exactly these arguments"
	case r.Exact:
		what = "with exactly the arguments " + string(r.Args)
	case string(r.Args) != "{}":
		what = "with all arguments that fit " + string(r.Args) + ", where * is any text and members that are not named are free"
	}
	until := "until it is revoked"
	if !r.Expires.IsZero() {
		until = "until " + r.Expires.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("agent %q in flow %q calls the tool %q, with its schema as it is now, on threads of user %q %s, without asking, %s",
		r.Agent, r.Flow, r.Tool, r.User, what, until)
}

// complete returns an error if a rule does not say what it covers. Old rules,
// which named only the tool, do not: they allow nothing.
func (r Rule) complete() error {
	if r.Flow == "" || r.Schema == "" || !toolName.MatchString(r.Agent) || !toolName.MatchString(r.Tool) {
		return fmt.Errorf("a rule names a flow, an agent, a tool and the tool's Digest, not %.40q, %.80q, %.80q and %.40q", r.Flow, r.Agent, r.Tool, r.Schema)
	}
	return nil
}

// matcher returns a function that reports whether arguments fit, and the form of
// the rule's arguments that is kept.
func (r Rule) matcher() (fits func(args json.RawMessage) bool, kept json.RawMessage, err error) {
	if r.Exact {
		kept, err := arguments.Exact(r.Args)
		return func(args json.RawMessage) bool {
			got, err := arguments.Exact(args)
			return err == nil && bytes.Equal(got, kept)
		}, kept, err
	}
	p, err := arguments.ParsePattern(r.Args)
	if err == nil && p == nil {
		err = errors.New("it has no pattern; {} allows all arguments")
	}
	if err != nil {
		return nil, nil, err
	}
	return p.Fits, p.Canonical(), nil
}

// ruleRecord is the stored form of a rule. A revoked one is kept for a while, so
// that a step which runs again after a crash does not bring it back.
type ruleRecord struct {
	Rule
	Step    string    `json:"step,omitempty"` // key of the step that made it
	Revoked time.Time `json:"revoked,omitzero"`
	Revoker string    `json:"revoker,omitempty"`
}

// revokedFor is how long a revoked rule is kept.
const revokedFor = 90 * 24 * time.Hour

// Rules are the rules of a tenant.
type Rules struct{ shelf *shelf.Shelf }

// RulesOf returns the rules of a runtime's tenant, for use outside runs: inside a run,
// their methods return ErrRule.
func RulesOf(rt *perdure.Runtime) *Rules {
	return &Rules{shelf.Of(rt, shelf.Rule)}
}

// Allow makes a rule and returns it. By is the person who makes it, one of the rule's
// Who if that is not empty. Allow replaces an existing rule for the same calls if by
// may revoke it.
func (r *Rules) Allow(ctx context.Context, rule Rule, by string) (*Rule, error) {
	if shelf.InRun(ctx) {
		return nil, fmt.Errorf("%w: a run cannot make one", ErrRule)
	}
	rule.By = by
	return r.make(ctx, rule, "")
}

// Revoke ends a rule: calls that it has not allowed yet need a decision again. By is
// one of the rule's Who if that is not empty. If the rule was already revoked, Revoke
// returns ErrNoRule.
func (r *Rules) Revoke(ctx context.Context, id, by string) error {
	if shelf.InRun(ctx) {
		return fmt.Errorf("%w: a run cannot revoke one", ErrRule)
	}
	return r.change(func() error {
		item, err := r.shelf.At(ctx, id)
		if errors.Is(err, shelf.ErrNotFound) {
			return fmt.Errorf("%w: %.80q", ErrNoRule, id)
		}
		if err != nil {
			return err
		}
		rec, err := readRule(item)
		if err != nil {
			return err
		}
		if !rec.Revoked.IsZero() {
			return fmt.Errorf("%w: %s was revoked", ErrNoRule, id)
		}
		if err := mayRule(rec.Who, by); err != nil {
			return err
		}
		rec.Revoked, rec.Revoker = time.Now().UTC(), by
		return r.put(ctx, rec, item.Key, shelf.PutOptions{Version: item.Version, TTL: revokedFor})
	})
}

// List returns the rules for a user's threads, oldest first. If some are damaged,
// it returns the others along with an error.
func (r *Rules) List(ctx context.Context, user string) ([]Rule, error) {
	return r.list(ctx, []string{user})
}

func (r *Rules) list(ctx context.Context, ns []string) ([]Rule, error) {
	var rules []Rule
	var damage error
	for item, err := range r.shelf.List(ctx, ns, "") {
		var rec *ruleRecord
		if err == nil {
			rec, err = readRule(item)
		}
		switch {
		case errors.Is(err, store.ErrCorrupt):
			damage = cmp.Or(damage, err)
		case err != nil:
			return nil, fmt.Errorf("agent: rules: %w", err)
		case rec.Revoked.IsZero():
			rec.Allows = rec.Describe()
			rules = append(rules, rec.Rule)
		}
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return a.Created.Compare(b.Created) })
	if damage != nil {
		damage = fmt.Errorf("agent: rules: %w: %w", perdure.ErrCorrupt, damage)
	}
	return rules, damage
}

func mayRule(who []string, by string) error {
	if len(who) > 0 && !slices.Contains(who, by) {
		return fmt.Errorf("%w: %w: %q may not answer it", ErrRule, perdure.ErrForbidden, by)
	}
	return nil
}

// make makes a rule, once for the key of a step.
func (r *Rules) make(ctx context.Context, rule Rule, step string) (*Rule, error) {
	_, kept, err := rule.matcher()
	if err = errors.Join(err, rule.complete()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRule, err)
	}
	if err := mayRule(rule.Who, rule.By); err != nil {
		return nil, err
	}
	ttl := time.Duration(0)
	if !rule.Expires.IsZero() {
		if ttl = time.Until(rule.Expires); ttl <= 0 {
			return nil, fmt.Errorf("%w: it expired at %s", ErrRule, rule.Expires.Format(time.RFC3339))
		}
	}
	rec := &ruleRecord{Rule: rule, Step: step}
	rec.Args, rec.Created, rec.Allows = kept, time.Now().UTC(), ""
	if err := shelf.Check(rec.namespace(), rec.key()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRule, err)
	}
	made := &rec.Rule
	err = r.change(func() error {
		item, err := r.shelf.Get(ctx, rec.namespace(), rec.key())
		rec.ID = r.shelf.Place(rec.namespace(), rec.key())
		switch {
		case errors.Is(err, shelf.ErrNotFound):
			return r.put(ctx, rec, rec.key(), shelf.PutOptions{Create: true, TTL: ttl})
		case errors.Is(err, store.ErrCorrupt): // it allows nothing: this one takes its place
			return r.put(ctx, rec, rec.key(), shelf.PutOptions{TTL: ttl})
		case err != nil:
			return err
		}
		old, err := readRule(item)
		if err != nil {
			return err
		}
		if step != "" && old.Step == step {
			made = &old.Rule // this step did it, and it may have been revoked since
			return nil
		}
		if old.Revoked.IsZero() {
			if err := mayRule(old.Who, rule.By); err != nil {
				return err
			}
		}
		return r.put(ctx, rec, rec.key(), shelf.PutOptions{Version: item.Version, TTL: ttl})
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (r *ruleRecord) namespace() []string { return []string{r.User, r.Tool} }

// key stands for everything that a rule covers, besides its namespace.
func (r *ruleRecord) key() string {
	return callHash(r.Flow, r.Agent, r.Schema, fmt.Sprint(r.Exact), r.Args)[:32]
}

func (r *Rules) put(ctx context.Context, rec *ruleRecord, key string, o shelf.PutOptions) error {
	raw, err := strict.Encode(rec)
	if err != nil {
		return err
	}
	_, err = r.shelf.Put(ctx, rec.namespace(), key, raw, o)
	if errors.Is(err, shelf.ErrInvalid) || errors.Is(err, shelf.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrRule, err)
	}
	return err
}

// change repeats do as long as another writer interferes.
func (r *Rules) change(do func() error) error {
	var err error
	for range 16 {
		if err = do(); !errors.Is(err, shelf.ErrConflict) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("agent: rules: %w", err)
	}
	return nil
}

func readRule(item *shelf.Item) (*ruleRecord, error) {
	rec := new(ruleRecord)
	if err := json.Unmarshal(item.Value, rec); err != nil || !slices.Equal(item.Namespace, rec.namespace()) {
		return nil, fmt.Errorf("agent: rule %s cannot be read: %w", item.Place, errors.Join(store.ErrCorrupt, err))
	}
	return rec, nil
}

// findRule returns a rule of the thread's owner that allows a call with the agent,
// tool and schema of like, or nil. If who may decide is limited, the rule was made
// by one of them. Damaged rules allow nothing, so that a person is asked. It is
// for leaf steps.
func findRule(ctx context.Context, like Rule, args json.RawMessage, who ...string) (*Rule, error) {
	r, place, err := rulesHere(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := r.list(ctx, []string{place.User, like.Tool})
	if errors.Is(err, perdure.ErrCorrupt) {
		r.shelf.Log().Warn("rules are damaged, so a person may be asked again", "thread", place.Thread, "tool", like.Tool, "error", err)
	} else if err != nil {
		return nil, err
	}
	for i, rule := range rules {
		same := rule.User == place.User && rule.Flow == place.Flow && rule.Agent == like.Agent && rule.Tool == like.Tool && rule.Schema == like.Schema
		if !same || rule.complete() != nil || mayRule(who, rule.By) != nil {
			continue
		}
		if fits, _, err := rule.matcher(); err == nil && fits(args) {
			return &rules[i], nil
		}
	}
	return nil, nil
}

// makeRule makes a rule for the run's flow on the threads of the thread's owner,
// once however often the step runs. It is for leaf steps.
func makeRule(ctx context.Context, rule Rule) error {
	r, place, err := rulesHere(ctx)
	if err != nil {
		return err
	}
	rule.User, rule.Flow = place.User, place.Flow
	_, err = r.make(ctx, rule, perdure.Key(ctx))
	return err
}

func rulesHere(ctx context.Context) (*Rules, perdure.Place, error) {
	if err := engine.CheckLeaf(ctx, "rules"); err != nil {
		return nil, perdure.Place{}, err
	}
	s, err := shelf.Here(ctx, shelf.Rule)
	if err != nil {
		return nil, perdure.Place{}, err
	}
	place, err := perdure.Here(ctx)
	return &Rules{s}, place, err
}
