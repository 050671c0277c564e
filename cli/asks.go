package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/spf13/cobra"
)

func init() {
	register(func(a *app) *cobra.Command {
		c := operation(a, "asks", api.AsksList, func(a *app, page *api.AskPage) error {
			if len(page.Asks) == 0 {
				a.hint("nobody is asked anything")
				return nil
			}
			rows := [][]string{{"ASK", "KIND", "THREAD", "WHO", "ASKED", "PROMPT"}}
			for _, k := range page.Asks {
				rows = append(rows, []string{shortAsk(k.ID), k.Kind, k.Thread, strings.Join(k.Who, " "), a.when(k.Asked), k.Prompt})
			}
			if err := a.table(rows); err != nil {
				return err
			}
			a.more(page.Next)
			a.hint("answer one with %s, or go through them with %s", a.command("answer", "", "ASK"), a.command("answer", ""))
			return nil
		})
		c.Example = "  perdure asks\n  perdure asks --thread trip-7\n  perdure asks --mine --by ada"
		return c
	})
}

// more says how to see what is not on the page.
func (a *app) more(next string) {
	if next != "" {
		a.hint("there are more: --after %s", next)
	}
}

// shortAsk is an ask's id as it is shown: what stands behind the thread is
// enough to find it among the open ones.
func shortAsk(id string) string {
	_, own, ok := strings.Cut(id, ".")
	if !ok || own == "" || strings.HasPrefix(own, "-") {
		return oneLine(id)
	}
	return oneLine(own)
}

// findAsk returns the ask with an id, or the open one whose id, or the part of it
// that is shown, begins so.
func (l *link) findAsk(ctx context.Context, id string) (*perdure.AskInfo, error) {
	var found *perdure.AskInfo
	for k, err := range l.Asks(ctx, api.ListAsks{Limit: 1000}) {
		if err != nil {
			return nil, err
		}
		_, own, _ := strings.Cut(k.ID, ".")
		switch {
		case k.ID == id || own == id:
			return &k, nil
		case !strings.HasPrefix(k.ID, id) && !strings.HasPrefix(own, id):
		case found != nil:
			return nil, usage(fmt.Errorf("%s is the beginning of more than one ask: %s and %s", id, shortAsk(found.ID), shortAsk(k.ID)))
		default:
			found = &k
		}
	}
	if found != nil {
		return found, nil
	}
	return l.GetAsk(ctx, id) // it is over, or there is none
}
