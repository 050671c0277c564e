package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// Principal is the caller of a request.
type Principal struct {
	Tenant  string
	Subject string      // recorded as the author of what the caller does
	User    string      // limits the caller to the threads and memory of this user, in whose name it acts; "" means the whole tenant
	Groups  []string    // an ask for group:NAME may be answered by its members
	Scopes  []api.Scope // what the caller may do
	Expires time.Time   // zero: never
}

// May reports whether the principal has a scope.
func (p *Principal) May(s api.Scope) bool {
	if s == api.ScopeAny {
		return len(p.Scopes) > 0
	}
	return s == api.ScopeNone || slices.Contains(p.Scopes, s) || slices.Contains(p.Scopes, api.ScopeAdmin)
}

// check returns what is wrong with a principal. A subject in the form of a group
// could answer in the group's place.
func (p *Principal) check() error {
	if err := checkName("subject", p.Subject); err != nil {
		return err
	}
	if p.Tenant != "" {
		if err := checkName("tenant", p.Tenant); err != nil {
			return err
		}
	}
	if p.User != "" {
		switch err := checkName("user", p.User); {
		case err != nil:
			return err
		case p.Subject != p.User:
			return api.Invalid("a caller that is limited to the threads of %.40q acts as that user, not as %.40q", p.User, p.Subject)
		case slices.Contains(p.Scopes, api.ScopeAdmin):
			return api.Invalid("a caller that is limited to the threads of a user cannot have the scope admin")
		}
	}
	if len(p.Groups) > 64 {
		return api.Invalid("there are %d groups; the limit is 64", len(p.Groups))
	}
	for _, g := range p.Groups {
		if err := checkName("group", g); err != nil {
			return err
		}
	}
	if len(p.Scopes) == 0 {
		return api.Invalid("no scopes")
	}
	for _, s := range p.Scopes {
		if !slices.Contains(api.Scopes, s) {
			return api.Invalid("there is no scope %q; there are %v", s, api.Scopes)
		}
	}
	return nil
}

func checkName(what, name string) error {
	switch {
	case name == "" || len(name) > 200 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return api.Invalid("a %s must be 1 to 200 bytes of printable text, not %.40q", what, name)
	case strings.HasPrefix(name, "group:"):
		return api.Invalid("the %s %.40q begins with group:, which is how asks name groups", what, name)
	}
	return nil
}

// checkNew is check for a new principal, whose names must be displayed as they
// are. Existing ones keep their names.
func (p *Principal) checkNew() error {
	names := append([]string{p.Tenant, p.Subject, p.User}, p.Groups...)
	if i := slices.IndexFunc(names, func(name string) bool { return !strict.Seen(name) }); i >= 0 {
		return api.Invalid("tenants, subjects, users and groups must not contain control or invisible characters, as %.60q does", names[i])
	}
	return p.check()
}

// Authenticator finds out whose bearer token a request has. For an invalid token its
// error matches api.ErrUnauthorized, and the response is 401. Any other error, such as
// an unreachable database, is logged, and the response is 503 (unavailable) with
// Retry-After.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (*Principal, error)
}

// Rechecker is an Authenticator that knows its tokens by their SHA-256. With one,
// a stream that was opened with a ticket ends when the token behind the ticket is
// revoked; without one it ends when the token expires, after an hour at most.
type Rechecker interface {
	Authenticator
	// Recheck is Authenticate by the hash of the token.
	Recheck(ctx context.Context, hash [sha256.Size]byte) (*Principal, error)
}

// Any returns an Authenticator that tries several in turn. The first one that
// knows a token decides.
func Any(a ...Authenticator) Authenticator {
	return anyOf(slices.DeleteFunc(slices.Clone(a), func(one Authenticator) bool { return one == nil }))
}

type anyOf []Authenticator

var _ Rechecker = anyOf(nil)

// Authenticate asks one after the other.
func (list anyOf) Authenticate(ctx context.Context, token string) (*Principal, error) {
	return list.first(func(a Authenticator) (*Principal, error) { return a.Authenticate(ctx, token) })
}

// Recheck asks those that know hashes.
func (list anyOf) Recheck(ctx context.Context, hash [sha256.Size]byte) (*Principal, error) {
	return list.first(func(a Authenticator) (*Principal, error) {
		if a, ok := a.(Rechecker); ok {
			return a.Recheck(ctx, hash)
		}
		return nil, api.ErrUnauthorized
	})
}

// first returns the first success. The error of an authenticator that cannot tell
// is returned only if no other knows the token.
func (list anyOf) first(ask func(Authenticator) (*Principal, error)) (*Principal, error) {
	result := api.ErrUnauthorized
	for _, a := range list {
		who, err := ask(a)
		if err == nil {
			return who, nil
		}
		if !errors.Is(err, api.ErrUnauthorized) {
			result = err
		}
	}
	return nil, result
}

// local returns the caller without Options.Auth: whoever they claim to be, of
// whichever tenant.
func local(r *http.Request) *Principal {
	return &Principal{Tenant: r.Header.Get("Perdure-Tenant"), Subject: cmp.Or(r.Header.Get("Perdure-As"), "local"), Scopes: []api.Scope{api.ScopeAdmin}}
}

// nobody is the caller of operations that need no token.
var nobody = &Principal{}

