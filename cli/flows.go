package cli

import (
	"github.com/perdure/perdure/api"
	"github.com/spf13/cobra"
)

func init() {
	register(func(a *app) *cobra.Command {
		return operation(a, "flows", api.FlowsList, func(a *app, out *api.FlowList) error {
			for _, f := range out.Flows {
				a.printf("%s\n", f.Name)
			}
			return nil
		})
	})
}
