package server

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/perdure/perdure/api"
)

// router is a mux that knows its patterns, so that a test can tell that there
// is no way in but through admit.
type router struct {
	*http.ServeMux
	patterns []string
}

// Handle adds a route.
func (r *router) Handle(pattern string, h http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, h)
}

// HandleFunc adds a route.
func (r *router) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(h))
}

// face binds a route that is not Perdure's own, such as one that clients of
// another system call. Callers are admitted as those of operations are. An
// error that fn returns before it has written anything is told as a problem.
func (s *Server) face(pattern string, scope api.Scope, fn func(http.ResponseWriter, *http.Request, *call) error) {
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		panic("server: the face " + pattern + " names no method")
	}
	op := &api.Info{Name: pattern, Method: method, Path: path, Scope: scope}
	s.faces = append(s.faces, op)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(w, r, op)
		if err != nil {
			s.failFace(w, r, err, false)
			return
		}
		if err = firstError(faceConditions(r), c.names(r.PathValue("user"))); err == nil {
			err = fn(w, r, c)
		}
		if err != nil {
			s.failFace(w, r, err, pattern == adkStream && wantsStream(r))
		}
	})
}

// faceConditions refuses conditions that no face knows: without one a write is
// another one.
func faceConditions(r *http.Request) error {
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && len(r.Header.Values(name)) > 0 {
			return api.Invalid("header %s: %s knows no such condition; the routes under /v1 do", name, r.URL.Path)
		}
	}
	return nil
}

// failFace tells an error as a problem that has it in the member error too, or
// as an event where those are read: there clients of other systems look.
func (s *Server) failFace(w http.ResponseWriter, r *http.Request, err error, event bool) {
	p := s.problem(r, err)
	if event {
		data, _ := json.Marshal(map[string]string{"error": p.Error()})
		w.Header().Set("Content-Type", api.TypeEvents)
		tell(w, p, append(append([]byte("data: "), data...), "\n\n"...))
		return
	}
	data, _ := json.Marshal(struct {
		*api.Problem
		Error string `json:"error"`
	}{p, p.Error()})
	w.Header().Set("Content-Type", api.TypeProblem)
	tell(w, p, append(data, '\n'))
}
