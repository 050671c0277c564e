// Package guide_test is the code of the guide. TestSnippetsAreCodeThatRuns in
// docs looks for each block of its pages here.
package guide_test

import (
	"context"
	"log"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// process is a program that works on a store until it is stopped.
type process struct {
	*perdure.Runtime
	ctx  context.Context
	stop func()
}

func begin(s store.Store, flows ...perdure.Flow) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{Runtime: must(perdure.New(ctx, s, perdure.Options{}, flows...)), ctx: ctx}
	done := make(chan error, 1)
	go func() { done <- p.Work(ctx) }()
	p.stop = func() {
		cancel()
		check(<-done)
	}
	return p
}

// run starts a flow in a process of its own, and waits until it ends or asks.
func run(flow string, in any, flows ...perdure.Flow) (*process, *perdure.Run) {
	p := begin(memstore.New(), flows...)
	r := must(p.Start(p.ctx, perdure.StartRequest{Flow: flow, Input: in, Thread: "t"}))
	return p, must(p.Wait(p.ctx, r.Thread, r.ID))
}
