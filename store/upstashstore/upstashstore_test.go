package upstashstore_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/resttest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
	"github.com/perdure/perdure/store/storetest"
	"github.com/perdure/perdure/store/upstashstore"
)

func TestStore(t *testing.T) {
	resttest.URL(t, "") // starts it
	storetest.Run(t, func(ctx context.Context, dir string) (store.Store, error) {
		return store.Open(ctx, resttest.URL(t, dir))
	})
}

var options = upstashstore.Options{Token: resttest.Token}

// serve returns a server of the protocol, the URL of a store on it, and a client of the
// Redis server behind it. The names of keys begin with {perdure}: there.
func serve(t *testing.T, settings ...string) (*resttest.Proxy, string, *redis.Client) {
	t.Helper()
	server := redistest.Start(t, settings...)
	proxy := resttest.New(server.URL)
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	o, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := redis.NewClient(o)
	t.Cleanup(func() { behind.Close() })
	return proxy, resttest.StoreURL(front.URL), behind
}

func open(t *testing.T, url string) *kvstore.Store {
	t.Helper()
	s, err := upstashstore.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// hangUp closes the connection of a request without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

func TestOutage(t *testing.T) {
	server := redistest.Start(t, redistest.Always...)
	proxy := resttest.New(server.URL)
	front := httptest.NewServer(proxy)
	defer front.Close()
	before := func(answer func(http.ResponseWriter, *http.Request)) func(*testing.T, bool) {
		return func(_ *testing.T, on bool) {
			proxy.Before(nil)
			if on {
				proxy.Before(func(w http.ResponseWriter, r *http.Request) bool { answer(w, r); return true })
			}
		}
	}
	for name, fail := range map[string]func(*testing.T, bool){
		"no connection": before(func(w http.ResponseWriter, _ *http.Request) { hangUp(w) }),
		"no answer": before(func(w http.ResponseWriter, r *http.Request) {
			proxy.Pass(httptest.NewRecorder(), r)
			hangUp(w)
		}),
		"throttled": before(func(w http.ResponseWriter, _ *http.Request) { resttest.Refuse(w, 429, "slow down") }),
		"no database": func(t *testing.T, on bool) {
			if on {
				server.Kill()
			} else if err := server.Run(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Outage(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
				s, err := upstashstore.Open(ctx, redistest.Prefix(resttest.StoreURL(front.URL), dir), options)
				return s, func(on bool) { fail(t, on) }, err
			})
		})
	}
}

// TestOpenRefuses makes the mistakes of a newcomer.
func TestOpenRefuses(t *testing.T) {
	t.Setenv("UPSTASH_REDIS_REST_TOKEN", "")
	_, url, behind := serve(t)
	_, cache, _ := serve(t, "--maxmemory-policy", "allkeys-random")
	for key, value := range map[string]string{"{foreign}:format": "theirs", "{newer}:format": "1000 id"} {
		if err := behind.Set(t.Context(), key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := behind.ZAdd(t.Context(), "{half}:index", redis.Z{Member: "c-0"}).Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url, token string
		want       error
		says       string
	}{
		"no host":          {"upstash:", "t", store.ErrInvalid, "upstash://HOST"},
		"a path":           {"upstash://host/0", "t", store.ErrInvalid, "upstash://HOST"},
		"token in the URL": {"upstash://:s3cret@host", "t", store.ErrInvalid, "UPSTASH_REDIS_REST_TOKEN"},
		"parameter":        {url + "&colour=red", "t", store.ErrInvalid, "colour"},
		"tls":              {"upstash://host?tls=perhaps", "t", store.ErrInvalid, "true or false"},
		"prefix":           {url + "&prefix=a}b", "t", store.ErrInvalid, "letters"},
		"no token":         {url, "", upstashstore.ErrToken, "UPSTASH_REDIS_REST_TOKEN"},
		"wrong token":      {url, "s3cret", upstashstore.ErrToken, "UPSTASH_REDIS_REST_TOKEN"},
		"nobody listening": {"upstash://127.0.0.1:1", "t", store.ErrUnavailable, "127.0.0.1:1"},
		"no TLS":           {strings.TrimSuffix(url, "?tls=false"), "t", store.ErrUnavailable, ""},
		"a cache":          {cache, resttest.Token, upstashstore.ErrEvicts, "allkeys-random"},
		"another's key":    {url + "&prefix=foreign", resttest.Token, store.ErrForeign, "?prefix="},
		"a newer store":    {url + "&prefix=newer", resttest.Token, store.ErrNewer, "1000"},
		"no store":         {url + "&prefix=none&existing=true", resttest.Token, upstashstore.ErrNoStore, "?prefix="},
		"existing":         {url + "&existing=perhaps", resttest.Token, store.ErrInvalid, "true or false"},
		"half a store":     {url + "&prefix=half", resttest.Token, store.ErrCorrupt, "format"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := upstashstore.Open(t.Context(), c.url, upstashstore.Options{Token: c.token})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open says %v, want %v with %q", err, c.want, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error gives the token away: %v", err)
			}
		})
	}
	if _, err := store.Open(t.Context(), resttest.URL(t, t.TempDir()), store.Require(store.Process)); !errors.Is(err, store.ErrWeak) || !strings.Contains(err.Error(), "asynchronously") {
		t.Errorf("Open that requires more than the service promises says %v, want ErrWeak", err)
	}
}

