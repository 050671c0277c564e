package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/internal/shelf"
)

// Credential is a secret that a tool needs, such as a login.
type Credential struct {
	Name   string   // the same name is the same secret, for all threads of one user
	Prompt string   // what the person reads who is asked for it
	Who    []string // who may give it, as perdure.Question has it; nil: anyone
}

// Needs says that the tool needs credentials. A call waits until all are there;
// the tool gets them with [Secret], which says where they are kept out of.
func Needs(c ...Credential) ToolOption {
	return func(t *tool) { t.needs = append(t.needs[:len(t.needs):len(t.needs)], c...) }
}

// What can go wrong with credentials. They match also when they are read back
// from the journal.
var (
	// ErrNoCredential: the user has given no such credential.
	ErrNoCredential = perdure.Coded("agent-no-credential", errors.New("agent: there is no such credential"))
	// ErrUnsealed: there is no key to seal credentials with, so none are kept.
	ErrUnsealed = perdure.Coded("agent-unsealed", errors.New("agent: credentials are only kept sealed"))
	// ErrCredential: a credential is not as it has to be, or not this one's to
	// give.
	ErrCredential = perdure.Coded("agent-credential", errors.New("agent: bad credential"))
)

// maxSecret is how long a secret may be, in bytes.
const maxSecret = 64 << 10

// Credentials are the secrets that the users of a tenant have given. Each is
// sealed in a cell of the store: by the store if it is sealed (see package
// store/seal), else with the keys in the environment variable PERDURE_KEYS, as
// in [github.com/perdure/perdure/store/seal.ParseRing], bound to the tenant, user
// and name. A key is made once, and all processes get the same:
//
//	echo "2026-11:$(openssl rand -base64 32)"
//
// With neither, none is kept, and giving one is
// [ErrUnsealed]. The runtime writes secrets into no journal, event or error.
type Credentials struct{ shelf *shelf.Shelf }

// CredentialsOf returns the credentials of a runtime's tenant, for use outside
// of runs: in one its methods are ErrCredential.
func CredentialsOf(rt *perdure.Runtime) *Credentials {
	return &Credentials{shelf.New(host.FromRuntime(rt), shelf.Credential)}
}

// Give keeps a secret of a user under a name, in place of the one before. By is
// who gives it, which is kept.
func (c *Credentials) Give(ctx context.Context, user, name, secret, by string) error {
	if inRun(ctx) {
		return fmt.Errorf("%w: a run cannot give one", ErrCredential)
	}
	if err := shelf.Check([]string{user}, name); err != nil {
		return fmt.Errorf("%w: %w", ErrCredential, err)
	}
	if secret == "" || len(secret) > maxSecret {
		return fmt.Errorf("%w: %q has %d bytes, not 1 to %d", ErrCredential, name, len(secret), maxSecret)
	}
	rec, err := c.seal(ctx, user, name, secret)
	if err != nil {
		return err
	}
	rec.By = by
	raw, err := encodeValue(rec)
	if err == nil {
		_, err = c.shelf.Put(ctx, []string{user}, name, raw, shelf.PutOptions{})
	}
	if err != nil {
		return fmt.Errorf("agent: credential %q: %w", name, err)
	}
	return nil
}

// Forget removes a secret. One that is not there is removed already.
func (c *Credentials) Forget(ctx context.Context, user, name string) error {
	if inRun(ctx) {
		return fmt.Errorf("%w: a run cannot forget one", ErrCredential)
	}
	if err := c.shelf.Delete(ctx, []string{user}, name, ""); err != nil {
		return fmt.Errorf("agent: credential %q: %w", name, err)
	}
	return nil
}

// Has reports whether a user has given a secret.
func (c *Credentials) Has(ctx context.Context, user, name string) (bool, error) {
	_, err := c.shelf.Get(ctx, []string{user}, name)
	if errors.Is(err, shelf.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("agent: credential %q: %w", name, err)
	}
	return true, nil
}

// List returns the names of the secrets that a user has given.
func (c *Credentials) List(ctx context.Context, user string) ([]string, error) {
	var names []string
	for item, err := range c.shelf.List(ctx, []string{user}, "") {
		if err != nil {
			return nil, fmt.Errorf("agent: credentials: %w", err)
		}
		names = append(names, item.Key)
	}
	slices.Sort(names)
	return names, nil
}

