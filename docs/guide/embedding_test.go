package guide_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

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
	mux.Handle("/v1/", api)
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

func Example_auth() {
	p := begin(memstore.New(), greet)
	defer p.stop()
	h, srv := serveAPI(p.Runtime, server.Any(sessions{"cookie-of-ann": "ann"}, server.NewTokens(p.Runtime)))
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
	call("cookie-of-ann")
	call("guessed")
	// Output:
	// cookie-of-ann 202
	// guessed 401
}

func Example_cli() {
	code := cli.Run(context.Background(), cli.Options{
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
