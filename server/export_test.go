package server

import (
	"context"
	"net/http"

	"github.com/perdure/perdure/api"
)

// Patterns returns all routes of the mux.
func (s *Server) Patterns() []string { return s.mux.patterns }

// Faces returns the routes besides those of operations.
func (s *Server) Faces() []*api.Info { return s.faces }

// Bound reports whether an operation has a handler.
func (s *Server) Bound(name string) bool { return s.bound[name] }

// Caller is what a face sees of a call.
type Caller struct {
	Who     *Principal
	Recheck func(context.Context) error
}

// AddFace binds a route.
func (s *Server) AddFace(pattern string, scope api.Scope, fn func(http.ResponseWriter, *http.Request, Caller) error) {
	s.bindRoute(Route{Pattern: pattern, Scope: scope, Serve: func(w http.ResponseWriter, r *http.Request, c *Call) error {
		return fn(w, r, Caller{c.Who, c.recheck})
	}})
}

// Admit asks who makes a request to an operation.
func (s *Server) Admit(w http.ResponseWriter, r *http.Request, op *api.Info) (Caller, error) {
	c, err := s.admit(w, r, op)
	if err != nil {
		return Caller{}, err
	}
	return Caller{c.Who, c.recheck}, nil
}

// Used returns what is under way at the server.
func (s *Server) Used() Limits {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.used[bucket{kind: "server"}]
}
