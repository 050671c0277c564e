package cli

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/server"
)

func TestDiffIsReadable(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		p.run("", "answer", ask, "--approve").want(exit.OK)
		p.ended("t")
		golden(t, "diff.txt", steady(p.run("", "diff", "t", "6", "0").want(exit.OK).out))
		p.run("", "diff", "t", "6", "6").want(exit.OK, "no difference")
		p.run("", "diff", "t", "six").want(exit.BadUsage, "FROM")
		p.run("", "diff", "t", "6", "999").want(exit.BadUsage)
	})
}

func TestForkRewindAndState(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		p.run("", "state", "t").want(exit.OK, `note = "asked for tea"`, "waits for Buy tea?")
		p.run("", "state", "t", "note").want(exit.OK).only("asked for tea\n")
		p.run("", "state", "t", "note", "--json").want(exit.OK).only("\"asked for tea\"\n")
		p.run("", "state", "t", "nope").want(exit.NotFound, "perdure state t")
		p.run("", "state", "t", "--at", "2").want(exit.OK, "thread t at 2")
		p.run("", "fork", "t", "--as", "other", "--state", "note=changed").want(exit.OK, "is paused: perdure resume other").only("other\n")
		p.run("", "state", "other", "note").want(exit.OK).only("changed\n")
		p.run("", "resume", "other").want(exit.OK)
		p.run("", "fork", "t", "--as", "third", "--resume").want(exit.OK, "continues")
		p.run("", "fork", "t", "--as", "third", "--at", "2").want(exit.Conflict)
		p.run("", "answer", ask, "--approve").want(exit.OK)
		p.ended("t")
		p.run("", "rewind", "t", "1").want(exit.OK, "as it was at 1", "not undone", "/buy")
		p.run("", "state", "t").want(exit.OK, "thread t at")
		p.run("", "rewind", "t").want(exit.BadUsage, "usage: perdure rewind THREAD SEQ")
		p.run("", "show", "t").want(exit.OK, "1 run was rewound")
	})
}

func TestControlCommands(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.asked("t", "order", "tea")
		p.run("", "resume", "t").want(exit.Conflict, "nothing to do", "--approve")
		p.run("", "resume", "t", "--json").want(exit.Conflict, `"resumed": false`)
		p.run("", "pause", "t", "--reason", "later", "--by", "ada").want(exit.OK, "paused")
		p.run("", "show", "t").want(exit.OK, "paused by ada: later")
		p.run("", "resume", "t").want(exit.OK, "is")
		p.run("", "cancel", "t", "newest").want(exit.OK)
		p.run("", "run", "fail", "--thread", "f").want(exit.Failed)
		p.run("", "retry", "f").want(exit.OK)
		p.run("", "retry", "nope").want(exit.NotFound)
		p.run("", "pause").want(exit.BadUsage, "usage: perdure pause THREAD [RUN]")
		p.run("", "signal", "t").want(exit.BadUsage, "NAME")
		p.run("", "flows").want(exit.OK).only("clerk\necho\nfail\nflaky\norder\nstanding\nvault\nwait\n")
	})
}

func TestMemoryCommands(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "memory", "put", "users/ada/tone", "friendly").want(exit.OK, "remembered")
		p.run(`{"a": 1}`, "memory", "put", "users/ada/odd%2Fkey", "-", "--ttl", "1000").want(exit.OK)
		p.run("", "memory", "get", "users/ada/tone").want(exit.OK).only("friendly\n")
		p.run("", "memory", "list", "users").want(exit.OK, "users/ada/tone", "users/ada/odd%2Fkey", `{"a":1}`)
		p.run("", "memory", "put", "users/ada/tone", "rude", "--create").want(exit.Conflict)
		p.run("", "memory", "put", "users/ada/tone", "rude", "--if-match", "nope").want(exit.Conflict)
		p.run("", "memory", "delete", "users/ada/tone").want(exit.OK)
		p.run("", "memory", "get", "users/ada/tone").want(exit.NotFound)
		p.run("", "memory", "get", "users//tone").want(exit.BadUsage, "not a place")
		p.run("", "memory", "list", "nobody").want(exit.OK, "nothing is remembered")
		p.run("", "memory", "forget").want(exit.BadUsage, "there is no perdure memory forget")
	})
}

func TestTheFirstTokenIsMadeOnTheStore(t *testing.T) {
	p := stored(t)
	r := p.run("", "token", "create", "ada", "--scopes", "admin", "--groups", "finance", "--days", "3", "--note", "mine", "--json").want(exit.OK)
	var made struct{ ID, Secret, Subject string }
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || made.Secret == "" || made.Subject != "ada" {
		t.Fatalf("%v: %s", err, r.out)
	}
	list := p.run("", "token", "list").want(exit.OK, made.ID, "ada", "admin", "finance", "mine")
	if strings.Contains(list.out, made.Secret) {
		t.Errorf("the secret is listed:\n%s", list.out)
	}
	p.run("", "token", "revoke", made.ID).want(exit.OK)
	p.run("", "token", "list").want(exit.OK, "revoked")
	p.run("", "token", "revoke", "nope").want(exit.NotFound)
	p.run("", "token", "create").want(exit.BadUsage, "usage: perdure token create SUBJECT")
	p.run("", "token", "create", "--user", "bob", "--minutes", "5", "--json").want(exit.OK, `"user": "bob"`, `"subject": "bob"`, `"run"`)
	p.run("", "token", "create", "ada", "--user", "bob").want(exit.BadUsage, "acts as that user")
	p.run("", "version").want(exit.OK, "perdure ", "go1.")
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
	p.run("", "threads").want(exit.Auth, "--token", "$PERDURE_TOKEN")
	p.run("", "threads", "--token", "wrong").want(exit.Auth)
	p.run("", "threads", "--token", "valid").want(exit.OK)
	p.run("", "run", "echo", "x", "--token", "valid").want(exit.Auth, "scope run")
	p.setUp = func(a *app) {
		a.term.Env = func(name string) string { return map[string]string{"PERDURE_TOKEN": "valid"}[name] }
	}
	p.run("", "threads").want(exit.OK)
}

// A run that is within a step is not paused yet.
func TestPauseOfARunningRun(t *testing.T) {
	for status, want := range map[perdure.Status]string{
		perdure.Running: "run r of thread t pauses before its next step, or ends if it has none\n",
		perdure.Paused:  "run r of thread t is paused\n",
	} {
		var out buffer
		a := testApp(terminal.Terminal{Out: &out})
		if err := a.paused(&perdure.Run{ID: "r", Thread: "t", Status: status}); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v", status, &out, err)
		}
	}
}
