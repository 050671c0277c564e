package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func init() {
	register(func(a *app) *cobra.Command {
		c := &cobra.Command{
			Use:     "rules",
			Short:   "look at and revoke the rules by which calls run without asking",
			Long:    "Look at and revoke the rules by which calls run without asking. A rule is made\nby the decision always, for one user, flow, agent and tool.",
			Example: "  perdure rules list\n  perdure rules list --user ada\n  perdure rules revoke ID",
		}
		group(c, rulesList(a), rulesRevoke(a))
		return c
	})
}

func rulesList(a *app) *cobra.Command {
	var in api.ListRules
	c := &cobra.Command{
		Use:     "list",
		Short:   api.RulesList.Title,
		Example: "  perdure rules list\n  perdure rules list --user ada",
		Args:    arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.linked(c.Context(), func(ctx context.Context, l *link) error {
				list, err := client.Do(ctx, l.Client, api.RulesList, in)
				if err != nil {
					return err
				}
				if a.term.JSON {
					return a.term.PrintJSON(list)
				}
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
		},
	}
	c.Flags().StringVar(&in.User, "user", "", "whose threads they are for; you if not given")
	return c
}

func rulesRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   api.RulesRevoke.Title,
		Long:    "Revoke a rule. Calls that it has not allowed yet are asked about again.",
		Example: "  perdure rules revoke ID",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.linked(c.Context(), func(ctx context.Context, l *link) error {
				_, err := client.Do(ctx, l.Client, api.RulesRevoke, api.OneRule{ID: args[0]})
				if err == nil && a.term.JSON {
					return a.term.PrintJSON(struct{}{})
				}
				if err == nil {
					a.hint("revoked")
				}
				return err
			})
		},
	}
}

// always shows what a rule will allow before it is made, and returns the pattern
// that a person typed, nil for exactly these arguments.
func (a *app) always(ctx context.Context, ask *perdure.AskInfo, typed string) (json.RawMessage, error) {
	var data struct{ Always agent.Rule }
	if err := json.Unmarshal(ask.Data, &data); err != nil {
		return nil, err
	}
	rule, pattern := data.Always, json.RawMessage(nil)
	if typed != "" {
		if pattern = json.RawMessage(typed); !json.Valid(pattern) {
			return nil, fmt.Errorf("%w: a pattern is JSON, such as {\"path\": \"/notes/*\"}; nothing behind always is exactly these arguments", errAgain)
		}
		rule.Args = pattern
		rule.Allows = rule.Describe()
	}
	a.term.Printf("  from now on\n%s\n", a.term.Framed("  ", safe.Line(rule.Allows)))
	sure, err := a.term.Ask(ctx, "  type yes to allow that > ")
	if err == nil && !strings.EqualFold(strings.TrimSpace(sure), "yes") {
		err = fmt.Errorf("%w: no rule is made", errAgain)
	}
	return pattern, err
}
