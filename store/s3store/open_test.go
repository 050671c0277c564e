package s3store_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"

	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/s3store"
)

// keys are Options with which the services of s3test let a store in.
var keys = s3store.Options{AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey}

// serve returns a fake and the URL of a store in it.
func serve(t *testing.T) (*s3test.Fake, string) {
	fake := s3test.NewFake()
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return fake, s3test.StoreURL(server.URL, t.Name())
}

// TestOpenRefuses makes the mistakes of a newcomer.
func TestOpenRefuses(t *testing.T) {
	_, url := serve(t)
	trusted := httptest.NewTLSServer(s3test.NewFake()) // by nobody here
	t.Cleanup(trusted.Close)
	long := "s3://bucket/" + strings.Repeat("p", 200)
	for name, c := range map[string]struct {
		url  string
		want error
		says string
	}{
		"no bucket":        {"s3:", store.ErrInvalid, "s3://BUCKET/PREFIX"},
		"keys in the URL":  {"s3://key:secret@bucket", store.ErrInvalid, "AWS_ACCESS_KEY_ID"},
		"parameter":        {url + "&regoin=x", store.ErrInvalid, "regoin"},
		"dots":             {strings.Replace(url, "?", "/../x?", 1), store.ErrInvalid, "prefix"},
		"long prefix":      {long, store.ErrInvalid, "room"},
		"endpoint":         {"s3://bucket?endpoint=s3.example", store.ErrInvalid, "https://s3.example"},
		"keys, no bucket":  {"s3:///?secret_key=secret@", store.ErrInvalid, "names no bucket"},
		"keys at endpoint": {"s3://bucket?endpoint=https://key:secret@s3.example", store.ErrInvalid, "AWS_ACCESS_KEY_ID"},
		"bucket's name":    {"s3://not_A_bucket_/p?region=r", store.ErrInvalid, "name of a bucket"},
		"no TLS":           {strings.Replace(url, "http%3A", "https%3A", 1), store.ErrInvalid, "http://"},
		"untrusted":        {s3test.StoreURL(trusted.URL, "p"), store.ErrInvalid, "authority"},
		"missing bucket":   {strings.Replace(url, s3test.Bucket, "missing-bucket", 1), s3store.ErrNoBucket, "create it"},
		"nobody listening": {"s3://bucket/p?region=r&endpoint=http://127.0.0.1:1", store.ErrUnavailable, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s3store.Open(t.Context(), c.url, keys)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open says %v, want %v with %q", err, c.want, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret@") {
				t.Errorf("the error gives the key away: %v", err)
			}
		})
	}
}

// What a service answers decides what went wrong.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
		also   error
	}{
		{403, "InvalidAccessKeyId", s3store.ErrCredentials, nil},
		{403, "SignatureDoesNotMatch", s3store.ErrCredentials, nil},
		{400, "ExpiredToken", s3store.ErrCredentials, nil},
		{403, "RequestTimeTooSkewed", s3store.ErrClock, nil},
		{403, "AccessDenied", s3store.ErrDenied, nil},
		{404, "NoSuchBucket", s3store.ErrNoBucket, nil},
		{501, "NotImplemented", s3store.ErrUnsuited, nil},
		{503, "SlowDown", s3store.ErrThrottled, store.ErrUnavailable},
		{429, "TooManyRequests", s3store.ErrThrottled, store.ErrUnavailable},
		{500, "InternalError", store.ErrUnavailable, nil},
		{507, "InsufficientStorage", store.ErrFull, nil},
	} {
		t.Run(c.code, func(t *testing.T) {
			fake, url := serve(t)
			s, err := s3store.Open(t.Context(), url, keys)
			if err != nil {
				t.Fatal(err)
			}
			fake.Before(func(w http.ResponseWriter, _ *http.Request) bool {
				s3test.Refuse(w, c.status, c.code)
				return true
			})
			check := func(doing string, err error) {
				t.Helper()
				if !errors.Is(err, c.want) || c.also != nil && !errors.Is(err, c.also) {
					t.Errorf("%s: %v, want %v", doing, err, c.want)
				}
			}
			_, err = s3store.Open(t.Context(), url, keys)
			check("Open", err)
			_, err = s.Append(t.Context(), "j", 0, []byte("x"))
			check("Append", err)
			_, err = s.Put(t.Context(), "c", nil, "")
			check("Put", err)
			check("Delete", s.Delete(t.Context(), "c", "v"))
			_, err = s.Get(t.Context(), "c")
			check("Get", err)
			for _, err := range s.List(t.Context(), "", "") {
				check("List", err)
			}
		})
	}
}

