package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
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

// findAsk returns the ask with an id, or the open ask whose id, or the part of it
// that is shown, begins with the given text.
func findAsk(ctx context.Context, l *link.Link, id string) (*perdure.AskInfo, error) {
	if id == "" { // a prefix of every id
		return nil, exit.Usage(errors.New("no ask is given: its id is empty"))
	}
	var found *perdure.AskInfo
	for k, err := range l.Client.Asks(ctx, api.ListAsks{Limit: 1000}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			break // reported after all intact asks
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
	ask, err := l.Client.GetAsk(ctx, id) // it is closed, or does not exist
	if errors.Is(err, perdure.ErrNoAsk) {
		if over := findOver(ctx, l, id); over != "" {
			return l.Client.GetAsk(ctx, over)
		}
	}
	return ask, err
}

// How many threads are searched for a closed ask, and for how long.
const (
	overThreads = 50
	overTime    = 3 * time.Second
)

// findOver returns the full id of an ask that is no longer open, given the part of
// it that is shown, or a prefix. It searches the threads that changed last, since
// nothing lists such asks; "" means that none was found.
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

// fate says what became of an ask.
func fate(ask *perdure.AskInfo) string {
	text := "the ask is " + safe.Label(ask.Status)
	if r := ask.Answer; r != nil {
		if r.By != "" {
			text += " by " + safe.Label(r.By)
		}
		text += ": " + answerOf(r)
	}
	return text
}

// answerOf says what an answer is.
func answerOf(r *perdure.Answer) string {
	var value json.RawMessage
	if r.Value != nil {
		value, _ = json.Marshal(r.Value)
	}
	text := strings.Join(strings.Fields(safe.Label(r.Decision)+" "+render.Brief(value)), " ")
	if r.Message != "" {
		text += ", " + safe.Line(r.Message)
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
		Short:   "view and revoke the rules by which calls run without asking",
		Long:    "Look at and revoke the rules by which calls run without asking. The decision always\nmakes such a rule, for one user, flow, agent and tool.",
		Example: "  perdure rules list\n  perdure rules list --user ada\n  perdure rules revoke ID",
	}, list, revoke)
}

// answerFlags hold the answer.
type answerFlags struct {
	approve, secret          bool
	edit, reject, respond    string
	decision, value, message string
	changed                  func(flag string) bool
}

func answerCommand(a *app) *cobra.Command {
	var f answerFlags
	c := &cobra.Command{
		Use:   "answer [ASK]",
		Short: "answer an ask, or go through all open ones",
		Long: `Answer an ask. Without flags you see it and decide at the terminal; without ASK you
go through all open asks. The part of an id shown by perdure asks is enough, and
so is a prefix that is unique among the open asks.

Values are JSON or text. The first answer wins; repeating it changes nothing.`,
		Example: "  perdure answer\n  perdure answer h-4H7 --approve\n  perdure answer h-4H7 --edit '{\"amount\": 10}' --message \"that is all we give\"\n  perdure answer h-4H7 --reject \"too expensive\"\n  perdure answer h-4H7 --respond '\"blue\"'\n  perdure answer h-4H7 --secret < key.txt",
		Args:    arguments(0, 1),
	}
	flags := c.Flags()
	flags.BoolVar(&f.approve, "approve", false, "approve the call as it is")
	flags.StringVar(&f.edit, "edit", "", "approve the call with these arguments")
	flags.StringVar(&f.reject, "reject", "", "reject the call; the text says why")
	flags.StringVar(&f.respond, "respond", "", "give this value as the answer, or as the result in place of the call")
	flags.StringVar(&f.decision, "decision", "", "one of the ask's decisions")
	flags.StringVar(&f.value, "value", "", "value that goes with the decision")
	flags.StringVar(&f.message, "message", "", "a remark")
	flags.BoolVar(&f.secret, "secret", false, "read the requested secret from the standard input")
	c.RunE = func(c *cobra.Command, args []string) error {
		f.changed = flags.Changed
		switch n := f.given(); {
		case n > 1:
			return exit.Usage(errors.New("give one of --approve, --edit, --reject, --respond, --secret and --decision"))
		case n > 0 && len(args) == 0:
			return exit.Usage(errors.New("name the ask to answer: perdure asks lists them"))
		}
		return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
			if len(args) == 0 {
				return a.inbox(ctx, l)
			}
			ask, err := findAsk(ctx, l, args[0])
			if err != nil {
				return err
			}
			return a.answer(ctx, l, ask, &f)
		})
	}
	return c
}

// given returns how many answers the flags give.
func (f *answerFlags) given() (n int) {
	for _, set := range []bool{f.approve, f.secret, f.changed("edit"), f.changed("reject"), f.changed("respond"), f.decision != "" || f.changed("value")} {
		if set {
			n++
		}
	}
	return n
}

