package server

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

func (s *Server) tokenRoutes() {
	handle(s, api.TokensCreate, s.createToken)
	handle(s, api.TokensList, s.listTokens)
	handle(s, api.TokensRevoke, s.revokeToken)
	raw(s, api.TicketsCreate, s.createTicket)
}

// tokensOf returns the tokens that an Authenticator asks, and those of the
// store where there is no Authenticator yet. Nil: a token made here would never
// be accepted.
func tokensOf(rt *perdure.Runtime, a Authenticator) *Tokens {
	switch a := a.(type) {
	case nil:
		return NewTokens(rt)
	case *Tokens:
		return a
	case anyOf:
		for _, one := range a {
			if t := tokensOf(rt, one); t != nil {
				return t
			}
		}
	}
	return nil
}

func (s *Server) keptTokens() (*Tokens, error) {
	if s.tokens == nil {
		return nil, fmt.Errorf("%w: this server's tokens are not kept in its store", api.ErrNotFound)
	}
	return s.tokens, nil
}

func (s *Server) createToken(ctx context.Context, c *Call, in *api.CreateToken) (*api.NewToken, error) {
	t, err := s.keptTokens()
	if err != nil {
		return nil, err
	}
	tenant := c.Who.Tenant
	switch {
	case in.Tenant == "" || in.Tenant == tenant:
	case s.opts.Auth == nil: // whoever is here may do anything, also make the first token of a tenant
		tenant = in.Tenant
	default:
		return nil, fmt.Errorf("%w: a token is made for the own tenant only", api.ErrScope)
	}
	return t.Create(ctx, tenant, c.Who.Subject, *in)
}

func (s *Server) listTokens(ctx context.Context, c *Call, _ *api.Nothing) (*api.TokenList, error) {
	t, err := s.keptTokens()
	if err != nil {
		return nil, err
	}
	tokens, err := t.List(ctx, c.Who.Tenant)
	return &api.TokenList{Tokens: tokens}, err
}

func (s *Server) revokeToken(ctx context.Context, c *Call, in *api.OneToken) (*api.None, error) {
	t, err := s.keptTokens()
	if err != nil {
		return nil, err
	}
	return nil, t.Revoke(ctx, c.Who.Tenant, in.ID)
}
