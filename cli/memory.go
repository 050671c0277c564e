package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func memoryCommand(a *app) *cobra.Command {
	list := operation(a, "list [NS]", "  perdure memory list\n  perdure memory list user/ada --q tone", api.MemoryList, func(a *app, page *api.MemoryPage) error {
		if len(page.Items) == 0 {
			a.hint("nothing is remembered there")
			return nil
		}
		rows := [][]string{{"PLACE", "UPDATED", "VALUE"}}
		for _, i := range page.Items {
			rows = append(rows, []string{safe.Name(placeOf(i)), a.term.When(i.Updated), render.Brief(i.Value)})
		}
		return a.printPage(rows, page.Next)
	})
	list.Use = "list [NAMESPACE]"

	get := operation(a, "get PLACE", "  perdure memory get user/ada/tone", api.MemoryGet, func(a *app, item *memory.Item) error {
		a.term.PrintValue(render.Value(item.Value))
		return nil
	})
	get.Long = ""

	put := operation(a, "put PLACE VALUE", "  perdure memory put user/ada/tone friendly\n  perdure memory put user/ada/limits '{\"daily\": 3}' --ttl 86400", api.MemoryPut, func(a *app, item *memory.Item) error {
		a.hint("remembered, version %s", safe.Label(item.Version))
		return nil
	})
	put.Long = "Remember a value: JSON, or a text; - reads it from the standard input."
	create := put.Flags().Bool("create", false, "only if there is no value yet")
	_ = put.Flags().MarkHidden("if-none-match")
	put.PreRunE = func(c *cobra.Command, _ []string) error {
		if *create {
			return c.Flags().Set("if-none-match", "*")
		}
		return nil
	}

	remove := operation(a, "delete PLACE", "  perdure memory delete user/ada/tone", api.MemoryDelete, func(*app, *api.None) error { return nil })
	return group(&cobra.Command{
		Use:     "memory",
		Short:   "view and change values remembered beyond threads",
		Long:    "View and change values remembered beyond threads. A place is a namespace and a key,\nseparated by slashes: user/ada/tone. Write a slash inside a part as %2F. What agents\nremember about a user is below user/USER.",
		Example: "  perdure memory list user/ada\n  perdure memory put user/ada/tone '\"friendly\"'\n  perdure memory get user/ada/tone\n  perdure memory delete user/ada/tone",
	}, list, get, put, remove)
}

// segments returns the parts of a place.
func segments(place string) ([]string, error) {
	parts := strings.Split(strings.Trim(place, "/"), "/")
	for i, p := range parts {
		if p == "" {
			return nil, fmt.Errorf("%q is not a place such as user/ada/tone", place)
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "%2F", "/"), "%2f", "/")
	}
	return parts, nil
}

// placeOf returns the place of an item, as commands accept it.
func placeOf(i *memory.Item) string {
	var parts []string
	for _, p := range append(slices.Clone(i.Namespace), i.Key) {
		parts = append(parts, strings.ReplaceAll(p, "/", "%2F"))
	}
	return strings.Join(parts, "/")
}
