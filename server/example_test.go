package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
)

// A program of one's own serves the API beside its own routes, with a worker in
// the same process.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	greet := perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
		return perdure.Step(ctx, "greet", func(context.Context) (string, error) { return "hello " + name, nil })
	})
	rt, err := perdure.Open(ctx, "memory:", greet) // sqlite:FILE keeps it
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	worked := make(chan error, 1)
	go func() { worked <- rt.Work(ctx) }()

	api := server.New(rt, server.Options{}) // with Auth where others can connect
	h := api.HTTPServer()                   // with limits on slow and large requests
	mux := http.NewServeMux()
	mux.Handle("/v1/", h.Handler)
	mux.HandleFunc("GET /about", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "greetings") })
	h.Handler = mux
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go h.Serve(l)

	get := func(resp *http.Response, err error) {
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		_, output, _ := strings.Cut(string(body), `"output":`)
		fmt.Println(resp.StatusCode, strings.SplitN(output+string(body), ",", 2)[0])
	}
	url := "http://" + l.Addr().String()
	get(http.Get(url + "/about"))
	start, err := http.Post(url+"/v1/threads/t1/runs", "application/json", strings.NewReader(`{"flow":"greet","input":"ann"}`))
	if err == nil {
		start.Body.Close()
	}
	get(http.Get(url + "/v1/threads/t1/runs/newest/wait?seconds=10"))

	h.Shutdown(ctx) // tells streams to come back later
	stop()
	fmt.Println("the worker handed over:", <-worked)
	// Output:
	// 200 greetings
	// 200 "hello ann"
	// the worker handed over: <nil>
}
