package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHintsCanBePastedIntoAShell(t *testing.T) {
	for _, x := range []struct{ id, store, want string }{
		{"trip-7", "", "perdure show trip-7 -f"},
		{"trip-7", "sqlite:my db", "perdure show trip-7 -f --store 'sqlite:my db'"},
		{"$(reboot)", "", "perdure show '$(reboot)' -f"},
		{"a;b", "", "perdure show 'a;b' -f"},
		{"Ann's", "", `perdure show 'Ann'\''s' -f`},
		{"日本 語", "", "perdure show '日本 語' -f"},
		{"-x", "", "perdure show -f -- -x"},
		{"-x", "file:d", "perdure show -f --store file:d -- -x"},
		{"", "", "perdure show '' -f"},
	} {
		a := &app{store: x.store, env: func(string) string { return "" }}
		if got := a.command("show", "-f", x.id); got != x.want {
			t.Errorf("%q: it is %s, not %s", x.id, got, x.want)
		}
	}
}

func TestErrorsOfFilesAreNoUnreachableServers(t *testing.T) {
	_, err := os.ReadFile(filepath.Join(t.TempDir(), "none", "none"))
	if got := code(err); got != exitFailed {
		t.Errorf("%v ends with %d", err, got)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

// Write fails.
func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestWhatCannotBePrintedIsAnError(t *testing.T) {
	for _, args := range []string{"version", "version --json", "flows", "threads", "exit-codes"} {
		var said strings.Builder
		a := &app{flows: testFlows(), in: strings.NewReader(""), out: fullDisk{}, err: &said, env: func(string) string { return "" }}
		given := append(strings.Fields(args), "--store", "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
		if args == "threads" || args == "flows" { // so that there is one
			p := &place{t: t, flows: testFlows(), flags: given[len(given)-2:]}
			p.run("", "run", testFlows()[0].Name(), "x", "--detach").want(exitOK)
		}
		if got := a.run(t.Context(), given); got != exitFailed || !strings.Contains(said.String(), "no space left") {
			t.Errorf("%s ends with %d and says %q", args, got, said.String())
		}
	}
}

func TestValuesAreReadFromTheStandardInput(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", testFlows()[0].Name(), "x", "--thread", "t", "--detach").want(exitOK)
		p.run("{\"grüße\": 1}\n", "signal", "t", "hi", "-").want(exitOK)
		p.run("", "events", "t").want(exitOK, `{"grüße":1}`)
		p.run("", "rewind", "t", "x").want(exitUsage, "SEQ: ")
	})
}
