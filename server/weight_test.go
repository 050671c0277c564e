package server_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestOneUserTakesLittleMemory asks many times at once for a thread that is
// large, and sends many bodies, as one user. The heap stays within a multiple of
// the user's limit, and another user is served meanwhile.
func TestOneUserTakesLittleMemory(t *testing.T) {
	const limit, runs, size, callers = 8 << 20, 12, 1 << 20, 40
	st := memstore.New()
	tokens := authTokens(t, st)
	s := servertest.NewOn(t, st, server.Options{Auth: tokens, Stall: time.Hour, UserLimits: server.Limits{Bytes: limit}},
		perdure.NewFlow("large", func(ctx context.Context, n int) (string, error) { return strings.Repeat("x", n), nil }))
	secret := func(user string) string {
		token := servertest.Must(tokens.Create(t.Context(), "acme", "", api.CreateToken{User: user, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun}}))(t)
		return token.Secret
	}
	bob, ann := secret("bob"), secret("ann")
	run := func(user, thread string) {
		rt := s.Runtime.Tenant("acme").User(user)
		servertest.Must(rt.Start(t.Context(), perdure.StartRequest{Flow: "large", Thread: thread, User: user, Input: size}))(t)
		servertest.Must(rt.Wait(t.Context(), thread, ""))(t)
	}
	run("ann", "small")
	for range runs {
		run("bob", "large")
	}
	s.Token = bob
	// It is larger than the limit, and can be had all the same.
	if got := s.Do("GET", "/v1/threads/large", "").Want(200); len(got.Body) < runs*size {
		t.Fatalf("the answer has %d bytes", len(got.Body))
	}
	s.Token = ann
	heap := func() int64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	for what, request := range map[string]string{
		"reads":  "GET /v1/threads/large HTTP/1.1\r\n",
		"bodies": fmt.Sprintf("POST /v1/threads HTTP/1.1\r\nContent-Length: %d\r\n", 2*size),
	} {
		http.DefaultClient.CloseIdleConnections()
		before := heap()
		body := bytes.Repeat([]byte(" "), 2*size-1) // all but the last byte
		done := make(chan bool)
		for range callers {
			conn := slowDial(t, s.URL)
			go func() {
				fmt.Fprintf(conn, "%sHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", request, bob)
				if what == "bodies" {
					_, _ = conn.Write(body) // it may be refused before its end
				}
				<-done
				conn.Close()
			}()
		}
		eventually(t, "the requests do not begin", func() bool { return s.Server.Used().Bytes > limit/2 })
		for range 50 {
			s.Do("GET", "/v1/threads/small", "").Want(200)
			if grown := heap() - before; grown > 8*limit {
				t.Fatalf("%s: the heap has grown by %d MiB beside a limit of %d", what, grown>>20, limit>>20)
			}
		}
		close(done)
		eventually(t, what+" stay", func() bool { return s.Server.Used() == server.Limits{} })
	}
}
