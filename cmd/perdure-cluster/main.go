// Command perdure-cluster is the stock binary with a NATS server inside: three copies of
// it on three machines are a highly available Perdure without a database.
//
//	perdure-cluster serve --cluster agents --join 10.0.0.1:7374,10.0.0.2:7374,10.0.0.3:7374 --dir /var/lib/perdure --cluster-secret-file secret
//
// All other commands work on a node's store by its folder, --store cluster:DIR, on the
// machine of the node. A program with its own flows is the same with package cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/cluster"
	"github.com/perdure/perdure/examples/procurement"
	"github.com/perdure/perdure/examples/research"
	"github.com/perdure/perdure/examples/story"
	_ "github.com/perdure/perdure/store/pgstore" // postgres: URLs, to migrate from and to
)

func main() {
	pace, err := time.ParseDuration(os.Getenv("PERDURE_PACE"))
	if err != nil {
		pace = 80 * time.Millisecond
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt ends it at once
	os.Exit(cluster.Run(ctx, cli.Options{Example: research.Question},
		research.Flow(research.Options{Pace: pace}),
		procurement.Flow(procurement.Options{Pace: pace}),
		story.Flow(story.Options{Pace: pace}),
	))
}