// admit finds out who makes a request and whether they may. No Call exists
// without it.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, op *api.Info) (*Call, error) {
	who, still, err := s.principal(w, r, op)
	if err == nil {
		err = allow(who, op)
	}
	if err != nil {
		return nil, err
	}
	about, _ := w.(*outcome)
	l := about.load()
	if l != nil {
		l.tenant = who.Tenant
	}
	if err := l.enter(who != nobody, s.buckets(r, who)...); err != nil {
		return nil, err
	}
	c := &Call{s: s, Who: who, header: w.Header(), about: about, load: l, still: still, expires: who.Expires}
	c.recheck = func(ctx context.Context) error {
		now, err := still(ctx)
		if err != nil {
			return err
		}
		if now.Tenant != who.Tenant || now.Subject != who.Subject || now.User != who.User {
			return fmt.Errorf("%w: it belongs to someone else now", api.ErrUnauthorized)
		}
		c.expires = now.Expires
		return allow(now, op)
	}
	c.Runtime = s.rt.Tenant(who.Tenant)
	if who.User != "" {
		c.Runtime = c.Runtime.User(who.User)
	}
	return c, nil
}

// buckets returns whose limits a request counts against besides the server's. A
// request with a ticket counts for whoever its token stands for.
func (s *Server) buckets(r *http.Request, who *Principal) []bucket {
	switch {
	case who == nobody:
		return []bucket{{"token", "nobody"}}
	case s.opts.Auth == nil:
		return nil
	case who.User != "":
		return []bucket{{"user", who.Tenant + "\x00" + who.User}, {"tenant", who.Tenant}}
	}
	name := who.Tenant + "\x00" + who.Subject
	if token := s.token(r); token != "" {
		sum := sha256.Sum256([]byte(token))
		name = string(sum[:])
	}
	return []bucket{{"token", name}, {"tenant", who.Tenant}}
}

// allow returns an error if someone may not perform an operation.
func allow(who *Principal, op *api.Info) error {
	if !who.May(op.Scope) {
		return fmt.Errorf("%w: %s needs the scope %s", api.ErrScope, op.Name, op.Scope)
	}
	return nil
}

// watch tells a stream when to recheck its caller: every minute, and when the
// caller's token expires. It is used by one goroutine.
type watch struct {
	*time.Timer
	c *Call
}

func (c *Call) watch() *watch { return &watch{time.NewTimer(c.untilRecheck()), c} }

func (c *Call) untilRecheck() time.Duration {
	if c.expires.IsZero() {
		return recheckEvery
	}
	return min(recheckEvery, time.Until(c.expires))
}

// recheck rechecks the caller after the timer has fired.
func (w *watch) recheck(ctx context.Context) error {
	err := w.c.recheck(ctx)
	w.Reset(w.c.untilRecheck())
	return err
}

// due rechecks the caller if the timer has fired.
func (w *watch) due(ctx context.Context) error {
	select {
	case <-w.C:
		return w.recheck(ctx)
	default:
		return nil
	}
}

// who looks up the caller, anew with each call.
type who func(context.Context) (*Principal, error)

// principal returns who makes a request, and how to look that up again.
func (s *Server) principal(w http.ResponseWriter, r *http.Request, op *api.Info) (*Principal, who, error) {
	var ask who
	token, given, err := bearer(r)
	outer := outerCall(r.Context())
	switch stream, ok := streamOf(r, op); {
	case op.Scope == api.ScopeNone:
		ask = func(context.Context) (*Principal, error) { return nobody, nil }
	case outer != nil:
		ask = outer.still
	case s.opts.Auth == nil:
		p, err := s.letIn(r)
		if err != nil {
			return nil, nil, err
		}
		ask = func(context.Context) (*Principal, error) { return vet(p, nil) }
	case err != nil:
		return nil, nil, err
	case given:
		ask = func(ctx context.Context) (*Principal, error) { return vet(s.opts.Auth.Authenticate(ctx, token)) }
	case ok && r.URL.Query().Has("ticket"):
		if ask, err = s.tickets.admit(w, r, stream); err != nil {
			return nil, nil, err
		}
	default:
		v, err := s.sessions.fromRequest(r)
		ask = v.who(s.opts.Auth)
		if err != nil && ok { // EventSource reconnects with the cookie of its ticket
			ask, err = s.tickets.admit(w, r, stream)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	p, err := ask(r.Context())
	return p, ask, err
}

// bearer returns the token of a request, and whether there is one. It comes only
// from the header Authorization: addresses are logged.
func bearer(r *http.Request) (token string, given bool, err error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", false, nil
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	token = strings.TrimLeft(token, " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,") {
		return "", true, fmt.Errorf("%w: there has to be one header Authorization, with Bearer and a token", api.ErrUnauthorized)
	}
	return token, true, nil
}

// vet returns what an Authenticator returned, if that is valid and has not expired.
func vet(p *Principal, err error) (*Principal, error) {
	switch {
	case err != nil:
		return nil, cannotTell(err)
	case p == nil:
		return nil, api.ErrUnauthorized
	case !p.Expires.IsZero() && !time.Now().Before(p.Expires):
		return nil, fmt.Errorf("%w: it has expired", api.ErrUnauthorized)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%w: %v", errPrincipal, err)
	}
	return p, nil
}

var errPrincipal = errors.New("server: a token that stands for an invalid principal")

// cannotTell returns the error of an Authenticator. An error that the API does not
// know is a problem that may pass.
func cannotTell(err error) error {
	kind := api.ProblemOf(err).Kind()
	if errors.Is(err, errPrincipal) || kind != "internal" && kind != "cancelled" {
		return err
	}
	p := *api.ProblemOf(store.ErrUnavailable)
	p.Detail = "the token cannot be checked now, and nothing was done; try again later"
	return fmt.Errorf("server: checking a token: %w (%w)", err, &p)
}
