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

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

// answerFlags say what is answered.
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
go through all open asks. The part of an id that perdure asks shows is enough, and
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

// given is how many answers the flags give.
func (f *answerFlags) given() (n int) {
	for _, set := range []bool{f.approve, f.secret, f.changed("edit"), f.changed("reject"), f.changed("respond"), f.decision != "" || f.changed("value")} {
		if set {
			n++
		}
	}
	return n
}

// reply is what the flags answer to an ask.
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

// fitting is a value as JSON: a text where the ask wants one, whatever it looks
// like.
func fitting(ask *perdure.AskInfo, text string) json.RawMessage {
	value := anyJSON(text)
	var schema struct{ Type any }
	wantsText := ask.Want == "string" || json.Unmarshal(ask.Schema, &schema) == nil && schema.Type == "string"
	if wantsText && value[0] != '"' {
		value, _ = json.Marshal(text)
	}
	return value
}

// answer answers one ask: as the flags say, or as a person decides now.
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
			return &exit.Error{Code: exit.Code(err), Err: err, Next: fate(now)}
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

// provide gives a secret.
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

// give reads a secret and hands it over.
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

// answered tells what comes next.
func (a *app) answered(ctx context.Context, l *link.Link, ask *perdure.AskInfo) {
	a.hint("answered; follow the run with %s", a.command("events", "-f", ask.Thread))
	a.idle(ctx, l)
}

// ways are the flags by which an ask can be answered.
func ways(ask *perdure.AskInfo) []string {
	var all []string
	if ask.Kind == agent.KindCredential {
		return []string{"--secret", "--reject WHY"}
	}
	for _, d := range ask.Decisions {
		switch d {
		case agent.DecisionApprove:
			all = append(all, "--approve")
		case agent.DecisionEdit:
			all = append(all, "--edit JSON")
		case agent.DecisionReject:
			all = append(all, "--reject WHY")
		case agent.DecisionRespond:
			all = append(all, "--respond JSON")
		default:
			all = append(all, "--decision "+safe.Quote(d))
		}
	}
	if len(all) == 0 && ask.Want == "boolean" {
		all = append(all, "--approve", "--reject WHY")
	}
	if len(all) == 0 {
		all = append(all, "--respond JSON")
	}
	return all
}

// waitsFor says what a run waits for, and how it goes on.
func (a *app) waitsFor(ask *perdure.AskInfo) (what, how string) {
	return fmt.Sprintf("run %s waits for ask %s", safe.Label(ask.Run), render.AskID(ask.ID)), "answer it with " + a.command("answer", ways(ask)[0], render.AskID(ask.ID))
}
