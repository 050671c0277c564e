package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/server"
)

// sessions are the users of a program, by their tokens.
type sessions map[string]string

func (s sessions) Authenticate(_ context.Context, token string) (*server.Principal, error) {
	user, ok := s[token]
	if !ok {
		return nil, api.ErrUnauthorized
	}
	return &server.Principal{Subject: user, User: user, Scopes: []api.Scope{api.ScopeRead}}, nil
}

// A program's own Auth lets in its users, and the operator gets in as before.
func TestOwnAuthLetsInTheOperator(t *testing.T) {
	p := stored(t)
	home := t.TempDir()
	env := func(name string) string {
		if name == "XDG_STATE_HOME" {
			return home
		}
		return ""
	}
	p.setUp = func(a *app) { a.term.Env = env }
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(p.run("", "token", "create", "ops", "--scopes", "admin", "--json").out), &made); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		args  []string
		store int // status of a token of the store
	}{
		{[]string{"serve"}, 200},
		{[]string{"serve", "--auth", "none"}, 401},
		{[]string{"dev"}, 200},
	} {
		ctx, stop := context.WithCancel(t.Context())
		out, in := io.Pipe()
		a := testApp(terminal.Terminal{Out: in, Err: in, Env: env}, p.flows...)
		a.opts.Server.Auth = sessions{"session-of-ann": "ann"}
		ended := make(chan int, 1)
		go func() {
			ended <- a.run(ctx, append(append(one.args, "--addr", "127.0.0.1:0"), p.flags...))
			in.Close()
		}()
		address := ""
		lines := bufio.NewScanner(out)
		for address == "" && lines.Scan() {
			address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(lines.Text())
		}
		go io.Copy(io.Discard, out)
		for token, want := range map[string]int{"session-of-ann": 200, made.Secret: one.store, "guessed": 401} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/v1/threads", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%v answers %q with %s, want %d", one.args, token, resp.Status, want)
			}
		}
		if one.args[0] == "dev" {
			(&place{t: t, setUp: p.setUp, flags: []string{"--server", address}}).run("", "threads").want(exit.OK)
		}
		stop()
		if code := <-ended; code != exit.OK {
			t.Errorf("%v ends with %d", one.args, code)
		}
	}
	p.setUp = func(a *app) { a.opts.Server.Auth = sessions{} }
	p.run("", "dev", "--open").want(exit.BadUsage, "without --open")
}

// A server that nobody can enter yet says so, and how to create a token.
func TestServeSaysThatThereIsNoToken(t *testing.T) {
	p := stored(t)
	for _, says := range []bool{true, false} {
		ctx, stop := context.WithCancel(t.Context())
		var lines buffer
		p.setUp = func(a *app) {
			a.opts.Runtime.Logger = slog.New(stopAt{slog.NewTextHandler(&lines, nil), "serving", stop})
		}
		p.runIn(ctx, "", "serve", "--addr", "127.0.0.1:0").want(exit.OK)
		if strings.Contains(lines.String(), "token create me --scopes admin --store "+p.flags[1]) != says {
			t.Errorf("with a token: %v; the log is %s", !says, &lines)
		}
		p.setUp = nil
		p.run("", "token", "create", "me", "--scopes", "admin", "--tenant", "acme")
	}
}
