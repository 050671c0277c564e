package cli

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func completionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "print a script that lets a shell complete commands",
		Long: `Print a script that lets a shell complete commands, flags, flows, and the ids of
threads and open asks. The script for bash works with and without the package
bash-completion.`,
		Example:   fmt.Sprintf("  source <(perdure completion bash)\n  perdure completion zsh > \"${fpath[1]}/_%[1]s\"\n  perdure completion fish > ~/.config/fish/completions/%[1]s.fish", a.shellName()),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "bash":
				var script bytes.Buffer
				if err := root.GenBashCompletionV2(&script, true); err != nil {
					return err
				}
				a.term.Printf("%s", strings.Replace(script.String(), bashWords, bashWordsAlone, 1))
				return nil
			case "zsh":
				return root.GenZshCompletion(a.term.Out)
			case "fish":
				return root.GenFishCompletion(a.term.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.term.Out)
			}
			return exit.Usage(fmt.Errorf("there is no script for %s, only for bash, zsh, fish and powershell", args[0]))
		},
	}
}

// bashWords is the line of the bash script that needs the package bash-completion.
// Without it the words are those between spaces, wherever else bash breaks them.
const (
	bashWords      = "    _get_comp_words_by_ref \"$@\" cur prev words cword\n"
	bashWordsAlone = "    if declare -F _get_comp_words_by_ref >/dev/null; then\n    " + bashWords + `        return
    fi
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
    cword=$((${#words[@]} - 1))
    cur=${words[cword]} prev=${words[cword > 0 ? cword - 1 : 0]}
`
)

// statuses are those by which threads are selected.
var statuses = []cobra.Completion{
	string(perdure.Queued), string(perdure.Running), string(perdure.Suspended), string(perdure.Paused), string(perdure.Blocked), string(perdure.Quarantined),
	string(perdure.Succeeded), string(perdure.Failed), string(perdure.Cancelled), string(perdure.Damaged), string(perdure.Idle),
}

// complete lets shells complete the first argument of commands: a flow, a thread
// or an ask; and statuses.
func (a *app) complete(root *cobra.Command) {
	for _, c := range root.Commands() {
		for _, c := range append(c.Commands(), c) {
			if c.Flags().Lookup("status") != nil {
				_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		words := strings.Fields(c.Use)
		if len(words) < 2 || c.ValidArgsFunction != nil || len(c.ValidArgs) > 0 {
			continue
		}
		find := finders[strings.Trim(words[1], "[]")]
		if find == nil {
			continue
		}
		files := cobra.ShellCompDirectiveNoFileComp
		if strings.Contains(words[1], "FILE") {
			files = cobra.ShellCompDirectiveDefault
		}
		c.ValidArgsFunction = func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			a.choose(c)
			return a.candidates(c.Context(), find, begin), files
		}
	}
}

// completable matches names that every shell treats as one word, even when it
// completes one that is half typed.
var completable = regexp.MustCompile(`^\w[\w.:@/+-]*$`)

// candidates returns the names that begin with the given text, if they can be
// found at once. Others may have chosen them, and shells evaluate what they
// complete, so only plain words are offered.
func (a *app) candidates(ctx context.Context, find finder, begin string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var names []string
	_ = a.linked(ctx, func(ctx context.Context, l *link.Link) (err error) {
		names, err = find(ctx, l)
		return err
	})
	var out []string
	for _, name := range names {
		word, about, _ := strings.Cut(name, "\t")
		if !strings.HasPrefix(word, begin) || !completable.MatchString(word) {
			continue
		}
		if about = unusual.ReplaceAllString(about, ""); about != "" {
			word += "\t" + safe.Cut(safe.Line(about), 60)
		}
		out = append(out, word)
	}
	return out
}

// unusual matches characters that a description does not need.
var unusual = regexp.MustCompile(`[^\w .,:?!-]`)

// finder returns the possible values of an argument, each followed by a tab and a
// description if there is one.
type finder func(context.Context, *link.Link) ([]string, error)

// finders holds the finders by what help calls the argument.
var finders = map[string]finder{
	"FLOW":        func(ctx context.Context, l *link.Link) ([]string, error) { return l.Client.Flows(ctx) },
	"THREAD":      threadNames,
	"THREAD|FILE": threadNames,
	"ASK":         askNames,
}

func threadNames(ctx context.Context, l *link.Link) (names []string, err error) {
	for t, err := range l.Client.List(ctx, perdure.ListOptions{Limit: 200}) {
		if err != nil {
			return names, err
		}
		names = append(names, t.ID)
	}
	return names, nil
}

func askNames(ctx context.Context, l *link.Link) (names []string, err error) {
	for k, err := range l.Client.Asks(ctx, api.ListAsks{Limit: 200}) {
		if err != nil || len(names) >= 200 {
			return names, err
		}
		names = append(names, render.AskID(k.ID)+"\t"+k.Prompt)
	}
	return names, nil
}
