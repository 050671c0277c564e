package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

// each calls a function for all commands that people see.
func each(t *testing.T, do func(t *testing.T, c *cobra.Command)) {
	a := testApp(terminal.Terminal{}, testFlows()...)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, c := range c.Commands() {
			if c.Hidden || c.Name() == "help" {
				continue
			}
			t.Run(strings.ReplaceAll(c.CommandPath(), " ", "-"), func(t *testing.T) { do(t, c) })
			walk(c)
		}
	}
	walk(a.root())
}

func TestEveryCommandIsExplained(t *testing.T) {
	page, err := os.ReadFile("../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, c *cobra.Command) {
		if !strings.Contains(string(page), "`"+c.CommandPath()) {
			t.Errorf("docs/cli.md does not have `%s`", c.CommandPath())
		}
		switch {
		case c.Short == "" || strings.HasSuffix(c.Short, ".") || c.Short[:1] != strings.ToLower(c.Short[:1]):
			t.Errorf("its short help is %q: it begins with a small letter, and has no full stop", c.Short)
		case c.Example == "":
			t.Error("it has no example")
		case !c.HasParent() || c.Parent().HasParent():
		case c.GroupID == "":
			t.Error("it stands below no heading of the list of commands")
		}
	})
}

// An example that does not work is worse than none.
func TestExamplesCanBeTyped(t *testing.T) {
	quoted := regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	each(t, func(t *testing.T, c *cobra.Command) {
		for line := range strings.SplitSeq(c.Example, "\n") {
			_, line, ok := strings.Cut(line, "perdure ")
			if !ok {
				continue
			}
			var args []string
			for _, word := range quoted.FindAllString(line, -1) {
				if word == "|" || word == "||" || word == "<" || word == ">" || word == "#" || strings.HasPrefix(word, ")") {
					break
				}
				args = append(args, strings.Trim(strings.TrimSuffix(word, ")"), `'"`))
			}
			a := testApp(terminal.Terminal{}, testFlows()...)
			found, rest, err := a.root().Find(args)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	})
}

func TestExitCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []int{exit.OK, exit.Failed, exit.BadUsage, exit.NotFound, exit.Waiting, exit.Conflict, exit.Auth, exit.Unavailable, exit.Interrupted} {
		if !strings.Contains(exitHelp, fmt.Sprintf("\n  %3d  ", code)) {
			t.Errorf("perdure exit-codes does not have %d", code)
		}
		if !strings.Contains(string(page), fmt.Sprintf("| %d |", code)) {
			t.Errorf("docs/cli.md does not have the exit code %d", code)
		}
	}
	p := &place{t: t}
	p.run("", "exit-codes").want(exit.OK, "130")
	p.run("", "help", "exit-codes").want(exit.OK, "130")
	p.run("", "showw").want(exit.BadUsage, "did you mean show?")
	p.run("").want(exit.OK, "Control runs:")
}

func TestShellsComplete(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "x", "--thread", "trip-7").want(exit.OK)
		p.asked("trip-8", "order", "tea")
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"run", "ec"}, "echo\n"},
			{[]string{"show", "trip-"}, "trip-8\ntrip-7\n"},
			{[]string{"verify", "trip-7"}, "trip-7\n"},
			{[]string{"answer", ""}, "Buy tea?\n"},
			{[]string{"completion", "z"}, "zsh\n"},
			{[]string{"pau"}, "pause\t"},
			{[]string{"threads", "--status", "q"}, "queued\nrunning\n"},
			{[]string{"bulk", "erase", "--status", ""}, "failed\n"},
		} {
			// The flags that say where have to stand before what is completed.
			args := append(append([]string{cobra.ShellCompRequestCmd}, p.flags...), c.args...)
			r := (&place{t: t, flows: p.flows}).run("", args...).want(exit.OK)
			if !strings.Contains(r.out, c.want) {
				t.Errorf("%v is completed to %q, want %q", c.args, r.out, c.want)
			}
		}
		for _, status := range statuses {
			p.run("", "threads", "--status", status).want(exit.OK)
		}
		for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
			if r := p.run("", "completion", shell).want(exit.OK); !strings.Contains(r.out, "perdure") {
				t.Errorf("the script for %s is %q", shell, r.out)
			}
		}
		p.run("", "completion", "tcsh").want(exit.BadUsage, "powershell")
	})
}

func TestHelpKnowsCommandsOnly(t *testing.T) {
	p := stored(t)
	p.run("", "help", "token", "create").want(exit.OK, "Create a token")
	p.run("", "help").want(exit.OK, "Begin:")
	p.run("", "help", "thread").want(exit.BadUsage, "there is no command thread (did you mean threads")
	p.run("", "help", "run", "fast").want(exit.BadUsage, "there is no command run fast")
	p.run("", "threads", "--stat", "x").want(exit.BadUsage, "see perdure threads --help")
}

func TestOutputInJSONIsJSON(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "x").want(exit.OK)
	for _, args := range [][]string{{"exit-codes"}, {"version"}, {"flows"}, {"threads"}, {"init", filepath.Join(t.TempDir(), "x")}} {
		r := p.run("", append(args, "--json")...).want(exit.OK)
		if !json.Valid([]byte(r.out)) {
			t.Errorf("%v prints %s", args, r.out)
		}
	}
}
