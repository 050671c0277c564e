package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/safe"
)

// command returns a command line for the same server or store as this one: the
// command, flags as they are typed, and arguments. Arguments are quoted: people
// paste the line into a shell, and others may have chosen the ids in it. Long ones
// that are not plain words are cut, so that they do not fill lines of their own.
// Passwords are left out, since lines like this one end up in logs.
func (a *app) command(verb, flags string, args ...string) string {
	words := []string{a.program(), verb}
	var given []string
	dash := false
	for _, arg := range args {
		dash = dash || strings.HasPrefix(arg, "-")
		given = append(given, safe.Argument(arg))
	}
	if !dash {
		words = append(words, given...)
	}
	if flags != "" {
		words = append(words, flags)
	}
	switch {
	case a.conn.Store != "" && a.conn.Store != a.term.Env("PERDURE_STORE"):
		words = append(words, "--store", safe.Quote(link.WithoutPassword(a.conn.Store)))
	case a.conn.Server != "" && a.conn.Server != a.term.Env("PERDURE_SERVER"):
		words = append(words, "--server", safe.Quote(a.conn.Server))
	}
	if archive := a.conn.Archive; a.conn.Store != "" && a.conn.Runtime.Archive == nil && needsArchive[verb] && (archive == "" || archive != a.term.Env("PERDURE_ARCHIVE")) {
		words = append(words, "--archive", safe.Quote(cmp.Or(link.WithoutPassword(archive), "URL")))
	}
	if dash { // an argument looks like a flag
		words = append(append(words, "--"), given...)
	}
	return strings.Join(words, " ")
}

// needsArchive has the commands that need the archive of a store.
var needsArchive = map[string]bool{"archive": true, "unarchive": true}

// hint says what to do next, unless a program reads the output.
func (a *app) hint(format string, args ...any) {
	if !a.term.JSON {
		text := a.named(fmt.Sprintf(format, args...))
		a.term.Note(text, strings.Contains(text, " "+a.program()+" "))
	}
}

// sure asks whether to do something that cannot be undone.
func (a *app) sure(ctx context.Context, yes bool, what string) error {
	if yes {
		return nil
	}
	if !a.term.Interactive() {
		return exit.Usage(fmt.Errorf("%s: confirm it with --yes", what))
	}
	line, err := a.term.Ask(ctx, what+"? [y/N] ")
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if line != "y" && line != "yes" {
		return &exit.Error{Code: exit.Failed, Err: errors.New("nothing was done")}
	}
	return nil
}

// idle says so if no worker is alive, or none that has the flows of the given runs.
func (a *app) idle(ctx context.Context, l *link.Link, runs ...*perdure.Run) {
	if workers, err := l.Client.Workers(ctx); err == nil && len(workers) == 0 {
		a.hint("no worker is alive: runs continue when there is one: %s", a.command("worker", ""))
		return
	}
	for _, run := range runs {
		if run.Idle != "" {
			a.hint("no live worker has the flow %s: the run continues when one has", safe.Label(run.Flow))
		}
	}
}

// message returns an error for people: what happened, and what to do.
func (a *app) message(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	text := strings.TrimSpace(err.Error())
	for _, part := range []string{"perdure: ", "api: ", "client: ", "agent: "} {
		text = strings.ReplaceAll(strings.TrimPrefix(text, part), ": "+part, ": ")
	}
	if away, ok := errors.AsType[*perdure.ArchivedError](err); ok {
		text = strings.Replace(text, "perdure unarchive "+away.Thread, a.command("unarchive", "", away.Thread), 1)
	}
	text = strings.Replace(text, "perdure flows --json", a.command("flows", "--json"), 1)
	next := ""
	for _, h := range advice {
		if errors.Is(err, h.err) {
			next = strings.Replace(h.do, "%s", a.command(h.verb, "", h.args...), 1)
			break
		}
	}
	if coded, ok := errors.AsType[*exit.Error](err); ok {
		next = cmp.Or(coded.Next, next)
	}
	return a.term.Paragraph(a.shellName()+": ", a.named(text), a.named(next))
}

// advice says what to do about errors that do not say it themselves.
var advice = []struct {
	err  error
	do   string
	verb string
	args []string
}{
	{api.ErrUnauthorized, "give one with --token or $PERDURE_TOKEN (perdure token create creates them), together with --server or $PERDURE_SERVER", "", nil},
	{perdure.ErrArchived, "%s lists those that are", "archived", nil},
	{perdure.ErrNoThread, "%s lists the threads", "threads", nil},
	{perdure.ErrNoAsk, "%s lists the open ones; a closed one is found by its whole id only", "asks", nil},
	{perdure.ErrNoBulk, "%s lists the jobs", "bulk list", nil},
	{perdure.ErrNoSchedule, "%s lists the schedules", "schedules list", nil},
	{perdure.ErrRunNotFound, "%s lists the runs", "show", []string{"THREAD"}},
}
