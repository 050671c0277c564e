package servertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
)

// Process is a site that can be killed, and another one be started on the same
// store.
type Process struct {
	*Site
	Kill func()
}

// NewProcess starts a server with a worker on a store that it does not close.
// When it is killed its worker finds the store gone, as a process that dies finds
// everything.
func NewProcess(t testing.TB, s store.Store, o server.Options, flows ...perdure.Flow) *Process {
	t.Helper()
	var dead atomic.Bool
	mortal := faulty.New(s, func(faulty.Call) faulty.Fault {
		if dead.Load() {
			return faulty.CrashBefore
		}
		return faulty.None
	})
	rt := Must(perdure.New(t.Context(), mortal, perdure.Options{Lease: time.Second, Grace: time.Millisecond}, flows...))(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	a := server.New(rt, o)
	ts := httptest.NewServer(a)
	kill := sync.OnceFunc(func() {
		dead.Store(true)
		a.Close()
		ts.CloseClientConnections()
		ts.Close()
		stop()
		<-done
	})
	t.Cleanup(kill)
	return &Process{&Site{T: t, Runtime: rt, Server: a, URL: ts.URL, Client: http.DefaultClient}, kill}
}
