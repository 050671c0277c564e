// Package s3test provides tests with an S3 service: a fake within the test's process,
// or versitygw, a real server. It imports only the standard library and gofakes3.
package s3test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Bucket is the bucket that every service of this package has.
const Bucket = "perdure-test"

// The keys that they accept. URL sets them in the environment.
const (
	AccessKey = "perdure-access"
	SecretKey = "perdure-secret"
)

// Env is the environment variable with the endpoint of the service that the tests of
// a process share. URL sets it for child processes.
const Env = "PERDURE_TEST_S3"

var shared sync.Mutex

// URL returns the URL of the store that belongs to a folder, in a fake that all tests
// of this process and their child processes share.
func URL(tb testing.TB, dir string) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if os.Getenv(Env) == "" {
		server := httptest.NewUnstartedServer(NewFake())
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // the fake writes the status of some errors twice
		server.Start()
		os.Setenv(Env, server.URL)
	}
	os.Setenv("AWS_ACCESS_KEY_ID", AccessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", SecretKey)
	return StoreURL(os.Getenv(Env), dir)
}

// Empty returns the URL of an empty store in that fake.
func Empty(tb testing.TB) string {
	tb.Helper()
	return URL(tb, tb.TempDir())
}

// StoreURL returns the URL of the store that belongs to a folder, at an endpoint.
func StoreURL(endpoint, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "s3://" + Bucket + "/" + hex.EncodeToString(sum[:8]) + "?region=us-east-1&endpoint=" + url.QueryEscape(endpoint)
}

// Fake is an S3 service in memory that checks no keys.
type Fake struct {
	Backend  *s3mem.Backend
	Requests atomic.Int64

	s3 http.Handler
	// before may answer a request itself, and then returns true.
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// NewFake returns a service with an empty bucket.
func NewFake() *Fake {
	f := &Fake{Backend: s3mem.New()}
	if err := f.Backend.CreateBucket(Bucket); err != nil {
		panic(err)
	}
	f.s3 = gofakes3.New(f.Backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	return f
}

// Before makes answer see each request first; it returns true for those that it has
// answered. nil ends it.
func (f *Fake) Before(answer func(http.ResponseWriter, *http.Request) bool) {
	if answer == nil {
		f.before.Store(nil)
		return
	}
	f.before.Store(&answer)
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.Requests.Add(1)
	if before := f.before.Load(); before != nil && (*before)(w, r) {
		return
	}
	f.s3.ServeHTTP(w, r)
}

// Pass answers a request as the service does, for use in Before.
func (f *Fake) Pass(w http.ResponseWriter, r *http.Request) { f.s3.ServeHTTP(w, r) }

// Refuse answers a request with an error of S3.
func Refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<Error><Code>" + code + "</Code><Message>refused by the test</Message></Error>"))
}
