package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"

	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/s3store"
	"github.com/perdure/perdure/store/storetest"
)

// hangUp closes the connection of a request without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

// lose lets the service carry out a request, and loses the answer.
func lose(fake *s3test.Fake, w http.ResponseWriter, r *http.Request) {
	fake.Pass(httptest.NewRecorder(), r)
	hangUp(w)
}

func TestOutage(t *testing.T) {
	fake := s3test.NewFake()
	server := httptest.NewServer(fake)
	defer server.Close()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"no connection": func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
		"no answer":     func(w http.ResponseWriter, r *http.Request) { lose(fake, w, r) },
		"throttled":     func(w http.ResponseWriter, _ *http.Request) { s3test.Refuse(w, 503, "SlowDown") },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Outage(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
				s, err := s3store.Open(ctx, s3test.StoreURL(server.URL, dir), keys)
				return s, func(on bool) {
					fake.Before(nil)
					if on {
						fake.Before(func(w http.ResponseWriter, r *http.Request) bool { answer(w, r); return true })
					}
				}, err
			})
		})
	}
}

// A write whose answer is lost is sent once: sent again, it would conflict with itself
// and be reported as if it had not happened.
func TestLostAnswer(t *testing.T) {
	fake, url := serve(t)
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	var puts atomic.Int64
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		puts.Add(1)
		lose(fake, w, r)
		return true
	})
	for name, write := range map[string]func() error{
		"append": func() error { _, err := s.Append(t.Context(), "j", 0, []byte("x")); return err },
		"put":    func() error { _, err := s.Put(t.Context(), "c", []byte("x"), ""); return err },
	} {
		puts.Store(0)
		if err := write(); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrConflict) {
			t.Errorf("%s says %v, want store.ErrUnavailable", name, err)
		}
		if n := puts.Load(); n != 1 {
			t.Errorf("%s was sent %d times", name, n)
		}
	}
	fake.Before(nil)
	if last, err := store.AppendOnce(t.Context(), s, "j", 0, []byte("x")); err != nil || last != 1 {
		t.Errorf("AppendOnce finds %d, %v", last, err)
	}
	if entries, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(entries) != 1 {
		t.Errorf("the journal has %d entries, %v", len(entries), err)
	}
}

// S3 answers 409 if a request met another one, and 404 if an object to replace is gone.
// Nothing was written then.
func TestConflicts(t *testing.T) {
	for status, code := range map[int]string{409: "ConditionalRequestConflict", 404: "NoSuchKey", 412: "PreconditionFailed"} {
		fake, url := serve(t)
		s, err := s3store.Open(t.Context(), url, keys)
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Put(t.Context(), "c", []byte("x"), "")
		if err != nil {
			t.Fatal(err)
		}
		fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				s3test.Refuse(w, status, code)
			}
			return r.Method == http.MethodPut
		})
		if _, err := s.Put(t.Context(), "c", nil, v); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%d %s: Put says %v, want ErrConflict", status, code, err)
		}
		if _, err := s.Append(t.Context(), "j", 0, []byte("x")); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%d %s: Append says %v, want ErrConflict", status, code, err)
		}
	}
}

// Reads are repeated while the service is too busy.
func TestThrottledRead(t *testing.T) {
	fake, url := serve(t)
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if refused.Add(1) > 2 {
			return false
		}
		s3test.Refuse(w, 503, "SlowDown")
		return true
	})
	if entries, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(entries) != 1 {
		t.Errorf("the journal has %d entries, %v", len(entries), err)
	}
}

// TestRequests counts what a thread costs: each append one request, with one more for
// each segment that it fills, and tens of requests for a cold read of 10 000 entries.
func TestRequests(t *testing.T) {
	fake, url := serve(t)
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	count := func(do func()) int64 {
		before := fake.Requests.Load()
		do()
		return fake.Requests.Load() - before
	}
	const entries, appends = 10_000, 500
	batch := make([][]byte, entries/appends)
	for i := range batch {
		batch[i] = bytes.Repeat([]byte("e"), 500)
	}
	last := uint64(0)
	wrote := count(func() {
		for range appends {
			if last, err = s.Append(t.Context(), "j", last, batch...); err != nil {
				t.Fatal(err)
			}
		}
	})
	if max := int64(appends + 2 + entries*500>>18); wrote > max {
		t.Errorf("%d appends take %d requests, want at most %d", appends, wrote, max)
	}
	s.Close()
	if s, err = s3store.Open(t.Context(), url, keys); err != nil {
		t.Fatal(err)
	}
	var all []store.Entry
	read := count(func() { all, err = store.ReadAll(t.Context(), s, "j", 0) })
	if err != nil || len(all) != entries {
		t.Fatalf("the journal has %d entries, %v", len(all), err)
	}
	if read > 30 {
		t.Errorf("a cold read of %d entries takes %d requests", entries, read)
	}
	t.Logf("%d appends: %d requests; a cold read of %d entries of 500 bytes: %d requests", appends, wrote, entries, read)
}

// Many names need more than one page of a list.
func TestPages(t *testing.T) {
	_, url := serve(t)
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	const cells = 2100
	for i := range cells {
		v, err := s.Put(t.Context(), fmt.Sprintf("c%04d", i), []byte("x"), "")
		if err == nil && i%3 == 0 {
			err = s.Delete(t.Context(), fmt.Sprintf("c%04d", i), v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	next := 0
	for cell, err := range s.List(t.Context(), "c", "") {
		for next%3 == 0 {
			next++
		}
		if err != nil || cell.Key != fmt.Sprintf("c%04d", next) {
			t.Fatalf("List has %q, %v, want c%04d", cell.Key, err, next)
		}
		next++
	}
	if next != cells {
		t.Errorf("List ends at %d", next)
	}
}

// Drop and Delete remove bytes from the service.
func TestErased(t *testing.T) {
	fake, url := serve(t)
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	eraseCanaries(t, s, func() int { return canaries(t, fake) })
}

// eraseCanaries writes to a store and erases everything again; found counts the
// objects that hold a canary.
func eraseCanaries(t *testing.T, s store.Store, found func() int) {
	t.Helper()
	big := []byte("canary" + strings.Repeat("x", 200<<10))
	for n := range uint64(4) {
		if _, err := s.Append(t.Context(), "j", n, big); err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.Put(t.Context(), "c", []byte("canary"), "")
	if err != nil {
		t.Fatal(err)
	}
	if n := found(); n != 3 {
		t.Fatalf("%d objects hold the canary, want two segments and a cell", n)
	}
	if err := errors.Join(s.Drop(t.Context(), "j"), s.Delete(t.Context(), "c", v)); err != nil {
		t.Fatal(err)
	}
	if n := found(); n > 0 {
		t.Errorf("%d objects still hold erased bytes", n)
	}
	if _, err := s.Put(t.Context(), "c", []byte("again"), ""); err != nil {
		t.Errorf("a deleted cell cannot be created again: %v", err)
	}
}

func canaries(t *testing.T, fake *s3test.Fake) (n int) {
	t.Helper()
	list, err := fake.Backend.ListBucket(s3test.Bucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range list.Contents {
		o, err := fake.Backend.GetObject(s3test.Bucket, object.Key, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(o.Contents)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("canary")) {
			n++
		}
	}
	return n
}
