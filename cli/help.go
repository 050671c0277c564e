package cli

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `Perdure is a durable runtime for AI agents. It records what an agent does step by
step, so that the work survives crashes and deploys, and can wait for people.

Commands work on a server (--server) or directly on a store (--store). Without
either they use ./.perdure: through the dev server that serves it if one is running,
otherwise directly. In a folder without it they use your dev server at
127.0.0.1:7373.`

const exitHelp = `Every command ends with one of these codes:

    0  the command worked; for run, the run succeeded
    1  the run failed, or something else went wrong
    2  the command line is wrong
    3  there is no such thread, run, ask, flow, …
    4  the run waits for a person or a signal
    5  somebody else was first, the thread is busy, or there is nothing to do
    6  there is no valid token, or it does not allow this
    7  the server or the store cannot be reached
  130  the command was interrupted`

// groups are the headings in the list of commands.
var groups = []struct{ id, title, commands string }{
	{"begin", "Begin:", "demo init dev run chat"},
	{"look", "Look:", "threads show postmortem events state diff"},
	{"control", "Control runs:", "signal pause resume cancel retry fork rewind seen bulk schedules"},
	{"people", "People:", "asks answer rules"},
	{"data", "Data:", "memory upload bundle export import verify archive unarchive archived erase receipt"},
	{"operate", "Operate:", "serve mcp worker workers flows usage token doctor bench backup restore keys retention migrate"},
	{"more", "More:", "docs completion help version exit-codes"},
}

func exitCodesCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "explain the exit codes", Long: exitHelp, Example: "  perdure run research \"…\" || echo \"ended with $?\"",
		Args: arguments(0, 0), RunE: func(*cobra.Command, []string) error {
			if a.term.JSON {
				all := map[string]string{}
				_, list, _ := strings.Cut(exitHelp, "\n\n")
				for line := range strings.Lines(list) {
					code, meaning, _ := strings.Cut(strings.TrimSpace(line), "  ")
					all[code] = meaning
				}
				return a.term.PrintJSON(all)
			}
			a.term.Printf("%s\n", exitHelp)
			return nil
		}}
}

// helpCommand returns the command that explains the others.
func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "explain a command",
		Example: "  perdure help run\n  perdure help token create",
		RunE: func(_ *cobra.Command, words []string) error {
			c, rest, err := root.Find(words)
			if err != nil || len(rest) > 0 {
				return exit.Usage(fmt.Errorf("there is no command %s%s; perdure --help lists them", strings.Join(words, " "), didYouMean(root, words[0])))
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if c, rest, err := root.Find(words); err == nil && len(rest) == 0 {
				for _, below := range c.Commands() {
					if below.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(below.Name(), below.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// arrange puts the commands below their headings.
func arrange(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for name := range strings.FieldsSeq(g.commands) {
			for _, c := range root.Commands() {
				if c.Name() == name {
					c.GroupID = g.id
				}
			}
		}
	}
	root.SetHelpCommandGroupID("more")
}

// didYouMean suggests commands with names like a word.
func didYouMean(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = 2
	if like := c.SuggestionsFor(word); len(like) > 0 {
		return " (did you mean " + strings.Join(like, " or ") + "?)"
	}
	return ""
}

// programName returns the name of this program.
func programName() string {
	info, ok := debug.ReadBuildInfo()
	exe, err := os.Executable()
	if err != nil || !ok {
		return "perdure"
	}
	if strings.Contains(exe, string(filepath.Separator)+"go-build") { // go run removes it afterwards
		if info.Path == info.Main.Path {
			return "go run ."
		}
		if rest, ok := strings.CutPrefix(info.Path, info.Main.Path+"/"); ok {
			if at, err := os.Stat(rest); err == nil && at.IsDir() {
				return "go run ./" + rest
			}
		}
		return "go run " + info.Path
	}
	name := filepath.Base(exe)
	if found, err := exec.LookPath(name); err == nil && found == exe {
		return name
	}
	return os.Args[0]
}

// program returns how people call this program.
func (a *app) program() string { return cmp.Or(a.name, stockName) }

// stockName is the program that texts of commands name.
const stockName = "perdure"

// shellName returns the name under which a shell completes this program.
func (a *app) shellName() string {
	name := strings.TrimSuffix(filepath.Base(a.program()), ".exe")
	if strings.ContainsAny(name, " ") || strings.Trim(name, ".") == "" { // go run
		return stockName
	}
	return name
}

// ours matches the commands of this program in a text.
// The character before it tells them from the end of a path.
var ours = regexp.MustCompile(`(^|[^\w/.-])` + stockName + ` (--help|[a-z][a-z-]*\b)`)

// named returns a text with the name of this program in the commands that it
// mentions.
func (a *app) named(text string) string {
	if a.program() == stockName {
		return text
	}
	return ours.ReplaceAllStringFunc(text, func(found string) string {
		before, verb, _ := strings.Cut(found, stockName+" ")
		for _, g := range groups {
			if verb == "--help" || strings.Contains(" "+g.commands+" ", " "+verb+" ") {
				return before + a.program() + " " + verb
			}
		}
		return found
	})
}

// rename puts the name of this program into the help of a command and of those
// below it.
func (a *app) rename(c *cobra.Command) {
	c.Short, c.Long, c.Example = a.named(c.Short), a.named(c.Long), a.named(c.Example)
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = a.named(f.Usage) })
	for _, below := range c.Commands() {
		a.rename(below)
	}
}
