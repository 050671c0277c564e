package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// authTokens returns the tokens of a store, as one more server of it has them.
func authTokens(t testing.TB, s store.Store) *server.Tokens {
	t.Helper()
	rt := servertest.Must(perdure.New(t.Context(), s, perdure.Options{}))(t)
	return server.NewTokens(rt)
}

// authSite starts a server whose tokens are in its store, and returns it with
// the secret of an admin of tenant acme.
func authSite(t testing.TB, o server.Options, flows ...perdure.Flow) (*servertest.Site, *server.Tokens) {
	t.Helper()
	s := memstore.New()
	tokens := authTokens(t, s)
	if o.Auth == nil {
		o.Auth = tokens
	}
	site := servertest.NewOn(t, s, o, flows...)
	site.Token = authSecret(t, tokens, "acme", "root", api.ScopeAdmin)
	return site, tokens
}

func authSecret(t testing.TB, tokens *server.Tokens, tenant, subject string, scopes ...api.Scope) string {
	t.Helper()
	made := servertest.Must(tokens.Create(t.Context(), tenant, "test", api.CreateToken{Subject: subject, Scopes: scopes}))(t)
	return made.Secret
}

func authWant(t testing.TB, a server.Authenticator, token, subject string) {
	t.Helper()
	p, err := a.Authenticate(t.Context(), token)
	switch {
	case subject == "" && !errors.Is(err, api.ErrUnauthorized):
		t.Errorf("the token is accepted or the error is another: %v, %v", p, err)
	case subject != "" && (err != nil || p.Subject != subject):
		t.Errorf("the token stands for %v, want %s: %v", p, subject, err)
	}
}

func TestTokensLiveAsLongAsTheyAreMeantTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		here, there := authTokens(t, s), authTokens(t, s)
		made := servertest.Must(here.Create(t.Context(), "acme", "root", api.CreateToken{Subject: "ann", Groups: []string{"buyers"}, Days: new(1)}))(t)
		if len(made.Secret) != 4+43 || !strings.HasPrefix(made.Secret, "pdr_") || made.By != "root" {
			t.Errorf("the new token is %+v", made)
		}
		authWant(t, here, made.Secret, "ann")
		authWant(t, there, made.Secret, "ann")
		time.Sleep(24*time.Hour - 2*time.Second)
		authWant(t, here, made.Secret, "ann")
		time.Sleep(2 * time.Second) // the cache knows it still
		authWant(t, here, made.Secret, "")
		authWant(t, there, made.Secret, "")

		other := authSecret(t, here, "acme", "bob", api.ScopeRead)
		authWant(t, there, other, "bob")
		list, err := here.List(t.Context(), "acme")
		if err != nil || len(list) != 2 || list[1].Subject != "bob" {
			t.Fatalf("the list is %v, %v", list, err)
		}
		if err := there.Revoke(t.Context(), "other", list[1].ID); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("another tenant's revoke: %v", err)
		}
		authWant(t, here, other, "bob")
		servertest.Check(t, here.Revoke(t.Context(), "acme", list[1].ID))
		authWant(t, here, other, "") // at once
		time.Sleep(5 * time.Second)  // and elsewhere soon
		authWant(t, there, other, "")
		if err := there.Revoke(t.Context(), "acme", list[1].ID); err != nil {
			t.Errorf("revoking again: %v", err)
		}
		if list, _ := there.List(t.Context(), "acme"); len(list) != 2 || list[1].Revoked.IsZero() {
			t.Errorf("the list after the revoke is %v", list)
		}
	})
}

