package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// guardServer returns a server whose face /face counts the requests that reach
// it.
func guardServer(t *testing.T, o server.Options) (*server.Server, *int) {
	t.Helper()
	rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}))(t)
	s, n := server.New(rt, o), new(int)
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		s.AddFace(method+" /face", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
			*n++
			_, err := io.WriteString(w, "{}")
			return err
		})
	}
	return s, n
}

func guardDo(s *server.Server, method, host string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, "/face", nil)
	r.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func TestGuardKnowsTheServersNames(t *testing.T) {
	local, n := guardServer(t, server.Options{})
	named, _ := guardServer(t, server.Options{Hosts: []string{"api.example", "odd.example:8080"}})
	open, _ := guardServer(t, server.Options{Hosts: []string{"*"}})
	for host, want := range map[string][2]int{
		"localhost":           {200, 200},
		"LocalHost:7373":      {200, 200},
		"localhost.":          {200, 200},
		"a.localhost:1":       {200, 200},
		"127.0.0.1:7373":      {200, 200},
		"127.9.9.9":           {200, 200},
		"[::1]:7373":          {200, 200},
		"[::1]":               {200, 200},
		"[::ffff:127.0.0.1]":  {200, 200},
		"api.example":         {403, 200},
		"API.example:443":     {403, 200},
		"odd.example:8080":    {403, 200},
		"odd.example:8081":    {403, 403},
		"evil.example":        {403, 403},
		"evil.example:7373":   {403, 403},
		"api.example.evil":    {403, 403},
		"localhost.evil":      {403, 403},
		"evillocalhost":       {403, 403},
		"127.0.0.1.evil":      {403, 403},
		"0.0.0.0:7373":        {403, 403},
		"[::]:7373":           {403, 403},
		"192.168.1.1":         {403, 403},
		"2130706433":          {403, 403},
		"":                    {403, 403},
		"evil@localhost":      {403, 403},
		"localhost:80@evil:1": {403, 403},
	} {
		before := *n
		for i, s := range []*server.Server{local, named} {
			if got := guardDo(s, "GET", host); got.StatusCode != want[i] {
				t.Errorf("host %q at server %d: %d, want %d", host, i, got.StatusCode, want[i])
			}
		}
		if (*n > before) != (want[0] == 200) {
			t.Errorf("host %q reached the handler %d times", host, *n-before)
		}
		if got := guardDo(open, "GET", host); got.StatusCode != 200 {
			t.Errorf("host %q at the open server: %d", host, got.StatusCode)
		}
	}
}

func TestGuardLetsNoPageFromElsewhereIn(t *testing.T) {
	auth := servertest.People{}
	for name, o := range map[string]server.Options{
		"dev":                 {},
		"dev with a star":     {Origins: []string{"*"}},
		"another is listed":   {Origins: []string{"https://console.example"}},
		"auth, none is given": {Auth: auth},
	} {
		s, n := guardServer(t, o)
		for _, headers := range [][]string{
			{"Origin", "https://evil.example"},
			{"Origin", "http://localhost:3000"}, // another server of this machine
			{"Origin", "http://localhost.evil:7373"},
			{"Origin", "null"},
			{"Origin", "file://"},
			{"Origin", "localhost:7373"},
			{"Origin", "http://localhost:7373", "Origin", "https://evil.example"},
			{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
			{"Origin", "http://localhost:7373", "Sec-Fetch-Site", "cross-site"},
			{"Origin", "http://localhost:3000", "Sec-Fetch-Site", "same-site"},
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://console.example.evil"},
			{"Origin", "http://console.example"},
		} {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				if got := guardDo(s, method, "localhost:7373", append(headers, "Access-Control-Request-Method", "POST")...); got.StatusCode != 403 || got.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s: %s with %v is answered %d, %v", name, method, headers, got.StatusCode, got.Header)
				}
			}
			if *n > 0 {
				t.Fatalf("%s: a request with %v reached the handler", name, headers)
			}
			if got := guardDo(s, "GET", "localhost:7373", headers...); got.Header.Get("Access-Control-Allow-Origin") != "" || got.Header.Get("Access-Control-Allow-Credentials") != "" ||
				got.StatusCode == 200 && got.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("%s: a page with %v may see the answer: %v", name, headers, got.Header)
			}
			*n = 0
		}
		for _, headers := range [][]string{
			{},
			{"Origin", "http://localhost:7373"},
			{"Origin", "http://localhost:7373", "Sec-Fetch-Site", "same-origin"},
			{"Sec-Fetch-Site", "none"},
		} {
			if got := guardDo(s, "POST", "localhost:7373", headers...); got.StatusCode != 200 {
				t.Errorf("%s: POST with %v is answered %d", name, headers, got.StatusCode)
			}
		}
		// Its name leads here: same origin for the browser, unknown to us.
		if got := guardDo(s, "POST", "evil.example:7373", "Origin", "http://evil.example:7373", "Sec-Fetch-Site", "same-origin"); got.StatusCode != 403 {
			t.Errorf("%s: rebinding is answered %d", name, got.StatusCode)
		}
	}
}

