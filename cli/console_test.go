package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
)

// TestWhereTheConsoleIs asks a site with and without routes of the program.
func TestWhereTheConsoleIs(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "api "+r.URL.EscapedPath()) })
	routes := func(pattern string) func(*http.ServeMux, *perdure.Runtime) {
		return func(mux *http.ServeMux, _ *perdure.Runtime) {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "own") })
		}
	}
	faces := []server.Face{{{Pattern: "POST /face"}}}
	for _, test := range []struct {
		name         string
		site         site
		path, accept string
		status       int
		want         string
	}{
		{"page", site{console: true}, "/console/threads", "text/html", 200, "<title>"},
		{"without a slash", site{console: true}, "/console", "text/html", 308, ""},
		{"front", site{console: true}, "/", "text/html,*/*", 302, ""},
		{"front for programs", site{console: true}, "/", "*/*", 200, "api /"},
		{"paths of the API stay as they are", site{console: true}, "/v1/memory//x", "text/html", 200, "api /v1/memory//x"},
		{"similar path", site{console: true}, "/consoles", "", 200, "api /consoles"},
		{"none", site{}, "/console/", "text/html", 200, "api /console/"},
		{"none at the front", site{}, "/", "text/html", 200, "api /"},
		{"beside own routes", site{console: true, routes: routes("/own")}, "/console/", "", 200, "<title>"},
		{"own route", site{console: true, routes: routes("/own")}, "/own", "", 200, "own"},
		{"own front", site{console: true, routes: routes("/{$}")}, "/", "text/html", 200, "own"},
		{"own console", site{console: true, routes: routes("/console/")}, "/console/", "text/html", 200, "own"},
		{"paths of the API beside own routes", site{console: true, routes: routes("/own")}, "/v1/memory//x", "", 200, "api /v1/memory//x"},
		{"everything: front", site{console: true, routes: routes("/")}, "/", "text/html", 200, "own"},
		{"everything: file", site{console: true, routes: routes("GET /")}, "/app.js", "", 200, "own"},
		{"everything: API", site{console: true, routes: routes("/")}, "/v1/threads", "", 200, "api /v1/threads"},
		{"everything: no operation", site{console: true, routes: routes("GET /")}, "/v1/nothing", "", 200, "api /v1/nothing"},
		{"everything: probe", site{console: true, routes: routes("GET /")}, "/readyz", "", 200, "api /readyz"},
		{"everything: document", site{console: true, routes: routes("/")}, "/openapi.json", "", 200, "api /openapi.json"},
		{"everything: face", site{console: true, routes: routes("/"), faces: faces}, "/face", "", 200, "api /face"},
		{"everything: console", site{console: true, routes: routes("GET /")}, "/console/", "", 200, "<title>"},
		{"everything: no console", site{routes: routes("/")}, "/console/", "", 200, "own"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil)
		r.Header.Set("Accept", test.accept)
		w := httptest.NewRecorder()
		test.site.handler(api).ServeHTTP(w, r)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s: %s is answered with %d and %.60q, want %d and %q", test.name, test.path, w.Code, w.Body, test.status, test.want)
		}
		if at := w.Header().Get("Location"); w.Code/100 == 3 && at != consolePath {
			t.Errorf("%s: it leads to %q", test.name, at)
		}
	}
}