func TestTokensThatAreNone(t *testing.T) {
	tokens := authTokens(t, memstore.New())
	good := authSecret(t, tokens, "", "ann", api.ScopeRead)
	sum := sha256.Sum256([]byte(good))
	for _, bad := range []string{"", "pdr_", "x", good + "x", good[:len(good)-1], strings.ToUpper(good), " " + good, good + "\n",
		"pdr_" + strings.Repeat("A", 43), "pdr_../../" + good[10:], hex.EncodeToString(sum[:]), strings.Repeat("pdr_", 10_000)} {
		authWant(t, tokens, bad, "")
	}
	authWant(t, tokens, good, "ann")
	for _, id := range []string{"", "/", "..", "%", hex.EncodeToString(sum[:]), strings.ToUpper(hex.EncodeToString(sum[:8])), "0000000000000000"} {
		if err := tokens.Revoke(t.Context(), "", id); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("revoking %q: %v", id, err)
		}
	}
	authWant(t, tokens, good, "ann")
}

func TestTokensThatCannotBeMade(t *testing.T) {
	tokens := authTokens(t, memstore.New())
	for name, in := range map[string]api.CreateToken{
		"no subject":         {},
		"a group as subject": {Subject: "group:buyers"},
		"control characters": {Subject: "a\nb"},
		"a long subject":     {Subject: strings.Repeat("a", 201)},
		"an unknown scope":   {Subject: "a", Scopes: []api.Scope{"root"}},
		"no scope's name":    {Subject: "a", Scopes: []api.Scope{""}},
		"an empty group":     {Subject: "a", Groups: []string{""}},
		"many groups":        {Subject: "a", Groups: make([]string, 65)},
		"days before now":    {Subject: "a", Days: new(-1)},
		"no days":            {Subject: "a", Days: new(0)},
		"no minutes":         {Subject: "a", Minutes: new(0)},
		"minutes before now": {Subject: "a", Minutes: new(-5)},
		"days and minutes":   {Subject: "a", Days: new(1), Minutes: new(1)},
		"an unseen subject":  {Subject: "ann\u200b"},
		"an unseen user":     {User: "ann\u202e"},
		"an unseen group":    {Subject: "a", Groups: []string{"staff\ufe0f"}},
		"days past calendar": {Subject: "a", Days: new(1 << 40)},
		"a long note":        {Subject: "a", Note: strings.Repeat("n", 1001)},
	} {
		if made, err := tokens.Create(t.Context(), "", "", in); !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, made, err)
		}
	}
	if list, err := tokens.List(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("the list is %v, %v", list, err)
	}
}

// TestTokensAreKeptAsHashesOnly reads all that is in the store.
func TestTokensAreKeptAsHashesOnly(t *testing.T) {
	s := memstore.New()
	secret := authSecret(t, authTokens(t, s), "acme", "ann", api.ScopeRead)
	n := 0
	for _, cell := range servertest.All(t, s.List(t.Context(), "", "")) {
		n++
		if all := cell.Key + string(cell.Value); strings.Contains(all, secret[4:]) || strings.Contains(cell.Key, "acme") {
			t.Errorf("the cell %s tells: %s", cell.Key, cell.Value)
		}
	}
	if n < 2 {
		t.Errorf("there are %d cells", n)
	}
}

// TestTokenWhoseMakingIsCutShortIsNone lets each write of the making of a token fail.
func TestTokenWhoseMakingIsCutShortIsNone(t *testing.T) {
	for fail := range 2 {
		s := memstore.New()
		tokens := authTokens(t, &authCut{Store: s, left: fail})
		if made, err := tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann"}); err == nil {
			t.Fatalf("write %d failed and there is a token: %v", fail, made)
		}
		if list, err := authTokens(t, s).List(t.Context(), "acme"); err != nil || len(list) != 0 {
			t.Errorf("after a failure of write %d the list is %v, %v", fail, list, err)
		}
	}
}

// authCut fails puts of tokens, after some.
type authCut struct {
	store.Store
	left int
}

func (c *authCut) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, "token") {
		if c.left--; c.left < 0 {
			return "", errors.New("the disk is gone")
		}
	}
	return c.Store.Put(ctx, key, value, prev)
}

