package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/spf13/cobra"
)

func usageCommand(a *app) *cobra.Command {
	return operation(a, "usage", "  perdure usage\n  perdure usage --json | jq .spent.tokens", api.UsageGet, (*app).usage)
}

// usage prints what a tenant uses.
func (a *app) usage(u *api.Usage) error {
	rows := [][]string{{"WHAT", "USED", "QUOTA"}}
	add := func(what string, used any, quota string) {
		most := ""
		if n, ok := u.Quota[quota]; ok {
			most = fmt.Sprint(n)
		}
		rows = append(rows, []string{what, fmt.Sprint(used), most})
	}
	add("threads", u.Threads, "threads")
	for _, status := range slices.Sorted(maps.Keys(u.Statuses)) {
		add("threads that are "+status, u.Statuses[status], "")
	}
	add("bytes", u.Bytes, "bytes")
	add("bytes of uploads", u.Uploads, "")
	add("runs", u.Runs, "")
	add("runs at a time", u.Active, "runs")
	add("starts in a minute", u.Starts, "starts")
	add("streams", u.Streams, "streams")
	for _, unit := range slices.Sorted(maps.Keys(u.Spent)) {
		add("spent "+unit, u.Spent[unit], "")
	}
	return a.term.Table(rows, render.StatusStyle)
}
