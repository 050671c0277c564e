package cli

import (
	"cmp"
	"context"
	"os"

	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/docs"
	"github.com/perdure/perdure/server/mcpface"
	"github.com/spf13/cobra"
)

// mcpCommand returns the command by which coding agents use Perdure.
func mcpCommand(a *app) *cobra.Command {
	var readOnly, noWork bool
	c := &cobra.Command{
		Use:   "mcp",
		Short: "let a coding agent operate runs, over the Model Context Protocol",
		Long: `Speaks the Model Context Protocol on the standard input and output, until the input
ends. It is meant to be started by a coding agent: docs/mcp.md shows how to
configure one. A server speaks the protocol too, at /mcp.

On a store (--store), this command acts as a worker while it runs; after that, runs
continue when another worker runs. What the agent does is recorded as done by mcp, or
by the name given with --by.

With --read-only the agent can look at everything but change nothing: whatever the
texts that it reads tell it to do, it cannot start runs or answer asks.`,
		Example: "  perdure mcp --server http://127.0.0.1:7373\n  perdure mcp --store sqlite:perdure.db --read-only",
		Args:    arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			a.conn.By = cmp.Or(a.conn.By, "mcp")
			a.conn.Attempts = 4          // for a second: the agent decides whether to wait
			if a.term.Out == os.Stdout { // what flows print must not get between messages
				defer func(out *os.File) { os.Stdout = out }(os.Stdout)
				os.Stdout = os.Stderr
			}
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				if !readOnly && !noWork {
					stop := l.Work(ctx)
					defer stop()
				}
				err := mcpface.ServeIO(ctx, l.Client, a.term.In, a.term.Out, mcpface.Options{Logger: a.logger(), Version: version(), ReadOnly: readOnly, Docs: docs.FS})
				if ctx.Err() != nil {
					return nil
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&readOnly, "read-only", false, "offer no tools that change anything")
	c.Flags().BoolVar(&noWork, "no-work", false, "with --store: leave the work to other processes")
	return c
}