func TestGuardTellsListedPagesWhatTheyMay(t *testing.T) {
	for _, c := range []struct {
		origins []string
		creds   string
	}{{[]string{"https://Console.example/"}, "true"}, {[]string{"*"}, ""}} {
		s, n := guardServer(t, server.Options{Auth: servertest.People{}, Origins: c.origins})
		const origin = "https://console.example"
		got := guardDo(s, "OPTIONS", "localhost", "Origin", origin, "Access-Control-Request-Method", "DELETE", "Sec-Fetch-Site", "cross-site")
		h := got.Header
		if got.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Credentials") != c.creds ||
			!strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE") || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Last-Event-ID") || h.Get("Access-Control-Max-Age") == "" || *n != 0 {
			t.Errorf("the preflight is answered %d %v", got.StatusCode, h)
		}
		got = guardDo(s, "POST", "localhost", "Origin", origin, "Sec-Fetch-Site", "cross-site")
		h = got.Header
		if got.StatusCode != 200 || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Credentials") != c.creds ||
			!strings.Contains(h.Get("Access-Control-Expose-Headers"), "ETag") || h.Get("Vary") != "Origin" || *n != 1 {
			t.Errorf("the request is answered %d %v", got.StatusCode, h)
		}
		// Also what is refused is told to the page.
		r := httptest.NewRequest("GET", "http://localhost/v1/flows", nil)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("without a token: %d %v", w.Code, w.Header())
		}
	}
}

func TestGuardSetsHeadersOnAllAnswers(t *testing.T) {
	s, _ := guardServer(t, server.Options{Auth: servertest.People{}})
	for _, path := range []string{"/face", "/healthz", "/v1/flows", "/none", "/v1//flows"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		h := w.Header()
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %d %v", path, w.Code, h)
		}
	}
}

func TestGuardSurvivesPanics(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	site := servertest.New(t, server.Options{Logger: slog.New(slog.NewTextHandler(&guardLog{&mu, &log}, nil))})
	site.Server.AddFace("GET /early", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		w.Header().Set("Content-Length", "1000")
		panic("an oops inside")
	})
	site.Server.AddFace("GET /late", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		fmt.Fprintln(w, "half")
		http.NewResponseController(w).Flush()
		panic(errors.New("an oops inside"))
	})
	site.Server.AddFace("GET /abort", api.ScopeNone, func(http.ResponseWriter, *http.Request, server.Caller) error {
		panic(http.ErrAbortHandler)
	})
	early := site.Do("GET", "/early", "").Problem(500, "internal")
	if bytes.Contains(early.Body, []byte("oops")) {
		t.Errorf("the caller is told what is inside: %s", early.Body)
	}
	for _, path := range []string{"/late", "/abort"} {
		resp, err := http.Get(site.URL + path)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s seems to be whole", path)
		}
	}
	site.Do("GET", "/healthz", "").Want(200)
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "an oops inside"); n != 2 || !strings.Contains(log.String(), "guard_test.go") {
		t.Errorf("the log tells of %d panics:\n%s", n, log.String())
	}
}

type guardLog struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *guardLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestCheckListen(t *testing.T) {
	for addr, alone := range map[string]bool{
		"127.0.0.1:7373": true, "localhost:0": true, "LOCALHOST:1": true, "[::1]:7373": true, "127.8.8.8:1": true,
		":7373": false, "0.0.0.0:7373": false, "[::]:7373": false, "192.168.0.1:80": false, "example.com:80": false, "a.localhost:80": false,
	} {
		if err := server.CheckListen(addr, false, false); (err == nil) != alone {
			t.Errorf("%s: %v", addr, err)
		}
		if err := errors.Join(server.CheckListen(addr, true, false), server.CheckListen(addr, false, true)); err != nil {
			t.Errorf("%s, as it is meant: %v", addr, err)
		}
	}
	if err := server.CheckListen("7373", true, true); err == nil {
		t.Error("7373 is taken for an address")
	}
}
