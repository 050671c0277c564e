package client_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestEventsSurviveServersThatAreGoneForAWhile uses a real port: it is closed,
// found closed by the client, and opened by another server.
func TestEventsSurviveServersThatAreGoneForAWhile(t *testing.T) {
	st := memstore.New()
	defer st.Close()
	step := make(chan struct{}, 1000) // the run goes as far as its events were read
	step <- struct{}{}
	flow := perdure.NewFlow("steps", func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) { <-step; return i, nil }); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rt := ok[*perdure.Runtime](t)(perdure.New(ctx, st, perdure.Options{}, flow))
	defer rt.Close()
	worked := make(chan error, 1)
	work, stop := context.WithCancel(ctx)
	go func() { worked <- rt.Work(work) }()
	defer func() {
		stop()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	}()

	var mu sync.Mutex
	var srv *http.Server // nil: there is none
	address, refused := "127.0.0.1:0", 0
	serve := func() {
		l := ok[net.Listener](t)(net.Listen("tcp", address))
		address = l.Addr().String()
		srv = &http.Server{Handler: server.New(rt, server.Options{})}
		go srv.Serve(l)
	}
	serve()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil && srv == nil {
			refused++
			serve() // for the next attempt
		}
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	c := ok[*client.Client](t)(client.New("http://"+address, client.Options{HTTP: &http.Client{Transport: transport}, Attempts: 1000, Delay: time.Millisecond}))
	const steps = 60
	run := ok[*perdure.Run](t)(c.Start(ctx, perdure.StartRequest{Flow: "steps", Input: steps}))
	var got []perdure.Event
	for e, err := range c.Events(ctx, run.Thread, perdure.EventOptions{Run: run.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
		step <- struct{}{}
		mu.Lock()
		if len(got)%5 == 0 && srv != nil {
			srv.Close()
			srv = nil
		}
		mu.Unlock()
	}
	if srv != nil {
		srv.Close()
	}
	var want []perdure.Event
	for e, err := range rt.Events(ctx, run.Thread, perdure.EventOptions{Run: run.ID, Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e)
	}
	if d := cmp.Diff(want, got); d != "" || len(got) < steps {
		t.Errorf("%d events: %s", len(got), d)
	}
	if refused < 5 {
		t.Errorf("only %d connections were refused", refused)
	}
}
