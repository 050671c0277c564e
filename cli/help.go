package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `Perdure is a durable runtime for AI agents. What an agent does is written down step
by step, so that it survives crashes and deploys, and can wait for people.

Commands work on a server (--server), or directly on a store (--store). Without
either it is the dev server of this machine if one runs, else the store in
./.perdure.`

const exitHelp = `Every command ends with one of these codes:

    0  it worked; of run: the run succeeded
    1  the run failed, or something else went wrong
    2  the command was called in a wrong way
    3  there is no such thread, run, ask, flow, …
    4  the run waits for a person or a signal
    5  somebody else was faster, or the thread is busy
    6  there is no valid token, or it does not allow this
    7  the server or the store cannot be reached
  130  it was interrupted`

// groups are the headings of the list of commands.
var groups = []struct{ id, title, commands string }{
	{"begin", "Begin:", "demo init dev run chat"},
	{"look", "Look:", "threads show events state diff"},
	{"control", "Control runs:", "signal pause resume cancel retry fork rewind"},
	{"people", "People:", "asks answer"},
	{"data", "Data:", "memory export import verify erase"},
	{"operate", "Operate:", "serve worker workers flows token doctor bench"},
	{"more", "More:", "completion help version exit-codes"},
}

func init() {
	register(func(*app) *cobra.Command {
		return &cobra.Command{Use: "exit-codes", Short: "what the exit codes mean", Long: exitHelp, Example: "  perdure run research \"…\" || echo \"ended with $?\"",
			Args: arguments(0, 0), RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	})
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

// didYouMean suggests commands that are called like a word.
func didYouMean(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = 2
	if like := c.SuggestionsFor(word); len(like) > 0 {
		return " (is it " + strings.Join(like, " or ") + "?)"
	}
	return ""
}
