package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func init() { register(rulesCommand) }

func rulesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "rules",
		Short:   "look at and revoke the rules by which calls run without asking",
		Long:    "Look at and revoke the rules by which calls run without asking. The decision always\nmakes such a rule, for one user, flow, agent and tool.",
		Example: "  perdure rules list\n  perdure rules list --user ada\n  perdure rules revoke ID",
	}
	list := operation(a, "list", api.RulesList, func(a *app, list *api.RuleList) error {
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
	list.Example = "  perdure rules list\n  perdure rules list --user ada"
	revoke := operation(a, "revoke RULE", api.RulesRevoke, func(a *app, _ *api.None) error {
		a.hint("revoked")
		return nil
	})
	revoke.Use = "revoke ID"
	revoke.Long = "Revoke a rule. Calls that it has not allowed yet are asked about again."
	revoke.Example = "  perdure rules revoke ID"
	group(c, list, revoke)
	return c
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
