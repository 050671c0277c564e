// Package program makes a command line of an example's flow.
package program

import (
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli"
)

// Main is [cli.Main] with one flow. Without arguments the program runs the flow with
// the input, on a thread of its name in a store of its name, or continues the run
// that an earlier process left there.
func Main(flow perdure.Flow, input string) {
	if len(os.Args) == 1 {
		name := flow.Name()
		os.Args = append(os.Args, "run", name, input, "--thread", name, "--key", name, "--store", "sqlite:"+name+".db", "--watch")
	}
	cli.Main(flow)
}

// Pace is the time between two pieces of a reply: PERDURE_PACE, or 80ms.
func Pace() time.Duration {
	if pace, err := time.ParseDuration(os.Getenv("PERDURE_PACE")); err == nil {
		return pace
	}
	return 80 * time.Millisecond
}
