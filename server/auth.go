package server

import (
	"context"
	"slices"
	"time"

	"net/http"

	"github.com/perdure/perdure/api"
)

// Principal is who makes a request.
type Principal struct {
	Tenant  string
	Subject string      // recorded as who did it
	Groups  []string    // an ask for group:NAME may be answered by its members
	Scopes  []api.Scope // what they may do
	Expires time.Time   // zero: never
}

// May reports whether the principal has a scope.
func (p *Principal) May(s api.Scope) bool {
	return s == api.ScopeNone || slices.Contains(p.Scopes, s) || slices.Contains(p.Scopes, api.ScopeAdmin)
}

// Authenticator finds out who a bearer token stands for. Its error is
// api.ErrUnauthorized, or says why it cannot tell.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (*Principal, error)
}

// local is who everyone is without Options.Auth: whoever they say.
func local(r *http.Request) *Principal {
	p := &Principal{Subject: "local", Scopes: []api.Scope{api.ScopeAdmin}}
	if as := r.Header.Get("Perdure-As"); as != "" {
		p.Subject = as
	}
	return p
}

func (s *Server) principal(r *http.Request, op *api.Info) (*Principal, error) {
	if s.opts.Auth == nil || op.Scope == api.ScopeNone {
		return local(r), nil
	}
	return nil, api.ErrUnauthorized
}

// recheck reports whether the caller may still do what was admitted: streams ask
// now and then.
func (c *call) recheck(context.Context) error { return nil }

// guard keeps out what no operation should see.
func (s *Server) guard(next http.Handler) http.Handler { return next }
