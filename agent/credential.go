package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/scrub"
)

// Credential is a secret that a tool needs, such as a login.
type Credential struct {
	Name   string   // its name; all threads of a user share the secret of that name
	Prompt string   // what the person who is asked for it reads
	Who    []string // who may give it, as in perdure.Question; nil: anyone
}

// Needs says that the tool needs credentials. A call waits until all are there;
// the tool's function reads them with [credentials.Secret].
func Needs(c ...Credential) ToolOption {
	return func(t *tool) { t.needs = append(t.needs[:len(t.needs):len(t.needs)], c...) }
}

// Provide stores the secret that an ask of kind [KindCredential] requests, as a secret
// of the thread's owner. Then it answers the ask, and all others on the thread that
// request the same secret and that the same person may answer. To names the ask and
// the person: only its Ask, By, Groups and IfSeq count. The answers say "provided"
// and hold no secret. After a failure, call Provide again: it continues where it was.
func Provide(ctx context.Context, rt *perdure.Runtime, to perdure.AskAnswer, secret string) error {
	ask, by, groups := to.Ask, to.By, to.Groups
	a, err := rt.GetAsk(ctx, ask)
	if err != nil {
		return err
	}
	name, ok := credentialName(a.Kind, a.Data)
	switch {
	case !ok:
		return fmt.Errorf("%w: ask %s is not for one", credentials.ErrInvalid, ask)
	case !journal.May(a.Who, by, groups):
		return fmt.Errorf("%w: ask %s: %q may not answer it", perdure.ErrForbidden, ask, by)
	case a.Status != perdure.AskOpen:
		return rt.Answer(ctx, provided(ask, by, groups)) // the same again, or too late
	}
	thread, err := rt.GetPage(ctx, a.Thread, perdure.RunPage{Limit: 1}) // and all that have not ended
	if err == nil && to.IfSeq != 0 && thread.Seq != to.IfSeq {
		err = &perdure.StaleError{Thread: thread.ID, Seq: thread.Seq}
	}
	if err != nil {
		return err
	}
	if err := credentials.Of(rt).Give(ctx, thread.User, name, secret, by); err != nil {
		return err
	}
	answers := []perdure.AskAnswer{provided(ask, by, groups)}
	answers[0].IfSeq = to.IfSeq
	for _, run := range thread.Runs {
		for _, other := range run.Asks {
			n, ok := credentialName(other.Kind, other.Data)
			if ok && n == name && other.ID != ask && journal.May(other.Who, by, groups) {
				answers = append(answers, provided(other.ID, by, groups))
			}
		}
	}
	if err := rt.Answer(ctx, answers...); err == nil || len(answers) == 1 || errors.Is(err, perdure.ErrStale) {
		return err
	}
	// One of them was answered or ended meanwhile; the others must not stay open
	// for that.
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

// guarded calls the function of a tool and takes the secrets that it read out of
// its output, its error and its panic.
func guarded(ctx context.Context, fn func(context.Context) (Output, error)) (out Output, err error) {
	err = scrub.Guard(ctx, func(ctx context.Context, secrets *scrub.Set) (err error) {
		out, err = fn(ctx)
		out.Text = secrets.Text(out.Text)
		return err
	})
	return out, err
}
