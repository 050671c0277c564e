// Package credentials keeps the secrets that users give to the tools of agents,
// such as logins, sealed and apart from journals. A tool names those it needs
// with agent.Needs and reads them with [Secret]. The package may import perdure,
// store, internal/shelf and internal/scrub; package agent builds on it.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// Errors of credentials. They also match when read back from the journal.
var (
	// ErrNotFound: the user has given no such credential.
	ErrNotFound = perdure.Coded("agent-no-credential", errors.New("agent: there is no such credential"))
	// ErrUnsealed: there is no key to seal credentials with, so none are kept.
	ErrUnsealed = perdure.Coded("agent-unsealed", errors.New("agent: credentials are only kept sealed"))
	// ErrOpen: a credential exists but cannot be opened, because its key is missing
	// or wrong here, or because it is damaged. The log says which key it needs.
	ErrOpen = perdure.Coded("agent-unopened", errors.New("agent: a credential cannot be opened"))
	// ErrInvalid: a credential is not valid, or a run may not change it.
	ErrInvalid = perdure.Coded("agent-credential", errors.New("agent: bad credential"))
)

// maxSecret is the longest secret, in bytes.
const maxSecret = 64 << 10

// Credentials are the secrets that the users of a tenant have given. Each is
// sealed in a cell of the store: by the store if it is sealed (see package
// store/seal), else with the keys in the environment variable PERDURE_KEYS, in
// the form of [github.com/perdure/perdure/store/seal.ParseRing], bound to the
// tenant, user and name. Make a key once, and give the same one to all processes:
//
//	echo "2026-11:$(openssl rand -base64 32)"
//
// With neither, no credential is kept, and Give returns [ErrUnsealed]. The runtime
// never writes secrets into journals, events or errors.
type Credentials struct{ shelf *shelf.Shelf }

// Of returns the credentials of a runtime's tenant, for use outside runs: inside a
// run, Give and Forget return ErrInvalid.
func Of(rt *perdure.Runtime) *Credentials {
	return &Credentials{shelf.Of(rt, shelf.Credential)}
}

// Give stores a secret of a user under a name, replacing an earlier one. By is the
// person who gives it, and is stored too.
func (c *Credentials) Give(ctx context.Context, user, name, secret, by string) error {
	if shelf.InRun(ctx) {
		return fmt.Errorf("%w: a run cannot give one", ErrInvalid)
	}
	if err := shelf.Check([]string{user}, name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if secret == "" || len(secret) > maxSecret {
		return fmt.Errorf("%w: %q has %d bytes, not 1 to %d", ErrInvalid, name, len(secret), maxSecret)
	}
	rec, err := c.seal(ctx, user, name, secret)
	if err != nil {
		return err
	}
	rec.By = by
	raw, err := strict.Encode(rec)
	if err == nil {
		_, err = c.shelf.Put(ctx, []string{user}, name, raw, shelf.PutOptions{})
	}
	return named(name, err)
}

// named returns an error, if there is one, with the name of the credential.
func named(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("agent: credential %q: %w", name, err)
	}
	return err
}

// Forget removes a secret. Removing a missing one is not an error.
func (c *Credentials) Forget(ctx context.Context, user, name string) error {
	if shelf.InRun(ctx) {
		return fmt.Errorf("%w: a run cannot forget one", ErrInvalid)
	}
	return named(name, c.shelf.Delete(ctx, []string{user}, name, ""))
}

// Has reports whether a user has given a secret.
func (c *Credentials) Has(ctx context.Context, user, name string) (bool, error) {
	_, err := c.shelf.Get(ctx, []string{user}, name)
	if errors.Is(err, shelf.ErrNotFound) {
		return false, nil
	}
	return err == nil, named(name, err)
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

// Secret returns a secret that the thread's owner has given, or ErrNotFound. It
// is for the functions of tools, see agent.Needs, and can be called anywhere in a
// run.
//
// If a secret cannot be opened, Secret returns [ErrOpen]. A tool that returns this error
// fails the run, which can be retried once the key is back; the model does not see it.
//
// A secret of at least 4 bytes is removed from everything that a tool reports after
// reading it: the text of its output, its errors, panics and their stacks, its progress
// and other deltas. It is found verbatim, in upper or lower case, escaped for JSON, Go,
// HTML or a URL, in hex, and in any kind of base64, even as part of a longer encoded
// text such as user:secret. If flow code or a plain step reads it, it is removed from
// the errors, panics and deltas of the run.
//
// This is a safety net, not a wall. It does not find a secret that is cut into
// pieces (lines, several deltas), compressed, encrypted, hashed, reversed or
// spelled in another way. It does not look at media, files, the state, the results of
// steps other than tool calls, events of [perdure.Emit], or the program's own logs.
// None of these may contain the secret, or anything from which it can be read.
func Secret(ctx context.Context, name string) (string, error) {
	c, user, err := here(ctx)
	if err != nil {
		return "", err
	}
	item, err := c.shelf.Get(ctx, []string{user}, name)
	if errors.Is(err, shelf.ErrNotFound) {
		return "", fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	if err != nil && !errors.Is(err, store.ErrKey) {
		return "", named(name, err)
	}
	var secret string
	if err == nil {
		secret, err = c.unseal(ctx, user, name, item.Value)
	}
	if err != nil { // it names keys, which the journal and the model need not know
		c.shelf.Log().ErrorContext(ctx, "a credential cannot be opened", "tenant", c.shelf.Tenant(), "credential", name, "error", err)
		return "", perdure.Permanent(fmt.Errorf("%w: %q: the log of the worker says why; retry the run once that is repaired", ErrOpen, name))
	}
	scrub.From(ctx).Add(secret)
	return secret, nil
}

// Given reports whether the thread's owner has given a secret. It is for leaf
// steps.
func Given(ctx context.Context, name string) (bool, error) {
	c, user, err := here(ctx)
	if err != nil {
		return false, err
	}
	return c.Has(ctx, user, name)
}

// here returns the credentials of the run's tenant, and the thread's owner.
func here(ctx context.Context) (*Credentials, string, error) {
	s, err := shelf.Here(ctx, shelf.Credential)
	if err != nil {
		return nil, "", err
	}
	place, err := perdure.Here(ctx)
	return &Credentials{s}, place.User, err
}
