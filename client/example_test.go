package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/server"
	_ "github.com/perdure/perdure/store/memstore" // the scheme "memory:"
)

// serveGreetings starts a server with a worker, as the command dev does.
func serveGreetings() (address string, stop func()) {
	greet := perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
		return perdure.Step(ctx, "greet", func(context.Context) (string, error) { return "Hello, " + name + "!", nil })
	})
	ctx, cancel := context.WithCancel(context.Background())
	rt, err := perdure.Open(ctx, "memory:", greet)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- rt.Work(ctx) }()
	ts := httptest.NewServer(server.New(rt, server.Options{}))
	return ts.URL, func() {
		ts.CloseClientConnections()
		ts.Close()
		cancel()
		<-done
		rt.Close()
	}
}

func ExampleClient_Start() {
	address, stop := serveGreetings()
	defer stop()
	ctx := context.Background()

	c, err := client.New(address, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	run, err := c.Start(ctx, perdure.StartRequest{Flow: "greet", Input: "Ada"})
	if err != nil {
		log.Fatal(err)
	}
	if run, err = c.Wait(ctx, run.Thread, run.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(perdure.Output[string](run))
	// Output:
	// Hello, Ada! <nil>
}

func ExampleClient_Events() {
	address, stop := serveGreetings()
	defer stop()
	ctx := context.Background()

	c, err := client.New(address, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	run, err := c.Start(ctx, perdure.StartRequest{Flow: "greet", Input: "Ada"})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range c.Events(ctx, run.Thread, perdure.EventOptions{Run: run.ID}) {
		if err != nil {
			log.Fatal(err)
		}
		if e.Kind == "step" || e.Kind == "ended" {
			fmt.Println(e.Kind, e.Path, string(e.Value))
		}
	}
	// Output:
	// step /greet "Hello, Ada!"
	// ended  "Hello, Ada!"
}

func ExampleClient_Follow() {
	address, stop := serveGreetings()
	defer stop()
	ctx := context.Background()

	c, err := client.New(address, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	run, err := c.Start(ctx, perdure.StartRequest{Flow: "greet", Input: "Ada"})
	if err != nil {
		log.Fatal(err)
	}
	for u, err := range c.Follow(ctx, run.Thread, client.FollowOptions{Run: run.ID, Wait: true}) {
		switch {
		case err != nil:
			log.Fatal(err)
		case u.Delta != nil:
			fmt.Println("live:", string(u.Delta.Data))
		case u.Done != nil:
			fmt.Println(u.Done.Status, string(u.Done.Output))
		}
	}
	// Output:
	// succeeded "Hello, Ada!"
}
