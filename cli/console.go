package cli

import (
	"net/http"
	"strings"

	"github.com/perdure/perdure/console"
)

// consolePath is where dev and serve have the console.
const consolePath = "/console/"

// handler adds the program's own routes and the console to the API. If the program
// has something at / or /console/ itself, that is there instead.
func (s *site) handler(api http.Handler) http.Handler {
	next, taken := api, func(*http.Request) bool { return false }
	if s.routes != nil { // otherwise the API gets paths as they are: a mux would clean them
		mux := http.NewServeMux()
		mux.Handle("/", api)
		s.routes(mux, s.rt)
		next = mux
		taken = func(r *http.Request) bool {
			_, pattern := mux.Handler(r)
			return pattern != "/"
		}
	}
	if !s.console {
		return next
	}
	pages := console.Handler(console.Options{Base: consolePath})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below := strings.HasPrefix(r.URL.Path+"/", consolePath)
		front := r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
		switch {
		case !below && !front || taken(r):
			next.ServeHTTP(w, r)
		case front:
			http.Redirect(w, r, consolePath, http.StatusFound)
		default:
			pages.ServeHTTP(w, r)
		}
	})
}
