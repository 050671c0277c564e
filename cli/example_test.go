package cli_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli"
)

var greet = perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
	return perdure.Step(ctx, "greet", func(context.Context) (string, error) { return "hello " + name, nil })
})

// A program has its flows in every command.
func ExampleRun() {
	code := cli.Run(context.Background(), cli.Options{Args: []string{"flows", "--store", "memory:"}}, greet)
	fmt.Println("exit code", code)
	// Output:
	// greet
	// exit code 0
}

// A program that serves has its own logger, observer and routes beside the API.
func ExampleRun_options() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	serving := make(chan string, 1)
	seen := new(stepCounter)
	ended := make(chan int)
	go func() {
		ended <- cli.Run(ctx, cli.Options{
			Args: []string{"serve", "--store", "memory:", "--auth", "none", "--addr", "127.0.0.1:0"},
			Runtime: perdure.Options{
				Logger:   slog.New(addressHandler{slog.DiscardHandler, serving}),
				Observer: seen,
			},
			Routes: func(mux *http.ServeMux, rt *perdure.Runtime) {
				mux.HandleFunc("GET /greet/{name}", func(w http.ResponseWriter, r *http.Request) {
					run, err := rt.Start(r.Context(), perdure.StartRequest{Flow: "greet", Input: r.PathValue("name")})
					if err == nil {
						run, err = rt.WaitEnd(r.Context(), run.Thread, run.ID)
					}
					if err != nil {
						http.Error(w, err.Error(), http.StatusInternalServerError)
						return
					}
					fmt.Fprintf(w, "%s", run.Output)
				})
			},
		}, greet)
	}()
	address := <-serving
	for _, path := range []string{"/greet/ann", "/v1/flows"} {
		resp, err := http.Get(address + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(strings.TrimSpace(string(body)))
	}
	stop()
	fmt.Println("exit code", <-ended, "after", seen.n.Load(), "step")
	// Output:
	// "hello ann"
	// {"flows":[{"name":"greet","input":{"type":"string"}}]}
	// exit code 0 after 1 step
}

// stepCounter is an observer.
type stepCounter struct{ n atomic.Int64 }

func (c *stepCounter) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	c.n.Add(1)
	return ctx, func(error) {}
}
func (c *stepCounter) Committed(perdure.Event) {}

// addressHandler is a handler of logs that tells the address in them.
type addressHandler struct {
	slog.Handler
	to chan<- string
}

func (h addressHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h addressHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "address" && r.Message == "serving" {
			h.to <- a.Value.String()
		}
		return true
	})
	return nil
}
