package s3archive_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/archive/archivetest"
	"github.com/perdure/perdure/archive/s3archive"
	"github.com/perdure/perdure/internal/s3test"
)

// TestSilentService: a service that takes requests and does not answer, or stops in the
// middle of an answer, is an archive that cannot be used.
func TestSilentService(t *testing.T) {
	fake, server := serve(t)
	o := keys
	o.Patience = 2 * time.Second
	p, err := s3archive.Open(t.Context(), s3test.StoreURL(server.URL, "silent"), o)
	if err == nil {
		err = p.Put(t.Context(), "a/b", strings.NewReader("content"))
	}
	if err != nil {
		t.Fatal(err)
	}
	wake := make(chan struct{})
	defer close(wake) // before the server waits for its requests
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/half") {
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("ETag", `"x"`)
			w.WriteHeader(http.StatusOK)
			w.Write([]byte("the beginning"))
			http.NewResponseController(w).Flush()
		}
		<-wake
		return true
	})
	var all sync.WaitGroup
	for what, do := range map[string]func() error{
		"Put":          func() error { return p.Put(t.Context(), "a/c", strings.NewReader("x")) },
		"Put of parts": func() error { return p.Put(t.Context(), "a/d", strings.NewReader(strings.Repeat("x", 20<<20))) },
		"Delete":       func() error { return p.Delete(t.Context(), "a/b") },
		"Get":          func() error { _, err := archivetest.Read(t.Context(), p, "a/b"); return err },
		"Get of half":  func() error { _, err := archivetest.Read(t.Context(), p, "a/half"); return err },
		"List": func() error {
			for _, err := range p.List(t.Context(), "", "") {
				return err
			}
			return nil
		},
	} {
		all.Go(func() {
			if err := do(); !errors.Is(err, archive.ErrUnavailable) || !strings.Contains(err.Error(), "does not answer") {
				t.Errorf("%s: %v; want ErrUnavailable", what, err)
			}
		})
	}
	all.Wait()
}

// TestBucketGone: without its bucket, no object is taken for missing.
func TestBucketGone(t *testing.T) {
	fake, server := serve(t)
	p, err := s3archive.Open(t.Context(), s3test.StoreURL(server.URL, "gone"), keys)
	if err == nil {
		err = p.Put(t.Context(), "a/b", strings.NewReader("content"))
	}
	if err != nil {
		t.Fatal(err)
	}
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
		} else {
			s3test.Refuse(w, http.StatusNotFound, "NoSuchBucket")
		}
		return true
	})
	_, getErr := archivetest.Read(t.Context(), p, "a/b")
	for what, err := range map[string]error{"Get": getErr, "Delete": p.Delete(t.Context(), "a/b"), "Put": p.Put(t.Context(), "a/c", strings.NewReader("x"))} {
		if !errors.Is(err, archive.ErrUnavailable) || !strings.Contains(err.Error(), "no bucket") {
			t.Errorf("%s: %v; want ErrUnavailable", what, err)
		}
	}
}
