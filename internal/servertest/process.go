package servertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
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
	mortal := &mortalStore{Store: s}
	rt := Must(perdure.New(t.Context(), mortal, perdure.Options{Lease: time.Second, Grace: time.Millisecond}, flows...))(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	a := server.New(rt, o)
	ts := httptest.NewServer(a)
	kill := sync.OnceFunc(func() {
		mortal.kill()
		a.Close()
		ts.CloseClientConnections()
		ts.Close()
		stop()
		<-done
	})
	t.Cleanup(kill)
	return &Process{&Site{T: t, Runtime: rt, Server: a, URL: ts.URL, Client: http.DefaultClient}, kill}
}

// mortalStore is a store of which a process sees nothing any more once it is
// killed.
type mortalStore struct {
	store.Store
	mu   sync.RWMutex
	dead bool
}

func (m *mortalStore) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

func (m *mortalStore) alive() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.dead {
		return store.ErrClosed
	}
	return nil
}

// Append implements store.Store.
func (m *mortalStore) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := m.alive(); err != nil {
		return 0, err
	}
	return m.Store.Append(ctx, journal, after, entries...)
}

// Put implements store.Store.
func (m *mortalStore) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := m.alive(); err != nil {
		return "", err
	}
	return m.Store.Put(ctx, key, value, prev)
}

// Delete implements store.Store.
func (m *mortalStore) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key, prev)
}

// Count counts what tools did, in all processes of a test.
type Count struct {
	mu sync.Mutex
	n  map[string]int
}

// Add counts something, and returns how often it was counted.
func (c *Count) Add(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what]++
	return c.n[what]
}

// String shows all counts.
func (c *Count) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.n)
}

// Of returns how often something was counted.
func (c *Count) Of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}