func TestStoreThatDoesNotAnswerIsNoWrongToken(t *testing.T) {
	s := authDown{memstore.New()}
	tokens := authTokens(t, s)
	_, err := tokens.Authenticate(t.Context(), "pdr_"+strings.Repeat("A", 43))
	if errors.Is(err, api.ErrUnauthorized) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
	both := server.Any(servertest.People{"known": {Subject: "ann", Scopes: api.Scopes}}, tokens)
	authWant(t, both, "known", "ann")
	if _, err := both.Authenticate(t.Context(), "pdr_"+strings.Repeat("A", 43)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the error of both is %v", err)
	}
}

type authDown struct{ store.Store }

func (f authDown) Get(ctx context.Context, key string) (store.Cell, error) {
	if strings.HasPrefix(key, "token/") {
		return store.Cell{}, store.ErrUnavailable
	}
	return f.Store.Get(ctx, key)
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	sum := sha256.Sum256([]byte("the token of ann, by its hash"))
	ann := `{"hash":"sha256:` + hex.EncodeToString(sum[:]) + `","tenant":"acme","subject":"ann","groups":["buyers"],"scopes":["read"]}`
	bob := `{"secret":"the token of bob CANARY","subject":"bob","scopes":["read"]}`
	write := func(text string, mode os.FileMode) {
		t.Helper()
		os.Remove(path)
		servertest.Check(t, os.WriteFile(path, []byte(text), mode))
	}
	write("["+ann+","+bob+"]", 0o600)
	a := servertest.Must(server.TokenFile(path))(t)
	authWant(t, a, "the token of ann, by its hash", "ann")
	authWant(t, a, "the token of bob CANARY", "bob")
	authWant(t, a, hex.EncodeToString(sum[:]), "")
	authWant(t, a, "sha256:"+hex.EncodeToString(sum[:]), "")
	authWant(t, a, "", "")

	write("["+ann+"]", 0o644) // no secret in it
	if _, err := server.TokenFile(path); err != nil {
		t.Errorf("a file of hashes that all can read: %v", err)
	}
	write("["+bob+"]", 0o640)
	if _, err := server.TokenFile(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file of secrets that others can read: %v", err)
	}
	for name, text := range map[string]string{
		"nothing":           ``,
		"no list":           `{}`,
		"an unknown member": `[{"secret":"CANARY CANARY CANARY","subject":"a","scopes":["read"],"admin":true}]`,
		"another case":      `[{"secret":"CANARY CANARY CANARY","Subject":"a","scopes":["read"]}]`,
		"twice":             `[{"secret":"CANARY CANARY CANARY","subject":"a","subject":"b","scopes":["read"]}]`,
		"a number":          `[{"secret":12345678901234567890,"subject":"a","scopes":["read"]}]`,
		"short":             `[{"secret":"CANARY","subject":"a","scopes":["read"]}]`,
		"both":              `[{"secret":"CANARY CANARY CANARY",` + ann[1:] + `]`,
		"neither":           `[{"subject":"a","scopes":["read"]}]`,
		"no subject":        `[{"secret":"CANARY CANARY CANARY","scopes":["read"]}]`,
		"no scopes":         `[{"secret":"CANARY CANARY CANARY","subject":"a"}]`,
		"an unknown scope":  `[{"secret":"CANARY CANARY CANARY","subject":"a","scopes":["all"]}]`,
		"half a hash":       `[{"hash":"sha256:12","subject":"a","scopes":["read"]}]`,
		"another hash":      `[{"hash":"md5:` + strings.Repeat("0", 64) + `","subject":"a","scopes":["read"]}]`,
		"one token twice":   `[` + bob + `,` + bob + `]`,
		"cut short":         `[` + bob,
		"more behind it":    `[` + bob + `] []`,
	} {
		write(text, 0o600)
		if _, err := server.TokenFile(path); err == nil || strings.Contains(err.Error(), "CANARY") || strings.Contains(err.Error(), "1234567890") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := server.TokenFile(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestTokenFileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens.json")
		write := func(subject string) {
			t.Helper()
			data, _ := json.Marshal([]map[string]any{{"secret": "a secret that is long enough", "subject": subject, "scopes": []string{"read"}, "expires": time.Now().Add(time.Hour)}})
			if subject == "" {
				data = []byte("[")
			}
			servertest.Check(t, errors.Join(os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path)))
			time.Sleep(time.Second)
		}
		write("ann")
		a := servertest.Must(server.TokenFile(path))(t)
		authWant(t, a, "a secret that is long enough", "ann")
		write("bob")
		authWant(t, a, "a secret that is long enough", "bob")
		var log bytes.Buffer
		rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}))(t)
		defer server.New(rt, server.Options{Auth: server.Any(a), Logger: slog.New(slog.NewTextHandler(&log, nil))}).Close()

		for how, spoil := range map[string]func() error{
			"broken":          func() error { write(""); return nil },
			"missing":         func() error { return os.Remove(path) },
			"writable":        func() error { return os.Chmod(path, 0o622) },
			"folder writable": func() error { return os.Chmod(filepath.Dir(path), 0o777) },
		} {
			write("bob")
			servertest.Check(t, errors.Join(os.Chmod(filepath.Dir(path), 0o700), spoil()))
			log.Reset()
			for range 3 { // what it last had counts, and that is said once
				time.Sleep(time.Second)
				authWant(t, a, "a secret that is long enough", "bob")
				authWant(t, a, "another one of some length", "")
			}
			if says := log.String(); strings.Count(says, "level=ERROR") != 1 {
				t.Errorf("the file is %s, and the log says %q", how, says)
			}
			if _, err := server.TokenFile(path); err == nil {
				t.Errorf("a file that is %s is taken", how)
			}
			servertest.Check(t, os.Chmod(filepath.Dir(path), 0o700))
			write("bob")
			authWant(t, a, "a secret that is long enough", "bob")
			if !strings.Contains(log.String(), "again") {
				t.Errorf("the file is not %s any more, and the log says %q", how, log.String())
			}
		}
		write("cid")
		authWant(t, a, "a secret that is long enough", "cid")
		time.Sleep(time.Hour)
		authWant(t, a, "a secret that is long enough", "")
	})
}

