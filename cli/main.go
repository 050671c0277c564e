package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/perdure/perdure"
)

// Main runs the command line of a program with flows, and exits.
func Main(flows ...perdure.Flow) {
	os.Exit(run(context.Background(), os.Args[1:], flows))
}

func run(_ context.Context, args []string, _ []perdure.Flow) int {
	fmt.Fprintln(os.Stderr, "no such command:", args)
	return 2
}
