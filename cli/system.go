package cli

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func flowsCommand(a *app) *cobra.Command {
	return operation(a, "flows", "  perdure flows", api.FlowsList, func(a *app, out *api.FlowList) error {
		for _, f := range out.Flows {
			a.term.PrintName(f.Name)
		}
		return nil
	})
}

func workersCommand(a *app) *cobra.Command {
	return operation(a, "workers", "  perdure workers", api.WorkersList, func(a *app, out *api.WorkerList) error {
		if len(out.Workers) == 0 {
			a.hint("no worker is alive, so runs wait; start one with perdure worker or perdure dev")
			return nil
		}
		rows := [][]string{{"WORKER", "HOST", "PID", "SINCE", "FLOWS"}}
		for _, w := range out.Workers {
			rows = append(rows, []string{w.ID, w.Host, fmt.Sprint(w.PID), a.term.When(w.Started), strings.Join(w.Flows, " ")})
		}
		return a.term.Table(rows, render.StatusStyle)
	})
}

func tokenCommand(a *app) *cobra.Command {
	create := operation(a, "create [SUBJECT]", "  perdure token create ada\n  perdure token create --user bob --minutes 60\n  perdure token create ci --scopes read,run --days 30 --note \"nightly runs\"", api.TokensCreate, func(a *app, t *api.NewToken) error {
		a.term.PrintName(t.Secret)
		a.hint("this token is shown only once; its id is %s", safe.Label(t.ID))
		return nil
	})
	create.PreRunE = func(c *cobra.Command, given []string) error {
		if len(given) == 0 && !c.Flags().Changed("user") {
			return exit.Usage(errors.New("usage: perdure token create SUBJECT, or --user USER for a token that is limited to one user's threads"))
		}
		return nil
	}
	list := operation(a, "list", "  perdure token list", api.TokensList, func(a *app, out *api.TokenList) error {
		rows := [][]string{{"ID", "SUBJECT", "SCOPES", "GROUPS", "EXPIRES", "NOTE"}}
		for _, t := range out.Tokens {
			scopes := []string{}
			for _, s := range t.Scopes {
				scopes = append(scopes, string(s))
			}
			ends := a.term.When(t.Expires)
			if !t.Revoked.IsZero() {
				ends = "revoked " + a.term.When(t.Revoked)
			}
			rows = append(rows, []string{t.ID, t.Subject, strings.Join(scopes, " "), strings.Join(t.Groups, " "), ends, t.Note})
		}
		return a.term.Table(rows, render.StatusStyle)
	})
	revoke := operation(a, "revoke TOKEN", "  perdure token revoke ID", api.TokensRevoke, hinted("revoked"))
	revoke.Use = "revoke ID"
	return group(&cobra.Command{
		Use:     "token",
		Short:   "create, list and revoke the tokens of a server",
		Long:    "Create, list and revoke the tokens of a server. Create the first one on the store\nitself, with --store.",
		Example: "  perdure token create ops --scopes admin --store sqlite:perdure.db\n  perdure token create ada --groups finance --days 90\n  perdure token list\n  perdure token revoke ID",
	}, create, list, revoke)
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "print the version of this program",
		Example: "  perdure version",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := version()
			if a.term.JSON {
				return a.term.PrintJSON(map[string]string{"version": v, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			a.term.Printf("%s %s %s %s/%s\n", a.program(), v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

// version returns the version of this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return fmt.Sprintf("devel-%.12s", s.Value)
		}
	}
	return "devel"
}