// heldStore is a store whose readers of a token are held up behind the read.
type heldStore struct {
	store.Store
	read, goOn chan struct{} // nil: they are not
}

func (s *heldStore) Get(ctx context.Context, key string) (store.Cell, error) {
	cell, err := s.Store.Get(ctx, key)
	if s.read != nil && strings.HasPrefix(key, "token/") {
		s.read <- struct{}{}
		<-s.goOn
	}
	return cell, err
}

func TestATokenThatIsRevokedWhileItIsLookedUpIsNotKept(t *testing.T) {
	s := &heldStore{Store: memstore.New()}
	tokens := authTokens(t, s)
	made := servertest.Must(tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann"}))(t)
	held := &heldStore{Store: s.Store, read: make(chan struct{}), goOn: make(chan struct{})}
	*s = *held
	done := make(chan error, 1)
	go func() {
		_, err := tokens.Authenticate(t.Context(), made.Secret)
		done <- err
	}()
	<-s.read
	s.read = nil
	servertest.Check(t, tokens.Revoke(t.Context(), "acme", made.ID))
	close(s.goOn)
	if err := <-done; err != nil {
		t.Errorf("what was looked up before is refused: %v", err)
	}
	authWant(t, tokens, made.Secret, "")
}

// A file that is written twice within a tick of its file system's clock is read
// twice.
func TestATokenFileIsReadAgainThoughItsTimeIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens.json")
		then := time.Now()
		write := func(subject string) {
			t.Helper()
			data := fmt.Appendf(nil, `[{"secret":"a secret that is long enough","subject":%q,"scopes":["read"]}]`, subject)
			servertest.Check(t, errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, then, then)))
		}
		write("ann")
		a := servertest.Must(server.TokenFile(path))(t)
		write("bob")
		time.Sleep(time.Second)
		authWant(t, a, "a secret that is long enough", "bob")
	})
}
