package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

func TestAnAskThatIsOverIsFoundByWhatIsShownOfIt(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		p.run("", "asks", shortAsk(ask)).want(exitOK, "? Buy tea?", "the ask is open")
		p.run("", "answer", shortAsk(ask), "--approve", "--message", "we are out", "--by", "ada").want(exitOK)
		for _, id := range []string{ask, shortAsk(ask)} {
			p.run("", "asks", id).want(exitOK, "? Buy tea?", "the ask is answered true", "we are out")
			p.run("", "answer", id, "--reject", "no").want(exitConflict, "the ask is answered true", "we are out")
		}
		p.run("", "asks", "none-such").want(exitNotFound, "lists the open ones")
		p.run("", "asks", "--full").want(exitUsage, "asks ASK --full")
	})
}

func TestARunThatStandsNamesTheRemedy(t *testing.T) {
	for status, want := range map[perdure.Status]string{
		perdure.Blocked: "let code that fits work on it", perdure.Quarantined: "takes its workers down", perdure.Failed: "perdure retry t r", perdure.Paused: "perdure resume t r", perdure.Running: "",
	} {
		var out bytes.Buffer
		a := &app{out: &out, env: func(string) string { return "" }}
		a.runTree(&history{}, &runTree{}, &perdure.Run{ID: "r", Thread: "t", Status: status, Diff: "- a\n+ b"})
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "next") != (want != "") {
			t.Errorf("of a run that is %s it says:\n%s", status, out.String())
		}
	}
}

func TestAddressesAndListsAsPeopleTypeThem(t *testing.T) {
	for given, want := range map[string]string{
		"localhost:7373": "http://localhost:7373", "127.0.0.1:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1",
		"agents.example.com:443": "https://agents.example.com:443", "nonsense": "nonsense", "http://x:1": "http://x:1", "https://x/y:1": "https://x/y:1",
	} {
		if got := withScheme(given); got != want {
			t.Errorf("%s is %s, want %s", given, got, want)
		}
	}
	p := served(t)
	address := strings.TrimPrefix(p.flags[1], "http://")
	p.flags = []string{"--server", address}
	p.run("", "flows").want(exitOK, "echo")
	p = stored(t)
	p.run("", "token", "create", "ada", "--scopes", "read,run", "--groups", "a, b", "--groups", "c").want(exitOK)
	p.run("", "token", "list").want(exitOK, "read run", "a b c")
	p.run("", "token", "create", "ada", "--scopes", "read,rum").want(exitUsage, "rum")
	p.flags = []string{"--store", "postgres://x"}
	p.run("", "flows").want(exitUnavailable, `no driver for "postgres"`, "file, memory, sqlite")
}

func TestWideCharactersKeepColumns(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, env: func(string) string { return "" }}
	if err := a.table([][]string{{"ID", "TITLE", "X"}, {"日本語", "é", "1"}, {"a", "🎉 party", "2"}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimRight(line, "\n")
		if end := strings.LastIndex(line, " ") + 1; cells(line[:end]) != 18 {
			t.Errorf("the last column begins at %d: %q", cells(line[:end]), line)
		}
	}
}
