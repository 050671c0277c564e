package cli

import (
	"net/http"
	"strings"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/console"
)

// consolePath is where dev and serve have the console.
const consolePath = "/console/"

// handler adds the program's own routes and the console to the rest, the API. If the program
// has something at / or /console/ itself, that is there instead.
func (s *site) handler(rest http.Handler) http.Handler {
	own, owns := http.NewServeMux(), func(*http.Request) bool { return false }
	if s.routes != nil {
		s.routes(own, s.rt)
		claimed := s.claims()
		owns = func(r *http.Request) bool {
			_, pattern := own.Handler(r)
			if i := strings.Index(pattern, "/"); i >= 0 && pattern[i:] == "/" { // such as that of a file server: what is left
				return !claimed(r)
			}
			return pattern != ""
		}
	}
	pages := console.Handler(console.Options{Base: consolePath})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		front := r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
		switch {
		case owns(r):
			own.ServeHTTP(w, r)
		case s.console && front:
			http.Redirect(w, r, consolePath, http.StatusFound)
		case s.console && belowConsole(r):
			pages.ServeHTTP(w, r)
		default: // the API gets paths as they are: a mux would clean them
			rest.ServeHTTP(w, r)
		}
	})
}

func belowConsole(r *http.Request) bool { return strings.HasPrefix(r.URL.Path+"/", consolePath) }

// claims returns a function that tells which requests a route of the program for
// everything does not get: those for the API, its faces and the console.
func (s *site) claims() func(*http.Request) bool {
	known := http.NewServeMux()
	for _, op := range api.All() {
		known.Handle(op.Method+" "+op.Path, http.NotFoundHandler())
	}
	for _, face := range s.faces {
		for _, route := range face {
			known.Handle(route.Pattern, http.NotFoundHandler())
		}
	}
	return func(r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/v1/") || s.console && belowConsole(r) {
			return true
		}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			asked := *r
			asked.Method = method
			if _, pattern := known.Handler(&asked); pattern != "" {
				return true
			}
		}
		return false
	}
}
