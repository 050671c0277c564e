package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/store"
	"github.com/spf13/cobra"
)

// keysCommand returns the commands that show and rotate keys.
func keysCommand(a *app) *cobra.Command {
	c := operation(a, "keys", "  perdure keys\n  perdure keys rotate", api.KeysList, func(a *app, out *api.KeyList) error {
		if len(out.Keys) == 0 {
			a.hint("nothing is sealed: the store is not, and PERDURE_KEYS names no keys")
			return nil
		}
		rows := [][]string{{"SEALS", "KEY", "USES", "STATE"}}
		for _, k := range out.Keys {
			state := "unused: can be removed, unless it is new"
			switch {
			case k.Missing:
				state = "missing: put it back"
			case k.Wrong > 0:
				state = fmt.Sprintf("other bytes than those that sealed %d: put these back", k.Wrong)
			case k.Current:
				state = "current"
			case k.Uses > 0:
				state = "needed: perdure keys rotate"
			case k.Needed:
				state = "needed until perdure keys rotate has ended"
			}
			rows = append(rows, []string{k.Of, k.ID, fmt.Sprint(k.Uses), state})
		}
		return a.term.Table(rows, render.StatusStyle)
	})
	var tenants []string
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: api.KeysRotate.Title,
		Long: `Seals the data keys of a sealed store, and the credentials that PERDURE_KEYS seals,
with the first key of their ring. Data itself is not rewritten. Servers and workers keep
running meanwhile. If the command is interrupted, run it again.

First, give every process a ring with the new key: add it at the end of PERDURE_KEYS
everywhere, then move it to the front everywhere. Afterwards perdure keys says which
keys can be removed.`,
		Example: "  perdure keys rotate\n  perdure keys rotate --tenants acme,globex",
		Args:    arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error { return a.rotateKeys(ctx, l, tenants) })
		},
	}
	rotate.Flags().StringSliceVar(&tenants, "tenants", nil, "tenants whose credentials were sealed by an earlier version")
	c.AddCommand(rotate)
	return c
}

func (a *app) rotateKeys(ctx context.Context, l *link.Link, tenants []string) error {
	total, problem, last := 0, "", time.Now()
	for next := ""; ; {
		part, err := client.Do(ctx, l.Client, api.KeysRotate, api.RotateKeys{After: next, Tenants: tenants})
		if err != nil {
			return err
		}
		total += part.Rotated
		if part.Problem != "" {
			problem = part.Problem
		}
		if next = part.Next; next == "" {
			break
		}
		if time.Since(last) > time.Second {
			last = time.Now()
			a.hint("%d rotated", total)
		}
	}
	if a.term.JSON {
		if err := a.term.PrintJSON(api.Rotation{Rotated: total, Problem: problem}); err != nil {
			return err
		}
	} else {
		a.term.Printf("Sealed %d with the current keys.\n", total)
	}
	if problem != "" {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s", safe.Line(problem)), Next: "keep the old keys, and see perdure keys"}
	}
	return nil
}

// keysWithin is how long a server may look for credentials that it cannot open.
const keysWithin = 5 * time.Second

// warnOfKeys logs which credentials need a key that PERDURE_KEYS lacks.
func warnOfKeys(ctx context.Context, rt *perdure.Runtime, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, keysWithin)
	defer cancel()
	counts, err := credentials.Keys(ctx, rt)
	if err != nil {
		return // the store says so itself
	}
	ring, err := credentials.Ring()
	if errors.Is(err, store.ErrKey) {
		log.Error("PERDURE_KEYS cannot be read, so no credential can be opened or given", "error", err)
		return
	}
	wrong, _ := credentials.Mismatched(ctx, rt)
	for id, n := range wrong {
		log.Error("credentials need a key that has other bytes in PERDURE_KEYS; put the old bytes back, and give the new ones another id", "key", id, "credentials", n)
	}
	for id, n := range counts {
		if ring == nil || !ring.Holds(id) {
			log.Error("credentials need a key that PERDURE_KEYS lacks; put it back, and remove it when perdure keys says so", "key", id, "credentials", n)
		}
	}
}
