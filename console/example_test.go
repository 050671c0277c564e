package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/console"
	"github.com/perdure/perdure/server"
)

// A program of one's own has the console and the API below a path of its choice.
func ExampleHandler() {
	ctx := context.Background()
	rt, err := perdure.Open(ctx, "memory:") // sqlite:FILE keeps it
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	api := server.New(rt, server.Options{}) // with Auth where others can connect
	defer api.Close()

	mux := http.NewServeMux()
	mux.Handle("/ops/v1/", http.StripPrefix("/ops", api))
	mux.Handle("/ops/console/", console.Handler(console.Options{Base: "/ops/console/", API: "/ops/"}))
	ts := httptest.NewServer(mux)
	defer ts.Close()

	get := func(path string) string {
		resp, err := http.Get(ts.URL + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	fmt.Println(regexp.MustCompile(`"perdure-api" content="[^"]*"`).FindString(get("/ops/console/threads/t1")))
	fmt.Print(get("/ops/v1/flows"))
	// Output:
	// "perdure-api" content="/ops/"
	// {"flows":[]}
}
