package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/store"
)

// What can go wrong with rules.
var (
	// ErrNoRule: there is no such rule.
	ErrNoRule = perdure.Coded("agent-no-rule", errors.New("agent: there is no such rule"))
	// ErrRule: a rule is not as it has to be, or is not this one's to change.
	ErrRule = perdure.Coded("agent-rule", errors.New("agent: bad rule"))
)

// Rule says that calls of a tool on a user's threads run without asking. It
// comes from the decision [DecisionAlways] or from [Rules.Allow], and ends when
// it is revoked or expires. For one user, tool and pattern there is one rule.
// Only tools whose [Approval] lists DecisionAlways among its Decisions look at
// rules; the calls of others are always asked about.
//
// Rules are kept apart from memory: no tool, agent or call of memory reaches
// them.
type Rule struct {
	ID   string `json:"id"`   // set by the runtime
	User string `json:"user"` // whose threads it is for, and no other's
	Tool string `json:"tool"` // the tool's name

	// Args is the pattern of the arguments. Null or nothing fits all, {} all objects. Otherwise
	// it is an object; arguments fit if they have every member that it has,
	// with a value that fits:
	//
	//   - A text fits the same text. In it * stands for any characters, also
	//     none, / and line ends; \* is a star and \\ a backslash, as is one
	//     before any other character.
	//   - A number fits the same number, however it is written: 1, 1.0, 10e-1.
	//     It is compared exactly, never as a float.
	//   - True, false and null fit themselves.
	//   - A list fits one of the same length whose elements fit in their order.
	//   - An object inside fits one with the same members, whose values fit.
	//
	// Members of the arguments that the pattern does not have are free, at the
	// outermost level only. Names are compared exactly. Arguments fit no
	// pattern if they are not one JSON object of valid UTF-8, or if anywhere in
	// them two members of an object have one name, also where the names differ
	// in case only: readers disagree about which of them counts.
	//
	// Patterns look at texts and not at what these mean: "/tmp/*" fits
	// "/tmp/../etc/passwd".
	Args json.RawMessage `json:"args,omitempty"`

	Who     []string  `json:"who,omitempty"` // who may make and revoke it, as the approval says; empty: anyone
	By      string    `json:"by,omitempty"`  // who made it
	Created time.Time `json:"created"`       // set by the runtime
	Expires time.Time `json:"expires,omitzero"`
}

// ruleRecord is what is kept of a rule. One that was revoked is kept for a
// while, so that a step which runs again after a crash does not bring it back.
type ruleRecord struct {
	Rule
	Step    string    `json:"step,omitempty"` // key of the step that made it
	Revoked time.Time `json:"revoked,omitzero"`
	Revoker string    `json:"revoker,omitempty"`
}

// revokedFor is how long it is known that a rule was revoked.
const revokedFor = 90 * 24 * time.Hour

// Rules are the rules of a tenant.
type Rules struct{ shelf *shelf.Shelf }

// RulesOf returns the rules of a runtime's tenant, for use outside of runs: in
// one its methods are ErrRule.
func RulesOf(rt *perdure.Runtime) *Rules {
	return &Rules{shelf.New(host.FromRuntime(rt), shelf.Rule)}
}

// Allow makes a rule and returns it. By is who makes it: if the rule has a Who,
// one of these. A rule for the same user, tool and pattern is replaced, if by
// may revoke it.
func (r *Rules) Allow(ctx context.Context, rule Rule, by string) (*Rule, error) {
	if inRun(ctx) {
		return nil, fmt.Errorf("%w: a run cannot make one", ErrRule)
	}
	rule.By = by
	return r.make(ctx, rule, "")
}

// Revoke ends a rule: calls that have not been allowed by it yet need a
// decision again. By is one of the rule's Who, if it has any. A rule that was
// revoked before is ErrNoRule.
func (r *Rules) Revoke(ctx context.Context, id, by string) error {
	if inRun(ctx) {
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
		_, err = r.put(ctx, rec, item.Version, revokedFor)
		return err
	})
}

// List returns the rules for a user's threads, oldest first.
func (r *Rules) List(ctx context.Context, user string) ([]Rule, error) {
	return r.list(ctx, []string{user})
}

