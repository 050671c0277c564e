// Command perdure is the stock binary: the API server, workers and all commands,
// with the example flows.
//
//	go run ./cmd/perdure demo
//
// The models of the flows are scripts, so they need no network. They write as slowly
// as models do; PERDURE_PACE is the time between two pieces of text, such as 10ms.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/cmd/perdure/internal/demo"
	"github.com/perdure/perdure/examples/procurement"
	"github.com/perdure/perdure/examples/research"
	"github.com/perdure/perdure/examples/story"
	_ "github.com/perdure/perdure/otel/otlp"     // --otlp
	_ "github.com/perdure/perdure/store/pgstore" // postgres: URLs
)

func main() {
	pace, err := time.ParseDuration(os.Getenv("PERDURE_PACE"))
	if err != nil {
		pace = 80 * time.Millisecond
	}
	flow := research.Flow(research.Options{Pace: pace})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt ends it at once
	os.Exit(cli.Run(ctx, cli.Options{Commands: demo.Commands(flow), Example: research.Question},
		flow,
		procurement.Flow(procurement.Options{Pace: pace}),
		story.Flow(story.Options{Pace: pace}),
	))
}
