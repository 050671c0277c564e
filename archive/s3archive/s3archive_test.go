package s3archive_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/archive/archivetest"
	"github.com/perdure/perdure/archive/s3archive"
	"github.com/perdure/perdure/internal/s3test"
)

var keys = s3archive.Options{AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey}

func serve(t *testing.T) (*s3test.Fake, *httptest.Server) {
	fake := s3test.NewFake()
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return fake, server
}

func TestPlace(t *testing.T) {
	_, server := serve(t)
	var dirs sync.Map
	archivetest.Run(t, func(tb testing.TB) archive.Place {
		dir, _ := dirs.LoadOrStore(tb, tb.TempDir())
		p, err := s3archive.Open(tb.Context(), s3test.StoreURL(server.URL, dir.(string)), keys)
		if err != nil {
			tb.Fatal(err)
		}
		return p
	})
}

func TestRegistered(t *testing.T) {
	p, err := archive.Open(t.Context(), s3test.Empty(t)+"&class=GLACIER_IR")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Put(t.Context(), "a/b", strings.NewReader("x")); err != nil || !strings.HasPrefix(p.URL(), "s3://"+s3test.Bucket+"/") || strings.Contains(p.URL(), "?") {
		t.Errorf("%v, at %s", err, p.URL())
	}
}

// TestClass looks at the requests: a warm class is that of the first write, a cold
// one that of a copy once the object has been read back.
func TestClass(t *testing.T) {
	fake, server := serve(t)
	for class, want := range map[string]string{"": "put , ", "STANDARD_IA": "put STANDARD_IA, ", "GLACIER": "put , copy GLACIER, ", "DEEP_ARCHIVE": "put , copy DEEP_ARCHIVE, "} {
		var mu sync.Mutex
		seen := ""
		fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				mu.Lock()
				defer mu.Unlock()
				what := "put "
				if r.Header.Get("X-Amz-Copy-Source") != "" {
					what = "copy "
				}
				seen += what + r.Header.Get("X-Amz-Storage-Class") + ", "
			}
			return false
		})
		o := keys
		o.Class = class
		p, err := s3archive.Open(t.Context(), s3test.StoreURL(server.URL, "class"+class), o)
		if err == nil {
			err = p.Put(t.Context(), "a/b", strings.NewReader("content"))
		}
		if err == nil {
			err = p.(archive.Freezer).Freeze(t.Context(), "a/b")
		}
		if err != nil || seen != want {
			t.Errorf("class %q: %v, requests %q; want %q", class, err, seen, want)
		}
		if got, err := archivetest.Read(t.Context(), p, "a/b"); err != nil || string(got) != "content" {
			t.Errorf("class %q: then it is %q, %v", class, got, err)
		}
	}
}

func TestThawing(t *testing.T) {
	fake, server := serve(t)
	p, err := s3archive.Open(t.Context(), s3test.StoreURL(server.URL, "cold"), keys)
	if err == nil {
		err = p.Put(t.Context(), "a/b", strings.NewReader("content"))
	}
	if err != nil {
		t.Fatal(err)
	}
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || r.URL.Query().Has("location") {
			return false
		}
		s3test.Refuse(w, http.StatusForbidden, "InvalidObjectState")
		return true
	})
	_, err = archivetest.Read(t.Context(), p, "a/b")
	if !errors.Is(err, archive.ErrThawing) || !strings.Contains(err.Error(), "aws s3api restore-object --bucket "+s3test.Bucket+" --key ") {
		t.Errorf("reading a frozen object: %v; want ErrThawing and the command that thaws it", err)
	}
	fake.Before(nil)
	if got, err := archivetest.Read(t.Context(), p, "a/b"); err != nil || string(got) != "content" {
		t.Errorf("once thawed it is %q, %v", got, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	fake, server := serve(t)
	for url, want := range map[string]string{
		"s3://": "no bucket", "s3://b.c/x?y=1": "parameter", "s3://AB": "cannot be the name", "s3://user:secret@bucket": "holds keys", "s3://bucket/a/../b": "prefix",
		"s3://bucket?endpoint=ftp://x": "endpoint", "s3://no-such-bucket?region=us-east-1&endpoint=" + server.URL: "create it",
	} {
		_, err := s3archive.Open(t.Context(), url, keys)
		if !errors.Is(err, archive.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("Open(%q) = %v; want one that says %q", url, err, want)
		}
	}
	var requests atomic.Int64
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		requests.Add(1)
		s3test.Refuse(w, http.StatusForbidden, "AccessDenied")
		return true
	})
	if _, err := s3archive.Open(t.Context(), s3test.StoreURL(server.URL, "x"), keys); !errors.Is(err, archive.ErrInvalid) || !strings.Contains(err.Error(), "s3:ListBucket") || requests.Load() == 0 {
		t.Errorf("Open without permission = %v", err)
	}
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		s3test.Refuse(w, http.StatusBadGateway, "BadGateway")
		return true
	})
	if _, err := s3archive.Open(t.Context(), s3test.StoreURL(server.URL, "x"), keys); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("Open of a service that is away = %v", err)
	}
}
