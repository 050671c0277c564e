package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/store"
)

func (s *Server) userRoutes() {
	handle(s, api.UsersData, func(ctx context.Context, c *Call, in *api.OneUser) (*perdure.UserData, error) {
		return c.Runtime.UserData(ctx, in.User)
	})
	handle(s, api.UsersErase, s.eraseUser)
	handle(s, api.UsersReceipt, func(ctx context.Context, c *Call, in *api.OneUser) (*perdure.Receipt, error) {
		rc, err := c.Runtime.UserReceipt(ctx, in.User)
		if errors.Is(err, perdure.ErrNothingToDo) {
			return nil, fmt.Errorf("%w: there is no receipt, since nothing of this user was erased as a whole", api.ErrNotFound)
		}
		return rc, err
	})
}

// eraseUser erases a user. Tokens go first, so that the user starts nothing more, unless
// it is the user who asks: they may have to ask again.
func (s *Server) eraseUser(ctx context.Context, c *Call, in *api.EraseUser) (*perdure.Receipt, error) {
	if in.User == "" {
		return nil, api.Invalid("no user is given")
	}
	self := c.Who.Subject == in.User
	if !self {
		if err := s.forgetUser(ctx, c.Who.Tenant, in.User); err != nil {
			return nil, err
		}
	}
	receipt, err := c.Runtime.EraseUser(ctx, in.User, perdure.EraseUserOptions{By: c.Who.Subject, Reason: in.Reason})
	if err == nil && self {
		err = s.forgetUser(ctx, c.Who.Tenant, in.User)
	}
	return receipt, err
}

// forgetUser removes the tokens and tickets that are limited to a user.
func (s *Server) forgetUser(ctx context.Context, tenant, user string) error {
	if err := NewTokens(s.rt).EraseUser(ctx, tenant, user); err != nil {
		return err
	}
	if s.tokens != nil {
		s.tokens.forgetAll()
	}
	return s.tickets.eraseUser(ctx, tenant, user)
}

// EraseUser removes the tokens of a tenant that are limited to a user, or have the
// user as their subject, including expired and revoked ones. It can be repeated.
func (t *Tokens) EraseUser(ctx context.Context, tenant, user string) error {
	if err := t.moved(ctx); err != nil {
		return err
	}
	var index []store.Cell
	for cell, err := range t.store.List(ctx, t.index(tenant), "") {
		if err != nil {
			return fmt.Errorf("server: listing tokens: %w", err)
		}
		index = append(index, cell)
	}
	for _, cell := range index {
		r, version, err := t.get(ctx, string(cell.Value))
		if err != nil {
			return err
		}
		if r == nil || r.Tenant != tenant || r.User != user && r.Subject != user {
			continue
		}
		// The index goes last: it leads to the token.
		if err := t.store.Delete(ctx, tokenCells+string(cell.Value), version); err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("server: erasing a token: %w", err)
		}
		t.forget(string(cell.Value))
		if err := t.store.Delete(ctx, cell.Key, cell.Version); err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("server: erasing a token: %w", err)
		}
	}
	return t.kept(ctx)
}

// forgetAll empties the cache.
func (t *Tokens) forgetAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.seen)
	t.revoked++
}

// eraseUser removes the tickets and cookies of a tenant's user.
func (t *tickets) eraseUser(ctx context.Context, tenant, user string) error {
	var own []store.Cell
	for cell, err := range t.store.List(ctx, ticketCells, "") {
		if err != nil {
			return fmt.Errorf("server: listing tickets: %w", err)
		}
		p := new(pass)
		if json.Unmarshal(cell.Value, p) == nil && p.Tenant == tenant && (p.User == user || p.Subject == user) {
			own = append(own, cell)
		}
	}
	for _, cell := range own {
		if err := t.store.Delete(ctx, cell.Key, cell.Version); err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("server: erasing a ticket: %w", err)
		}
	}
	return nil
}
