package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func asksCommand(a *app) *cobra.Command {
	c := operation(a, "asks", "  perdure asks\n  perdure asks --thread trip-7\n  perdure asks --mine --by ada\n  perdure asks h-4H7 --full", api.AsksList, func(a *app, page *api.AskPage) error {
		defer a.damage(page.Damage)
		if len(page.Asks) == 0 {
			a.hint("there are no open asks")
			return nil
		}
		rows := [][]string{{"ASK", "KIND", "THREAD", "WHO", "ASKED", "PROMPT"}}
		for _, k := range page.Asks {
			rows = append(rows, []string{render.AskID(k.ID), k.Kind, safe.Name(k.Thread), strings.Join(k.Who, " "), a.term.When(k.Asked), k.Prompt})
		}
		if err := a.printPage(rows, page.Next); err != nil {
			return err
		}
		a.hint("answer one with %s, or go through them with %s", a.command("answer", "", "ASK"), a.command("answer", ""))
		return nil
	})
	c.Use = "asks [ASK]"
	c.Long += "\n\nWith ASK, that ask is shown with its outcome, open or not. Long parts are cut; --full\nshows all of it."
	full := c.Flags().Bool("full", false, "with ASK: show all of it")
	list := c.RunE
	c.Args = arguments(0, 1)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && *full {
			return exit.Usage(errors.New("--full is for one ask: perdure asks ASK --full"))
		}
		if len(args) == 0 {
			return list(c, args)
		}
		return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
			ask, err := findAsk(ctx, l, args[0])
			if err != nil {
				return err
			}
			if a.term.JSON {
				return a.term.PrintJSON(ask)
			}
			a.hidden(a.present(ask, *full), "--full shows all")
			a.term.Printf("  %s  %s\n", a.term.Style(terminal.Bold, decided(ask)), safe.Cut(fate(ask), a.term.Room(4+safe.Cells(decided(ask)))))
			return nil
		})
	}
	return c
}

// damage says what may be missing from a page.
func (a *app) damage(what []string) {
	for _, text := range what {
		a.hint("damaged, and not shown: %s", safe.Line(text))
	}
}

// printPage prints a page of a list as a table, and says how to see what comes after it.
func (a *app) printPage(rows [][]string, next string) error {
	err := a.term.Table(rows, render.StatusStyle)
	if err == nil && next != "" {
		a.hint("there are more: --after %s", next)
	}
	return err
}

// findAsk returns the ask with an id, or the open one whose id, or the part of it
// that is shown, begins so.
func findAsk(ctx context.Context, l *link.Link, id string) (*perdure.AskInfo, error) {
	if id == "" { // every id begins with it
		return nil, exit.Usage(errors.New("no ask is given: its id is empty"))
	}
	var found *perdure.AskInfo
	for k, err := range l.Client.Asks(ctx, api.ListAsks{Limit: 1000}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			break // behind all that is sound
		}
		if err != nil {
			return nil, err
		}
		_, own, _ := strings.Cut(k.ID, ".")
		switch {
		case k.ID == id || own == id:
			return &k, nil
		case !strings.HasPrefix(k.ID, id) && !strings.HasPrefix(own, id):
		case found != nil:
			return nil, exit.Usage(fmt.Errorf("more than one ask begins with %q: %s and %s", id, render.AskID(found.ID), render.AskID(k.ID)))
		default:
			found = &k
		}
	}
	if found != nil {
		return found, nil
	}
	ask, err := l.Client.GetAsk(ctx, id) // it is over, or there is none
	if errors.Is(err, perdure.ErrNoAsk) {
		if over := findOver(ctx, l, id); over != "" {
			return l.Client.GetAsk(ctx, over)
		}
	}
	return ask, err
}

// Where an ask that is over is looked for: so many threads, for so long.
const (
	overThreads = 50
	overTime    = 3 * time.Second
)

// findOver returns the whole id of an ask that is not open any more, of which the
// part that is shown is given, or its beginning. It looks at the threads that
// changed last, since nothing lists such asks; "" means that none was found.
func findOver(ctx context.Context, l *link.Link, own string) string {
	ctx, cancel := context.WithTimeout(ctx, overTime)
	defer cancel()
	for t, err := range l.Client.List(ctx, perdure.ListOptions{Limit: overThreads}) {
		if err != nil {
			return ""
		}
		for e, err := range l.Client.Events(ctx, t.ID, perdure.EventOptions{Replay: true}) {
			if err != nil {
				break
			}
			if _, part, ok := strings.Cut(e.Ask, "."); ok && e.Kind == "asked" && strings.HasPrefix(part, own) {
				return e.Ask
			}
		}
	}
	return ""
}

// fate is what became of an ask.
func fate(ask *perdure.AskInfo) string {
	text := "the ask is " + safe.Label(ask.Status)
	if r := ask.Answer; r != nil {
		var value json.RawMessage
		if r.Value != nil {
			value, _ = json.Marshal(r.Value)
		}
		text = strings.Join(strings.Fields(text+" "+safe.Label(r.Decision)+" "+render.Brief(value)), " ")
		if r.By != "" {
			text += " by " + safe.Label(r.By)
		}
		if r.Message != "" {
			text += ": " + safe.Line(r.Message)
		}
	}
	return text
}

func rulesCommand(a *app) *cobra.Command {
	list := operation(a, "list", "  perdure rules list\n  perdure rules list --user ada", api.RulesList, func(a *app, list *api.RuleList) error {
		defer a.damage(list.Damage)
		if len(list.Rules) == 0 {
			a.hint("there are no rules")
		}
		for _, r := range list.Rules {
			by := ""
			if r.By != "" {
				by = " by " + r.By
			}
			a.term.Printf("%s\n  %s\n%s\n", a.term.Style(terminal.Bold, safe.Label(r.ID)), safe.Cut(safe.Line("made "+a.term.When(r.Created)+by), a.term.Room(2)), a.term.Framed("  ", safe.Line(r.Allows)))
		}
		return nil
	})
	revoke := operation(a, "revoke RULE", "  perdure rules revoke ID", api.RulesRevoke, hinted("revoked"))
	revoke.Use = "revoke ID"
	revoke.Long = "Revoke a rule. Calls that it has not allowed yet are asked about again."
	return group(&cobra.Command{
		Use:     "rules",
		Short:   "look at and revoke the rules by which calls run without asking",
		Long:    "Look at and revoke the rules by which calls run without asking. The decision always\nmakes such a rule, for one user, flow, agent and tool.",
		Example: "  perdure rules list\n  perdure rules list --user ada\n  perdure rules revoke ID",
	}, list, revoke)
}
