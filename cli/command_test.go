package cli

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/terminal"
)

// TestAnEmptyIDIsNone: a variable of a script that is not set names nothing.
func TestAnEmptyIDIsNone(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.asked("one", "order", "tea")
		for _, args := range []string{"answer - --approve", "asks -", "cancel one -", "pause one -", "show one -", "show -", "events -"} {
			given := strings.Fields(args)
			for i := range given {
				given[i] = strings.TrimSuffix(given[i], "-")
			}
			p.run("", given...).want(exit.BadUsage, " is given")
		}
		p.run("", "show", "one").want(exit.OK, "waits for")
	})
}

// TestMistakesAreToldAtOnce, and with the documented exit codes.
func TestMistakesAreToldAtOnce(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "x").want(exit.OK) // makes the store
	for args, want := range map[string]string{
		"migrate --from sqlite:x.db --to sqlite:x.db": "the same store",
		"signal t s --key=":                           "--key is empty", "run echo x --key=": "--key is empty", "schedules run s --key=": "--key is empty",
		"worker --metrics nonsense": "not an address such as 127.0.0.1:9373", "threads --status nonsense": "there are idle queued running",
	} {
		p.run("", strings.Fields(args)...).want(exit.BadUsage, want)
	}
	p.run("", "chat", "nosuch").want(exit.NotFound, "unknown flow", "echo")
	r := p.run("", "serve", "--addr", "nonsense").want(exit.BadUsage, "not an address such as")
	if strings.Contains(r.err, "insecure") {
		t.Error(r.err)
	}
}

// TestTextThatIsNotUTF8IsRefused wherever it comes from: JSON would change it.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	p := stored(t)
	const name = "M\xfcller"
	p.run("", "run", "wait", "x", "--thread", "t", "--detach").want(exit.OK)
	for _, c := range []struct{ in, args string }{
		{name, "run echo -"}, {name, "memory put a/b -"}, {name, "signal t s -"}, {`"` + name + `"`, "run echo -"},
		{"", "run echo " + name}, {"", "memory put a/b " + name}, {"", "run echo x --title " + name}, {"", "signal t s " + name},
	} {
		p.run(c.in, strings.Fields(c.args)...).want(exit.BadUsage, "is not UTF-8", `M\xfcller`)
	}
	p.run("open\n", "chat", "vault", "--thread", "v").want(exit.OK)
	ask := strings.Fields(p.run("", "asks", "--thread", "v").want(exit.OK).out)[6]
	p.run(name+"\n", "answer", ask, "--secret").want(exit.BadUsage, "is not UTF-8")
	p.run("Müller", "run", "echo", "-").want(exit.OK, "Müller")
}

// TestBrokenJSONIsMentioned where it becomes a text.
func TestBrokenJSONIsMentioned(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "[1,2").want(exit.OK, "not valid JSON", "[1,2\n")
	p.run("", "memory", "put", "a/b", `{"a":`).want(exit.OK, "not valid JSON")
	if r := p.run("", "run", "echo", "plain [1]").want(exit.OK); strings.Contains(r.err, "JSON") {
		t.Error(r.err)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

// Write fails.
func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestWhatCannotBePrintedIsAnError(t *testing.T) {
	for _, args := range []string{"version", "version --json", "flows", "threads", "exit-codes"} {
		var said strings.Builder
		a := testApp(terminal.Terminal{In: strings.NewReader(""), Out: fullDisk{}, Err: &said}, testFlows()...)
		given := append(strings.Fields(args), "--store", "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
		if args == "threads" || args == "flows" { // so that there is one
			p := &place{t: t, flows: testFlows(), flags: given[len(given)-2:]}
			p.run("", "run", testFlows()[0].Name(), "x", "--detach").want(exit.OK)
		}
		if got := a.run(t.Context(), given); got != exit.Failed || !strings.Contains(said.String(), "no space left") {
			t.Errorf("%s ends with %d and says %q", args, got, said.String())
		}
	}
}

func TestValuesAreReadFromTheStandardInput(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", testFlows()[0].Name(), "x", "--thread", "t", "--detach").want(exit.OK)
		p.run("{\"grüße\": 1}\n", "signal", "t", "hi", "-").want(exit.OK)
		p.run("", "events", "t").want(exit.OK, `{"grüße":1}`)
		p.run("", "rewind", "t", "x").want(exit.BadUsage, "SEQ: ")
	})
}
