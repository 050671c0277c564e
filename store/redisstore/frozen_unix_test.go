//go:build unix

package redisstore_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
)

// TestFrozenServer stops a server that keeps its connections: calls end with their
// context, and with the timeout of the store.
func TestFrozenServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := redisstore.Open(t.Context(), "redis://"+l.Addr().String(), redisstore.Options{Timeout: 50 * time.Millisecond}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open of a server that says nothing = %v, want ErrUnavailable", err)
	}
	server := redistest.Start(t, redistest.Always...)
	s, err := redisstore.Open(t.Context(), server.URL, redisstore.Options{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Get(t.Context(), "c"); !errors.Is(err, store.ErrNotFound) { // so that there is a connection
		t.Fatal(err)
	}
	if err := syscall.Kill(server.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	var wg sync.WaitGroup
	for _, call := range []func(ctx context.Context) error{
		func(ctx context.Context) error { _, err := s.Append(ctx, "j", 0, []byte("x")); return err },
		func(ctx context.Context) error { _, err := s.Get(ctx, "c"); return err },
		func(ctx context.Context) error { _, err := store.ReadAll(ctx, s, "j", 0); return err },
		func(ctx context.Context) error { return s.Drop(ctx, "j") },
	} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call of a server that stands still = %v", err)
			}
		})
	}
	wg.Wait()
}