// What the service answers decides what went wrong.
func TestAnswers(t *testing.T) {
	proxy, url, _ := serve(t)
	s := open(t, url)
	for _, c := range []struct {
		status int
		said   string
		want   error
	}{
		{401, "Unauthorized", upstashstore.ErrToken},
		{400, "NOPERM this user has no permissions to run the 'eval' command", upstashstore.ErrToken},
		{429, "slow down", upstashstore.ErrThrottled},
		{429, "slow down", store.ErrUnavailable},
		{400, "ERR max requests limit exceeded. Limit: 500000", upstashstore.ErrThrottled},
		{400, "ERR max daily request limit exceeded", upstashstore.ErrThrottled},
		{400, "ERR max request size exceeded", store.ErrTooLarge},
		{413, "too large", store.ErrTooLarge},
		{400, "ERR DB capacity quota exceeded", store.ErrFull},
		{400, "OOM command not allowed when used memory > 'maxmemory'.", store.ErrFull},
		{400, "READONLY You can't write against a read only replica.", store.ErrUnavailable},
		{400, "LOADING Redis is loading the dataset in memory", store.ErrUnavailable},
		{503, "try again", store.ErrUnavailable},
		{307, "elsewhere", store.ErrInvalid},
	} {
		proxy.Before(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			resttest.Refuse(w, c.status, c.said)
			return true
		})
		check := func(doing string, err error) {
			t.Helper()
			if !errors.Is(err, c.want) {
				t.Errorf("%d %s: %s says %v, want %v", c.status, c.said, doing, err, c.want)
			}
		}
		_, err := s.Append(t.Context(), "j", 0, []byte("x"))
		check("Append", err)
		_, err = s.Get(t.Context(), "c")
		check("Get", err)
		for _, err := range s.List(t.Context(), "", "") {
			check("List", err)
		}
		_, err = upstashstore.Open(t.Context(), url, options)
		check("Open", err)
	}
	for _, body := range []string{"", "<html>", `{"result": 1}`, `{"result": []}`, `{"result": [1]}`, `{"result": ["found"]}`, `{"result": ["odd"]}`} {
		proxy.Before(func(w http.ResponseWriter, _ *http.Request) bool { _, err := w.Write([]byte(body)); return err == nil })
		if c, err := s.Get(t.Context(), "c"); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("Get finds %v, %v in the answer %q", c, err, body)
		}
	}
}

// A service that never answers ends a call after Options.Timeout.
func TestSilence(t *testing.T) {
	proxy, url, _ := serve(t)
	o := options
	o.Timeout = 100 * time.Millisecond
	silent := make(chan struct{})
	defer close(silent)
	proxy.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-silent:
		case <-r.Context().Done():
		}
		return true
	})
	if _, err := upstashstore.Open(t.Context(), url, o); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open says %v, want store.ErrUnavailable", err)
	}
}