// Open names the permission that the keys lack.
func TestMissingPermission(t *testing.T) {
	for right, denied := range map[string]func(*http.Request) bool{
		"s3:ListBucket on bucket " + s3test.Bucket: func(r *http.Request) bool { return r.Method == "GET" && r.URL.Query().Has("list-type") },
		"s3:GetObject":    func(r *http.Request) bool { return r.Method == "GET" && !r.URL.Query().Has("list-type") },
		"s3:PutObject":    func(r *http.Request) bool { return r.Method == "PUT" },
		"s3:DeleteObject": func(r *http.Request) bool { return r.Method == "DELETE" },
	} {
		t.Run(right, func(t *testing.T) {
			fake, url := serve(t)
			fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
				if denied(r) {
					s3test.Refuse(w, http.StatusForbidden, "AccessDenied")
					return true
				}
				return false
			})
			if _, err := s3store.Open(t.Context(), url, keys); !errors.Is(err, s3store.ErrDenied) || !strings.Contains(err.Error(), right) {
				t.Errorf("Open says %v, want ErrDenied and %s", err, right)
			}
		})
	}
}

// A service that ignores conditions would let writers overwrite each other.
func TestIgnoredConditions(t *testing.T) {
	for _, header := range []string{"If-Match", "If-None-Match"} {
		t.Run(header, func(t *testing.T) {
			fake, url := serve(t)
			fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
				r.Header.Del(header)
				return false
			})
			_, err := s3store.Open(t.Context(), url, keys)
			if !errors.Is(err, s3store.ErrUnsuited) || !strings.Contains(err.Error(), header) {
				t.Errorf("Open says %v, want ErrUnsuited and %s", err, header)
			}
			empty(t, fake)
		})
	}
}

// A bucket with versions keeps what was erased. Object lock needs versions, so that
// it is refused too.
func TestVersionedBucket(t *testing.T) {
	fake, url := serve(t)
	var enabled gofakes3.VersioningConfiguration
	enabled.SetEnabled(true)
	if err := fake.Backend.SetVersioningConfiguration(s3test.Bucket, enabled); err != nil {
		t.Fatal(err)
	}
	if _, err := s3store.Open(t.Context(), url, keys); !errors.Is(err, s3store.ErrVersioned) {
		t.Errorf("Open says %v, want ErrVersioned", err)
	}
}

// Open leaves nothing behind.
func TestOpenLeavesNothing(t *testing.T) {
	fake, url := serve(t)
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	empty(t, fake)
}

// A store that has to exist does once something was written, and is not made otherwise.
func TestExisting(t *testing.T) {
	fake, url := serve(t)
	existing := url + "&existing=true"
	if _, err := s3store.Open(t.Context(), existing, keys); !errors.Is(err, s3store.ErrNoStore) {
		t.Errorf("Open of nothing: %v, want ErrNoStore", err)
	}
	if _, err := s3store.Open(t.Context(), url+"&existing=perhaps", keys); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Open: %v, want ErrInvalid", err)
	}
	empty(t, fake)
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Put(t.Context(), "cell", []byte("value"), ""); err != nil {
		t.Fatal(err)
	}
	again, err := s3store.Open(t.Context(), existing, keys)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func empty(t *testing.T, fake *s3test.Fake) {
	t.Helper()
	list, err := fake.Backend.ListBucket(s3test.Bucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range list.Contents {
		t.Errorf("the bucket holds %s", object.Key)
	}
}

// A service that accepts requests and never answers ends neither Open nor a call in
// waiting: a missing answer takes as long as Options.Timeout.
func TestSilence(t *testing.T) {
	fake, url := serve(t)
	o := keys
	o.Timeout = 100 * time.Millisecond
	s, err := s3store.Open(t.Context(), url, keys)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	silent := make(chan struct{})
	defer close(silent)
	fake.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-silent:
		case <-r.Context().Done():
		}
		return true
	})
	if _, err := s3store.Open(t.Context(), url, o); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open says %v, want store.ErrUnavailable", err)
	}
}