// Provide gives the secret that an ask of kind [KindCredential] wants, in the
// name of the thread's owner, and then answers the ask, and all others on that
// thread that want the same and that the same person may answer. To names the
// ask and says who answers: its Ask, By, Groups and IfSeq count. The answers say
// "provided" and hold no secret. Repeated after a failure it goes on where it
// was.
func Provide(ctx context.Context, rt *perdure.Runtime, to perdure.AskAnswer, secret string) error {
	ask, by, groups := to.Ask, to.By, to.Groups
	a, err := host.FindAsk(ctx, rt, ask)
	if err != nil {
		return err
	}
	name, ok := credentialName(a.Kind, a.Data)
	switch {
	case !ok:
		return fmt.Errorf("%w: ask %s is not for one", ErrCredential, ask)
	case !host.May(a.Who, by, groups):
		return fmt.Errorf("%w: ask %s: %q is not among those who may", perdure.ErrForbidden, ask, by)
	case !a.Open:
		return rt.Answer(ctx, provided(ask, by, groups)) // the same again, or too late
	}
	thread, err := rt.Get(ctx, a.Thread)
	if err == nil && to.IfSeq != 0 && thread.Seq != to.IfSeq {
		err = &perdure.StaleError{Thread: thread.ID, Seq: thread.Seq}
	}
	if err != nil {
		return err
	}
	if err := CredentialsOf(rt).Give(ctx, a.User, name, secret, by); err != nil {
		return err
	}
	answers := []perdure.AskAnswer{provided(ask, by, groups)}
	answers[0].IfSeq = to.IfSeq
	for _, run := range thread.Runs {
		for _, other := range run.Asks {
			n, ok := credentialName(other.Kind, other.Data)
			if ok && n == name && other.ID != ask && host.May(other.Who, by, groups) {
				answers = append(answers, provided(other.ID, by, groups))
			}
		}
	}
	if err := rt.Answer(ctx, answers...); err == nil || len(answers) == 1 || errors.Is(err, perdure.ErrStale) {
		return err
	}
	// One of them was answered or ended meanwhile, which must not keep the
	// others open.
	err = rt.Answer(ctx, answers[0])
	for _, other := range answers[1:] {
		if e := rt.Answer(ctx, other); !errors.Is(e, perdure.ErrAnswered) && !errors.Is(e, perdure.ErrAskOver) && !errors.Is(e, perdure.ErrAnswer) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func provided(ask, by string, groups []string) perdure.AskAnswer {
	return perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Decision: DecisionProvided, By: by}, Groups: groups}
}

// credentialName returns which credential an ask wants.
func credentialName(kind string, data json.RawMessage) (string, bool) {
	var d struct {
		Name string `json:"credential"`
	}
	err := json.Unmarshal(data, &d)
	return d.Name, err == nil && kind == KindCredential && d.Name != ""
}

// Secret returns a secret that the thread's owner has given, or
// ErrNoCredential. It is for the functions of tools, see [Needs], and can be
// called anywhere in a run.
//
// A secret of at least 4 bytes is taken out of what a tool that got it tells: the
// text of its output, its errors, panics and their stacks, its [Progress] and
// other deltas. It is found as it is, in upper or lower case, escaped for JSON,
// Go, HTML or a URL, in hex, and in base64 of any kind, also inside of what was
// encoded, such as user:secret. Where flow code or a plain step got it, it is
// taken out of the errors, panics and deltas of the run.
//
// That is a net under a mistake and not a wall. It does not find a secret that is
// cut into pieces (lines, several deltas), compressed, encrypted, hashed,
// reversed or spelled in another way, and it leaves media, files, the state, what
// a step returns that is not a tool, events of [perdure.Emit], and logs of the
// program's own alone. None of these may hold the secret, or what it can be read
// from.
func Secret(ctx context.Context, name string) (string, error) {
	c, user, err := credentialsHere(ctx)
	if err != nil {
		return "", err
	}
	item, err := c.shelf.Get(ctx, []string{user}, name)
	if errors.Is(err, shelf.ErrNotFound) {
		return "", fmt.Errorf("%w: %q", ErrNoCredential, name)
	}
	if err != nil {
		return "", fmt.Errorf("agent: credential %q: %w", name, err)
	}
	secret, err := c.unseal(ctx, user, name, item.Value)
	if err != nil {
		return "", err
	}
	scrub.From(ctx).Add(secret)
	return secret, nil
}

// hasCredential reports whether the thread's owner has given a secret. It is for
// leaf steps.
func hasCredential(ctx context.Context, name string) (bool, error) {
	c, user, err := credentialsHere(ctx)
	if err != nil {
		return false, err
	}
	return c.Has(ctx, user, name)
}

func credentialsHere(ctx context.Context) (*Credentials, string, error) {
	h, err := host.FromContext(ctx)
	if err != nil {
		return nil, "", err
	}
	place, err := perdure.Here(ctx)
	return &Credentials{shelf.New(h, shelf.Credential)}, place.User, err
}
