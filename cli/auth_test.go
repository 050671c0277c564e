package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
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
	if user == "boss" {
		return &server.Principal{Tenant: "acme", Subject: user, Scopes: []api.Scope{api.ScopeAdmin}}, nil
	}
	return &server.Principal{Subject: user, User: user, Scopes: []api.Scope{api.ScopeRead}}, nil
}

// A program's own Auth lets in its users and, as far as they ask for it, operators. Tokens
// of the store, which an administrator of a tenant could create in anyone's name, are
// taken and created only with --auth store.
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
	const secret = "a-secret-of-a-file-of-tokens"
	file := filepath.Join(home, "tokens.json")
	if err := os.WriteFile(file, []byte(`[{"secret": "`+secret+`", "subject": "ops", "scopes": ["admin"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		args   []string
		store  int // status of a token of the store
		file   int // status of a token of a file
		create int // status of an administrator who creates a token
	}{
		{[]string{"serve"}, 401, 401, 404},
		{[]string{"serve", "--tokens", file}, 401, 200, 404},
		{[]string{"serve", "--auth", "none"}, 401, 401, 404},
		{[]string{"serve", "--auth", "store"}, 200, 401, 201},
		{[]string{"serve", "--auth", "store", "--tokens", file}, 200, 200, 201},
		{[]string{"dev"}, 401, 401, 404},
	} {
		ctx, stop := context.WithCancel(t.Context())
		out, in := io.Pipe()
		a := testApp(terminal.Terminal{Out: in, Err: in, Env: env}, p.flows...)
		a.opts.Server.Auth = sessions{"session-of-ann": "ann", "session-of-boss": "boss"}
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
		status := func(method, path, token, body string) int {
			r, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		for token, want := range map[string]int{"session-of-ann": 200, made.Secret: one.store, secret: one.file, "guessed": 401} {
			if got := status(http.MethodGet, "/v1/threads", token, ""); got != want {
				t.Errorf("%v answers %q with %d, want %d", one.args, token, got, want)
			}
		}
		if got := status(http.MethodPost, "/v1/tokens", "session-of-boss", `{"subject": "ann", "groups": ["finance"]}`); got != one.create {
			t.Errorf("%v answers an administrator who creates a token with %d, want %d", one.args, got, one.create)
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
