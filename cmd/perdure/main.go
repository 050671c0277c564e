// Command perdure is the stock binary: the API server, workers and all commands,
// with the example flows.
package main

import (
	"time"

	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/examples/procurement"
	"github.com/perdure/perdure/examples/research"
	"github.com/perdure/perdure/examples/story"
)

func main() {
	const pace = 60 * time.Millisecond // as if a model wrote
	cli.Main(
		research.Flow(research.Options{Pace: pace}),
		procurement.Flow(procurement.Options{Pace: pace}),
		story.Flow(story.Options{Pace: pace}),
	)
}