// reply returns the answer in the flags.
func (f *answerFlags) reply(ask *perdure.AskInfo) (api.Reply, error) {
	plain := len(ask.Decisions) == 0
	r := api.Reply{Message: f.message}
	switch {
	case f.approve && plain && ask.Want == "boolean":
		r.Value = json.RawMessage("true")
	case f.approve:
		r.Decision = agent.DecisionApprove
	case f.changed("edit"):
		r.Decision, r.Value = agent.DecisionEdit, anyJSON(f.edit)
	case f.changed("reject"):
		r.Decision = agent.DecisionReject
		r.Message = cmp.Or(r.Message, f.reject)
		if plain && ask.Want == "boolean" {
			r.Decision, r.Value = "", json.RawMessage("false")
		}
	case f.changed("respond"):
		r.Value = fitting(ask, f.respond)
		if !plain {
			r.Decision = agent.DecisionRespond
		}
	default:
		r.Decision = f.decision
		if f.changed("value") {
			r.Value = fitting(ask, f.value)
		}
	}
	if r.Decision != "" && !slices.Contains(ask.Decisions, r.Decision) {
		if plain {
			return r, exit.Usage(errors.New("this ask has no decisions; it wants a value: --respond JSON"))
		}
		return r, exit.Usage(fmt.Errorf("this ask does not accept %s, only %s", r.Decision, strings.Join(ask.Decisions, ", ")))
	}
	return r, nil
}

// fitting returns a value as JSON: a string if the ask wants one, whatever the
// value looks like.
func fitting(ask *perdure.AskInfo, text string) json.RawMessage {
	value := anyJSON(text)
	var schema struct{ Type any }
	wantsText := ask.Want == "string" || json.Unmarshal(ask.Schema, &schema) == nil && schema.Type == "string"
	if wantsText && value[0] != '"' {
		value, _ = json.Marshal(text)
	}
	return value
}

// answer answers one ask as the flags say, or as a person decides now.
func (a *app) answer(ctx context.Context, l *link.Link, ask *perdure.AskInfo, f *answerFlags) error {
	if f.given() == 0 {
		if !a.term.Interactive() {
			return exit.Usage(fmt.Errorf("say what to answer: %s", strings.Join(ways(ask), ", ")))
		}
		answered, err := a.decide(ctx, l, ask)
		if errors.Is(err, io.EOF) {
			return &exit.Error{Code: exit.Failed, Err: errors.New("the input has ended; nothing was answered")}
		}
		if answered {
			a.answered(ctx, l, ask)
		}
		return err
	}
	if f.secret || ask.Kind == agent.KindCredential && f.changed("respond") {
		return a.provide(ctx, l, ask, f)
	}
	r, err := f.reply(ask)
	if err != nil {
		return err
	}
	out, err := client.Do(ctx, l.Client, api.AsksAnswer, api.AnswerAsk{OneAsk: api.OneAsk{Ask: ask.ID}, Reply: r})
	if errors.Is(err, perdure.ErrAnswered) || errors.Is(err, perdure.ErrAskOver) {
		if now, wrong := l.Client.GetAsk(ctx, ask.ID); wrong == nil {
			next := fate(now)
			if now.Answer != nil { // by whom, the error says
				next = "the answer is " + answerOf(now.Answer)
			}
			return &exit.Error{Code: exit.Code(err), Err: err, Next: next}
		}
	}
	if err != nil {
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(out)
	}
	a.answered(ctx, l, ask)
	return nil
}

// provide provides a secret.
func (a *app) provide(ctx context.Context, l *link.Link, ask *perdure.AskInfo, f *answerFlags) error {
	if ask.Kind != agent.KindCredential {
		return exit.Usage(errors.New("this ask does not want a secret; only asks of kind credential do"))
	}
	if f.changed("respond") {
		return exit.Usage(errors.New("do not give a secret on the command line: use --secret, which reads it"))
	}
	if err := a.give(ctx, l, ask); err != nil {
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(struct{}{})
	}
	a.answered(ctx, l, ask)
	return nil
}

// give reads a secret and sends it.
func (a *app) give(ctx context.Context, l *link.Link, ask *perdure.AskInfo) error {
	secret, err := a.term.ReadSecret(ctx, "secret (not shown): ")
	if err != nil {
		return err
	}
	if secret == "" {
		return exit.Usage(errors.New("the secret is empty"))
	}
	_, err = client.Do(ctx, l.Client, api.AsksSecret, api.ProvideSecret{OneAsk: api.OneAsk{Ask: ask.ID}, Secret: secret})
	return err
}

// answered says what to do next.
func (a *app) answered(ctx context.Context, l *link.Link, ask *perdure.AskInfo) {
	a.hint("answered; follow the run with %s", a.command("events", "-f", ask.Thread))
	a.idle(ctx, l)
}

// ways returns the flags with which an ask can be answered.
func ways(ask *perdure.AskInfo) []string {
	var all []string
	if ask.Kind == agent.KindCredential {
		return []string{"--secret", "--reject WHY"}
	}
	for _, d := range ask.Decisions {
		all = append(all, cmp.Or(decisions[d].flag, "--decision "+safe.Quote(d)))
	}
	switch {
	case len(all) > 0:
		return all
	case ask.Want == "boolean":
		return []string{"--approve", "--reject WHY"}
	}
	return []string{"--respond JSON"}
}

// waitsFor says what a run waits for, and how to continue it.
func (a *app) waitsFor(ask *perdure.AskInfo) (what, how string) {
	return fmt.Sprintf("run %s waits for ask %s", safe.Label(ask.Run), render.AskID(ask.ID)), "answer it with " + a.command("answer", ways(ask)[0], render.AskID(ask.ID))
}
