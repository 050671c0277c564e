package cli

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server"
)

func TestDiffIsReadable(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		p.run("", "answer", ask, "--approve").want(exitOK)
		p.ended("t")
		golden(t, "diff.txt", steady(p.run("", "diff", "t", "6", "0").want(exitOK).out))
		p.run("", "diff", "t", "6", "6").want(exitOK, "no difference")
		p.run("", "diff", "t", "six").want(exitUsage, "FROM")
		p.run("", "diff", "t", "6", "999").want(exitUsage)
	})
}

func TestForkRewindAndState(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		p.run("", "state", "t").want(exitOK, `note = "asked for tea"`, "waits for Buy tea?")
		p.run("", "state", "t", "note").want(exitOK).only("asked for tea\n")
		p.run("", "state", "t", "note", "--json").want(exitOK).only("\"asked for tea\"\n")
		p.run("", "state", "t", "nope").want(exitNotFound, "perdure state t")
		p.run("", "state", "t", "--at", "2").want(exitOK, "thread t at 2")
		p.run("", "fork", "t", "--as", "other", "--state", "note=changed").want(exitOK, "is paused: perdure resume other").only("other\n")
		p.run("", "state", "other", "note").want(exitOK).only("changed\n")
		p.run("", "resume", "other").want(exitOK)
		p.run("", "fork", "t", "--as", "third", "--resume").want(exitOK, "goes on")
		p.run("", "fork", "t", "--as", "third", "--at", "2").want(exitConflict)
		p.run("", "answer", ask, "--approve").want(exitOK)
		p.ended("t")
		p.run("", "rewind", "t", "1").want(exitOK, "as it was at 1", "not undone", "/buy")
		p.run("", "state", "t").want(exitOK, "thread t at")
		p.run("", "rewind", "t").want(exitUsage, "usage: perdure rewind THREAD SEQ")
		p.run("", "show", "t").want(exitOK, "1 run was rewound")
	})
}

func TestControlCommands(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.asked("t", "order", "tea")
		p.run("", "resume", "t").want(exitOK, "nothing to do", "--approve")
		p.run("", "pause", "t", "--reason", "later", "--by", "ada").want(exitOK, "paused")
		p.run("", "show", "t").want(exitOK, "paused by ada: later")
		p.run("", "resume", "t").want(exitOK, "is")
		p.run("", "cancel", "t", "newest").want(exitOK)
		p.run("", "run", "fail", "--thread", "f").want(exitFailed)
		p.run("", "retry", "f").want(exitOK)
		p.run("", "retry", "nope").want(exitNotFound)
		p.run("", "pause").want(exitUsage, "usage: perdure pause THREAD [RUN]")
		p.run("", "signal", "t").want(exitUsage, "NAME")
		p.run("", "flows").want(exitOK).only("clerk\necho\nfail\nflaky\norder\nstanding\nvault\nwait\n")
	})
}

func TestMemoryCommands(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "memory", "put", "users/ada/tone", "friendly").want(exitOK, "remembered")
		p.run(`{"a": 1}`, "memory", "put", "users/ada/odd%2Fkey", "-", "--ttl", "1000").want(exitOK)
		p.run("", "memory", "get", "users/ada/tone").want(exitOK).only("friendly\n")
		p.run("", "memory", "list", "users").want(exitOK, "users/ada/tone", "users/ada/odd%2Fkey", `{"a":1}`)
		p.run("", "memory", "put", "users/ada/tone", "rude", "--create").want(exitConflict)
		p.run("", "memory", "put", "users/ada/tone", "rude", "--if-match", "nope").want(exitConflict)
		p.run("", "memory", "delete", "users/ada/tone").want(exitOK)
		p.run("", "memory", "get", "users/ada/tone").want(exitNotFound)
		p.run("", "memory", "get", "users//tone").want(exitUsage, "no place")
		p.run("", "memory", "list", "nobody").want(exitOK, "nothing is remembered")
		p.run("", "memory", "forget").want(exitUsage, "there is no perdure memory forget")
	})
}

func TestTheFirstTokenIsMadeOnTheStore(t *testing.T) {
	p := stored(t)
	r := p.run("", "token", "create", "ada", "--scopes", "admin", "--groups", "finance", "--days", "3", "--note", "mine", "--json").want(exitOK)
	var made struct{ ID, Secret, Subject string }
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || made.Secret == "" || made.Subject != "ada" {
		t.Fatalf("%v: %s", err, r.out)
	}
	list := p.run("", "token", "list").want(exitOK, made.ID, "ada", "admin", "finance", "mine")
	if strings.Contains(list.out, made.Secret) {
		t.Errorf("the secret is listed:\n%s", list.out)
	}
	p.run("", "token", "revoke", made.ID).want(exitOK)
	p.run("", "token", "list").want(exitOK, "revoked")
	p.run("", "token", "revoke", "nope").want(exitNotFound)
	p.run("", "token", "create").want(exitUsage, "usage: perdure token create SUBJECT")
	p.run("", "token", "create", "--user", "bob", "--minutes", "5", "--json").want(exitOK, `"user": "bob"`, `"subject": "bob"`, `"run"`)
	p.run("", "token", "create", "ada", "--user", "bob").want(exitUsage, "acts as that user")
	p.run("", "version").want(exitOK, "perdure ", "go1.")
}

// guarded lets nobody in but those with a token, who may only look.
type guarded struct{}

func (guarded) Authenticate(_ context.Context, token string) (*server.Principal, error) {
	if token != "valid" {
		return nil, api.ErrUnauthorized
	}
	return &server.Principal{Subject: "ada", Scopes: []api.Scope{api.ScopeRead}}, nil
}

func TestWhatIsNotAllowedHasACode(t *testing.T) {
	p := served(t)
	s := httptest.NewServer(server.New(p.rt, server.Options{Auth: guarded{}}))
	defer s.Close()
	p.flags = []string{"--server", s.URL}
	p.run("", "threads").want(exitAuth, "--token", "$PERDURE_TOKEN")
	p.run("", "threads", "--token", "wrong").want(exitAuth)
	p.run("", "threads", "--token", "valid").want(exitOK)
	p.run("", "run", "echo", "x", "--token", "valid").want(exitAuth, "scope run")
	p.setUp = func(a *app) {
		a.term.Env = func(name string) string { return map[string]string{"PERDURE_TOKEN": "valid"}[name] }
	}
	p.run("", "threads").want(exitOK)
}
