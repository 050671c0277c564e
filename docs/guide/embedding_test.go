package guide_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/console"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

var greet = perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
	return perdure.Step(ctx, "greet", func(context.Context) (string, error) { return "hello " + name, nil })
})

// serveAPI serves the API and the console beside a program's own routes.
func serveAPI(rt *perdure.Runtime, auth server.Authenticator) (http.Handler, *server.Server) {
	api := server.New(rt, server.Options{Auth: auth})
	mux := http.NewServeMux()
	for _, path := range []string{"/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json"} {
		mux.Handle(path, api)
	}
	mux.Handle("/console/", console.Handler(console.Options{}))
	mux.HandleFunc("GET /about", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "greetings") })
	return mux, api
}

// sessions knows who is logged in to the program.
type sessions map[string]string

func (s sessions) Authenticate(_ context.Context, token string) (*server.Principal, error) {
	user, ok := s[token]
	if !ok {
		return nil, api.ErrUnauthorized
	}
	return &server.Principal{
		Tenant:  "acme",
		Subject: user, // recorded as the author of what is done
		User:    user, // sees only her own threads
		Scopes:  []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer},
	}, nil
}

// withSession takes the token of a request from the cookie that the program gave to
// its user's browser. The cookie comes with requests of any page, so those that other
// sites make are refused.
func withSession(next http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie("session"); err == nil && r.Header.Get("Authorization") == "" {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+c.Value)
		}
		next.ServeHTTP(w, r)
	}))
}

func Example_auth() {
	p := begin(memstore.New(), greet)
	defer p.stop()
	auth := server.Any(sessions{"session-of-ann": "ann"}, server.NewTokens(p.Runtime))
	h, srv := serveAPI(p.Runtime, auth)
	site := httptest.NewServer(h)
	defer site.Close()
	defer srv.Close()

	call := func(token string) {
		r := must(http.NewRequest("POST", site.URL+"/v1/runs", strings.NewReader(`{"flow":"greet","input":"ann"}`)))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		resp := must(http.DefaultClient.Do(r))
		resp.Body.Close()
		fmt.Println(token, resp.StatusCode)
	}
	call("session-of-ann")
	call("guessed")
	// Output:
	// session-of-ann 202
	// guessed 401
}

func Example_cookie() {
	p := begin(memstore.New(), greet)
	defer p.stop()
	h, srv := serveAPI(p.Runtime, sessions{"session-of-ann": "ann"})
	defer srv.Close()
	mux := http.NewServeMux()
	mux.Handle("/v1/", withSession(h))

	call := func(method, path, cookie, from string) {
		r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(`{"flow":"greet","input":"ann"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", from)
		r.AddCookie(&http.Cookie{Name: "session", Value: cookie})
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(method, path, cookie, from, w.Code)
	}
	call("POST", "/v1/runs", "session-of-ann", "same-origin")
	call("GET", "/v1/threads", "session-of-ann", "same-origin")
	call("GET", "/v1/threads", "guessed", "same-origin")
	call("POST", "/v1/runs", "session-of-ann", "cross-site")
	// Output:
	// POST /v1/runs session-of-ann same-origin 202
	// GET /v1/threads session-of-ann same-origin 200
	// GET /v1/threads guessed same-origin 401
	// POST /v1/runs session-of-ann cross-site 403
}

func Example_probes() {
	p := begin(memstore.New(), greet)
	defer p.stop()
	h, srv := serveAPI(p.Runtime, sessions{})
	defer srv.Close()
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json", "/about", "/nothing"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /healthz 200
	// /readyz 200
	// /metrics 401
	// /openapi.json 200
	// /about 200
	// /nothing 404
}

func Example_cli() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := cli.Run(ctx, cli.Options{
		Args: []string{"run", "greet", "ann", "--store", "memory:"}, // nil means os.Args
		Routes: func(mux *http.ServeMux, rt *perdure.Runtime) {
			mux.HandleFunc("POST /hooks/greet", func(w http.ResponseWriter, r *http.Request) {
				_, err := rt.Start(r.Context(), perdure.StartRequest{
					Flow: "greet", Input: r.FormValue("name"), Key: r.Header.Get("X-Delivery")})
				if err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
				}
			})
		},
	}, greet)
	fmt.Println("exit code", code)
	// Output:
	// hello ann
	// exit code 0
}
