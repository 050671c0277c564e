// Package resttest provides tests with a server that speaks the REST protocol of Upstash
// in front of a Redis server. It imports only internal/redistest and go-redis.
package resttest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/internal/redistest"
)

// Token is what the servers of this package accept.
const Token = "perdure-token"

// Env is the environment variable with the URL of the server that the tests of a
// process share.
const Env = "PERDURE_TEST_UPSTASH"

var shared sync.Mutex

// URL returns the URL of the store that belongs to a folder, on a server that all tests
// of this process share. It sets the token in the environment.
func URL(tb testing.TB, dir string) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if os.Getenv(Env) == "" {
		proxy := New(redistest.Volatile(tb))
		os.Setenv(Env, StoreURL(httptest.NewServer(proxy).URL))
	}
	os.Setenv("UPSTASH_REDIS_REST_TOKEN", Token)
	return redistest.Prefix(os.Getenv(Env), dir)
}

// StoreURL returns the URL of the default store at an address of a server.
func StoreURL(address string) string {
	return "upstash://" + strings.TrimPrefix(address, "http://") + "?tls=false"
}

// Proxy executes the commands in requests on a Redis server.
type Proxy struct {
	Requests atomic.Int64

	client *redis.Client
	// before may answer a request itself, and then returns true.
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// New returns a proxy for the server at a URL.
func New(url string) *Proxy {
	o, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	o.MaxRetries = -1
	o.Protocol = 2
	return &Proxy{client: redis.NewClient(o)}
}

// Before makes answer see each request first; it returns true for those that it has
// answered. nil ends it.
func (p *Proxy) Before(answer func(http.ResponseWriter, *http.Request) bool) {
	if answer == nil {
		p.before.Store(nil)
		return
	}
	p.before.Store(&answer)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.Requests.Add(1)
	if before := p.before.Load(); before != nil && (*before)(w, r) {
		return
	}
	p.Pass(w, r)
}

// Pass answers a request as the service does, for use in Before.
func (p *Proxy) Pass(w http.ResponseWriter, r *http.Request) {
	var command []any
	switch {
	case r.Header.Get("Authorization") != "Bearer "+Token:
		Refuse(w, http.StatusUnauthorized, "WRONGPASS invalid or missing auth token")
		return
	case r.Method != http.MethodPost || r.URL.Path != "/":
		Refuse(w, http.StatusMethodNotAllowed, "this server knows only commands in the body of a POST")
		return
	case json.NewDecoder(r.Body).Decode(&command) != nil || len(command) == 0:
		Refuse(w, http.StatusBadRequest, "ERR failed to parse command")
		return
	}
	result, err := p.client.Do(r.Context(), command...).Result()
	var reply redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		result = nil
	case errors.As(err, &reply):
		Refuse(w, http.StatusBadRequest, reply.Error())
		return
	case err != nil:
		Refuse(w, http.StatusInternalServerError, "the server behind this one does not answer")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"result": result})
}

// Refuse answers a request with an error.
func Refuse(w http.ResponseWriter, status int, said string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": said})
}