func (r *Rules) list(ctx context.Context, ns []string) ([]Rule, error) {
	var rules []Rule
	for item, err := range r.shelf.List(ctx, ns, "") {
		if err != nil {
			return nil, fmt.Errorf("agent: rules: %w", err)
		}
		rec, err := readRule(item)
		if err != nil {
			return nil, err
		}
		if rec.Revoked.IsZero() {
			rules = append(rules, rec.Rule)
		}
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return a.Created.Compare(b.Created) })
	return rules, nil
}

func mayRule(who []string, by string) error {
	if len(who) > 0 && !slices.Contains(who, by) {
		return fmt.Errorf("%w: %w: %q is not among those who may", ErrRule, perdure.ErrForbidden, by)
	}
	return nil
}

// make makes a rule, once for the key of a step.
func (r *Rules) make(ctx context.Context, rule Rule, step string) (*Rule, error) {
	p, err := parsePattern(rule.Args)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRule, err)
	}
	if !toolName.MatchString(rule.Tool) {
		return nil, fmt.Errorf("%w: %.80q is no tool's name", ErrRule, rule.Tool)
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
	rec.Args, rec.Created = p.canonical(), time.Now().UTC()
	if err := shelf.Check(ruleNamespace(rec), ruleKey(rec)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRule, err)
	}
	made := &rec.Rule
	err = r.change(func() error {
		item, err := r.shelf.Get(ctx, ruleNamespace(rec), ruleKey(rec))
		if errors.Is(err, shelf.ErrNotFound) {
			rec.ID = r.shelf.Place(ruleNamespace(rec), ruleKey(rec))
			_, err = r.put(ctx, rec, "", ttl)
			return err
		}
		if err != nil {
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
		rec.ID = item.Place
		_, err = r.put(ctx, rec, item.Version, ttl)
		return err
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func ruleNamespace(r *ruleRecord) []string { return []string{r.User, r.Tool} }

// ruleKey stands for the pattern: the same one is the same rule.
func ruleKey(r *ruleRecord) string { return hashed("pattern", r.Args) }

func (r *Rules) put(ctx context.Context, rec *ruleRecord, prev store.Version, ttl time.Duration) (*shelf.Item, error) {
	raw, err := encodeValue(rec)
	if err != nil {
		return nil, err
	}
	item, err := r.shelf.Put(ctx, ruleNamespace(rec), ruleKey(rec), raw, shelf.PutOptions{Version: prev, Create: prev == "", TTL: ttl})
	if errors.Is(err, shelf.ErrInvalid) || errors.Is(err, shelf.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrRule, err)
	}
	return item, err
}

// change repeats what another writer came between.
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
	if err := json.Unmarshal(item.Value, rec); err != nil || !slices.Equal(item.Namespace, ruleNamespace(rec)) {
		return nil, fmt.Errorf("agent: rule %s cannot be read: %w", item.Place, errors.Join(store.ErrCorrupt, err))
	}
	return rec, nil
}

// findRule returns a rule of the thread's owner that allows a call, nil if there
// is none. If the approval says who may decide, the rule was made by one of
// them. It is for leaf steps.
func findRule(ctx context.Context, tool string, args json.RawMessage, who ...string) (*Rule, error) {
	r, place, err := rulesHere(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := r.list(ctx, []string{place.User, tool})
	if err != nil {
		return nil, err
	}
	for i, rule := range rules {
		p, err := parsePattern(rule.Args)
		if err == nil && rule.User == place.User && rule.Tool == tool && mayRule(who, rule.By) == nil && p.fits(args) {
			return &rules[i], nil
		}
	}
	return nil, nil
}

// makeRule makes a rule for the threads of the thread's owner, once however
// often the step runs. It is for leaf steps.
func makeRule(ctx context.Context, rule Rule) error {
	r, place, err := rulesHere(ctx)
	if err != nil {
		return err
	}
	rule.User = place.User
	_, err = r.make(ctx, rule, perdure.Key(ctx))
	return err
}

func rulesHere(ctx context.Context) (*Rules, perdure.Place, error) {
	if err := host.Leaf(ctx, "rules"); err != nil {
		return nil, perdure.Place{}, err
	}
	h, err := host.FromContext(ctx)
	if err != nil {
		return nil, perdure.Place{}, err
	}
	place, err := perdure.Here(ctx)
	return &Rules{shelf.New(h, shelf.Rule)}, place, err
}
