package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func init() {
	register(func(a *app) *cobra.Command {
		c := &cobra.Command{
			Use:     "memory",
			Short:   "look at and change what is remembered beyond threads",
			Long:    "Look at and change what is remembered beyond threads. A place is a namespace and\na key, with slashes between: users/ada/tone. A slash inside a part is %2F.",
			Example: "  perdure memory list users/ada\n  perdure memory put users/ada/tone '\"friendly\"'\n  perdure memory get users/ada/tone\n  perdure memory delete users/ada/tone",
		}
		group(c, memoryList(a), memoryGet(a), memoryPut(a), memoryDelete(a))
		return c
	})
}

func memoryList(a *app) *cobra.Command {
	var in api.ListMemory
	c := &cobra.Command{
		Use:     "list [NAMESPACE]",
		Short:   api.MemoryList.Title,
		Example: "  perdure memory list\n  perdure memory list users/ada --q tone",
		Args:    arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				place, err := segments(args[0])
				if err != nil {
					return err
				}
				in.NS = place
			}
			return a.linked(c.Context(), func(ctx context.Context, l *link) error {
				page, err := client.Do(ctx, l.Client, api.MemoryList, in)
				if err != nil {
					return err
				}
				if a.term.JSON {
					return a.term.PrintJSON(page)
				}
				if len(page.Items) == 0 {
					a.hint("nothing is remembered there")
					return nil
				}
				rows := [][]string{{"PLACE", "UPDATED", "VALUE"}}
				for _, i := range page.Items {
					rows = append(rows, []string{safe.Name(placeOf(i)), a.term.When(i.Updated), render.Brief(i.Value)})
				}
				if err := a.term.Table(rows, render.StatusStyle); err != nil {
					return err
				}
				a.more(page.Next)
				return nil
			})
		},
	}
	c.Flags().StringVar(&in.Query, "q", "", "only those in whose key or texts all of these words are")
	c.Flags().StringVar(&in.After, "after", "", "cursor: next of the page before")
	c.Flags().IntVar(&in.Limit, "limit", 0, "at most so many, up to 1000; 100 if not given")
	return c
}

func memoryGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "get PLACE",
		Short:   api.MemoryGet.Title,
		Example: "  perdure memory get users/ada/tone",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			place, err := segments(args[0])
			if err != nil {
				return err
			}
			return a.linked(c.Context(), func(ctx context.Context, l *link) error {
				item, err := client.Do(ctx, l.Client, api.MemoryGet, api.OneMemory{Place: place})
				if err != nil {
					return err
				}
				if a.term.JSON {
					return a.term.PrintJSON(item)
				}
				a.term.PrintValue(render.Value(item.Value))
				return nil
			})
		},
	}
}

func memoryPut(a *app) *cobra.Command {
	var in api.PutMemory
	var create bool
	c := &cobra.Command{
		Use:     "put PLACE VALUE",
		Short:   api.MemoryPut.Title,
		Long:    "Remember a value: JSON, or a text. - reads it from the standard input.",
		Example: "  perdure memory put users/ada/tone friendly\n  perdure memory put users/ada/limits '{\"daily\": 3}' --ttl 86400",
		Args:    arguments(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			place, err := segments(args[0])
			if err != nil {
				return err
			}
			in.Place = place
			if in.Value, err = a.value(args[1]); err != nil {
				return err
			}
			if create {
				in.IfNoneMatch = "*"
			}
			return a.linked(c.Context(), func(ctx context.Context, l *link) error {
				item, err := client.Do(ctx, l.Client, api.MemoryPut, in)
				if err != nil {
					return err
				}
				if a.term.JSON {
					return a.term.PrintJSON(item)
				}
				a.hint("remembered, version %s", safe.Label(item.Version))
				return nil
			})
		},
	}
	c.Flags().StringVar(&in.IfMatch, "if-match", "", "only if this is the version of what is there")
	c.Flags().BoolVar(&create, "create", false, "only if nothing is there")
	c.Flags().Int64Var(&in.TTL, "ttl", 0, "seconds after which it is forgotten; never if not given")
	return c
}

func memoryDelete(a *app) *cobra.Command {
	var in api.DeleteMemory
	c := &cobra.Command{
		Use:     "delete PLACE",
		Short:   api.MemoryDelete.Title,
		Example: "  perdure memory delete users/ada/tone",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			place, err := segments(args[0])
			if err != nil {
				return err
			}
			in.Place = place
			return a.linked(c.Context(), func(ctx context.Context, l *link) error {
				_, err := client.Do(ctx, l.Client, api.MemoryDelete, in)
				if err == nil && a.term.JSON {
					return a.term.PrintJSON(struct{}{})
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&in.IfMatch, "if-match", "", "only if this is the version of what is there")
	return c
}

// segments are the parts of a place.
func segments(place string) ([]string, error) {
	parts := strings.Split(strings.Trim(place, "/"), "/")
	for i, p := range parts {
		if p == "" {
			return nil, usage(fmt.Errorf("%q is no place such as users/ada/tone", place))
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "%2F", "/"), "%2f", "/")
	}
	return parts, nil
}

// placeOf is where an item is, as a command takes it.
func placeOf(i *memory.Item) string {
	var parts []string
	for _, p := range append(append([]string{}, i.Namespace...), i.Key) {
		parts = append(parts, strings.ReplaceAll(p, "/", "%2F"))
	}
	return strings.Join(parts, "/")
}
