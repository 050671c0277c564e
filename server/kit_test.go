package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
)

// newPiped starts a server over pipes, for tests with virtual time. Without a
// worker runs stay queued.
func newPiped(t testing.TB, s store.Store, o server.Options, work bool, flows ...perdure.Flow) *servertest.Site {
	t.Helper()
	site := servertest.Start(t, s, o, work, flows...)
	c, end := inproc.Serve(site.Server)
	t.Cleanup(func() {
		site.Server.Close()
		end()
	})
	site.URL, site.Client = "http://perdure.localhost", c
	return site
}

// listen serves on a port of this machine, and returns its address.
func listen(t testing.TB, h *http.Server) string {
	t.Helper()
	l := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	go h.Serve(l)
	t.Cleanup(func() { h.Close() })
	return "http://" + l.Addr().String()
}

// nothingLeft fails unless there are soon no more goroutines than before.
func nothingLeft(t testing.TB, before int) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 2000 {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, and there were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// journalOf returns the events of a thread by their ids, as a stream has them.
func journalOf(t testing.TB, rt *perdure.Runtime, thread string) (all []string) {
	t.Helper()
	for _, ev := range servertest.All(t, rt.Events(t.Context(), thread, perdure.EventOptions{Replay: true})) {
		data := servertest.Must(json.Marshal(ev))(t)
		checkMembers(t, ev.Kind, data)
		all = append(all, fmt.Sprintf("%d %s %s", ev.Seq, ev.Kind, data))
	}
	return all
}

// checkMembers fails if an event has members that its kind is not said to have.
func checkMembers(t testing.TB, kind string, data []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	servertest.Check(t, json.Unmarshal(data, &members))
	i := slices.IndexFunc(api.EventKinds, func(k api.EventKind) bool { return k.Name == kind })
	if i < 0 {
		t.Fatalf("the kind %s is not described", kind)
	}
	for name := range members {
		if !slices.Contains(api.CommonFields, name) && !slices.Contains(api.EventKinds[i].Fields, name) {
			t.Errorf("the kind %s is not said to have the member %s", kind, name)
		}
	}
}

// largeFlow is the flow large, which has as many steps as it is told to, whose
// results have so many bytes.
func largeFlow(size func(step int) int) perdure.Flow {
	return perdure.NewFlow("large", func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (string, error) { return strings.Repeat("x", size(i)), nil }); err != nil {
				return i, err
			}
		}
		return n, nil
	})
}

// testFlows returns the flows whose events tests follow: count has as many steps as
// it is told to, and ask waits for an answer.
func testFlows() []perdure.Flow {
	return []perdure.Flow{
		perdure.NewFlow("count", func(ctx context.Context, n int) (int, error) {
			sum := 0
			for i := range n {
				v, err := perdure.Step(ctx, fmt.Sprint("step-", i), func(context.Context) (int, error) { return i, nil })
				if err != nil {
					return 0, err
				}
				sum += v
			}
			return sum, nil
		}),
		perdure.NewFlow("ask", func(ctx context.Context, prompt string) (string, error) {
			return perdure.Ask[string](ctx, "question", perdure.Question{Prompt: prompt})
		}),
	}
}
