package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// built is a build with a file of each sort.
var built = fstest.MapFS{
	"index.html": {Data: []byte(`<meta name="csp-nonce" nonce="__NONCE__"><meta name="perdure-base" content="/console/"><meta name="perdure-api" content="__API__">` +
		`<script type="module" src="/console/assets/app-3f2a.js"></script><link rel="stylesheet" href="./assets/app-11aa.css">`)},
	"assets/app-3f2a.js":  {Data: []byte(strings.Repeat("console.log('a');\n", 200))},
	"assets/app-11aa.css": {Data: []byte("a{}")},
	"favicon.png":         {Data: []byte("\x89PNG")},
}

// ask sends a request with headers in pairs.
func ask(t *testing.T, h http.Handler, method, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" && method == http.MethodGet {
		z, err := gzip.NewReader(body)
		if err != nil {
			t.Fatal(err)
		}
		body = z
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

func TestPathsOfThePage(t *testing.T) {
	h := newSite(built, Options{})
	for _, test := range []struct {
		method, path, accept string
		status               int
		has                  string
	}{
		{"GET", "/console/", "text/html", 200, "csp-nonce"},
		{"GET", "/console/index.html", "", 200, "csp-nonce"},
		{"GET", "/console/threads/t1", "", 200, "csp-nonce"},
		{"GET", "/console/threads/report.v2", "text/html,*/*", 200, "csp-nonce"},
		{"HEAD", "/console/threads/t1", "", 200, ""},
		{"GET", "/console/assets/app-3f2a.js", "*/*", 200, "console.log"},
		{"HEAD", "/console/assets/app-3f2a.js", "*/*", 200, ""},
		{"GET", "/console/favicon.png", "", 200, "PNG"},
		{"GET", "/console", "", 308, ""},
		{"GET", "/console/assets/app-0000.js", "text/html", 404, ""},
		{"GET", "/console/assets/", "text/html", 404, ""},
		{"GET", "/console/missing.js", "*/*", 404, ""},
		{"POST", "/console/", "", 405, ""},
		{"GET", "/threads/t1", "", 200, "csp-nonce"}, // behind http.StripPrefix
		{"GET", "/assets/app-3f2a.js", "", 200, "console.log"},
		{"GET", "/assets/app-0000.js", "", 404, ""},
	} {
		resp, body := ask(t, h, test.method, test.path, "Accept", test.accept)
		if resp.StatusCode != test.status || !strings.Contains(body, test.has) {
			t.Errorf("%s %s is answered with %d and %.60q; want %d and %q", test.method, test.path, resp.StatusCode, body, test.status, test.has)
		}
		if test.method == "HEAD" && (body != "" || resp.Header.Get("Content-Length") == "") {
			t.Errorf("HEAD %s has the body %q and the length %q", test.path, body, resp.Header.Get("Content-Length"))
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s %s lacks headers: %v", test.method, test.path, resp.Header)
		}
	}
}

func TestEachPageHasItsOwnNonce(t *testing.T) {
	h := newSite(built, Options{})
	seen := map[string]bool{}
	for range 3 {
		resp, body := ask(t, h, "GET", "/console/")
		m := regexp.MustCompile(`<meta name="csp-nonce" nonce="(\w{20,})">`).FindStringSubmatch(body)
		if m == nil || seen[m[1]] {
			t.Fatalf("the page %s has no nonce of its own", body)
		}
		seen[m[1]] = true
		want := "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-" + m[1] + "'; img-src 'self' data: blob:; font-src 'self'; " +
			"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
		if got := resp.Header.Get("Content-Security-Policy"); got != want {
			t.Errorf("the policy is\n%s\nwant\n%s", got, want)
		}
	}
}

func TestCaching(t *testing.T) {
	h := newSite(built, Options{})
	for _, test := range []struct{ path, cache string }{
		{"/console/", "no-cache"},
		{"/console/favicon.png", "no-cache"},
		{"/console/assets/app-3f2a.js", "public, max-age=31536000, immutable"},
	} {
		for _, encoding := range []string{"", "gzip"} {
			resp, first := ask(t, h, "GET", test.path, "Accept-Encoding", encoding)
			tag := resp.Header.Get("ETag")
			if resp.Header.Get("Cache-Control") != test.cache || tag == "" {
				t.Errorf("%s has the headers %v, want %s", test.path, resp.Header, test.cache)
			}
			resp, body := ask(t, h, "GET", test.path, "Accept-Encoding", encoding, "If-None-Match", `"other", `+tag)
			if resp.StatusCode != http.StatusNotModified || body != "" || resp.Header.Get("Content-Security-Policy") != "" && test.path == "/console/" {
				t.Errorf("%s again is answered with %d, %q and %v", test.path, resp.StatusCode, body, resp.Header)
			}
			resp, body = ask(t, h, "GET", test.path, "Accept-Encoding", encoding, "If-None-Match", `"other"`)
			if resp.StatusCode != http.StatusOK || len(body) != len(first) {
				t.Errorf("%s with another tag is answered with %d and %d bytes", test.path, resp.StatusCode, len(body))
			}
		}
	}
}

func TestCompression(t *testing.T) {
	h := newSite(built, Options{})
	for _, test := range []struct {
		path, accepts string
		packed        bool
	}{
		{"/console/assets/app-3f2a.js", "br, gzip", true},
		{"/console/assets/app-3f2a.js", "gzip;q=0.5", true},
		{"/console/assets/app-3f2a.js", "gzip;q=0", false},
		{"/console/assets/app-3f2a.js", "", false},
		{"/console/assets/app-11aa.css", "gzip", false}, // it would grow
		{"/console/favicon.png", "gzip", false},
		{"/console/", "gzip", true},
		{"/console/", "identity", false},
	} {
		resp, body := ask(t, h, "GET", test.path, "Accept-Encoding", test.accepts)
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != test.packed {
			t.Errorf("%s for %q is compressed: %v", test.path, test.accepts, got)
		}
		if want := built[strings.TrimPrefix(test.path, "/console/")]; want != nil && body != string(want.Data) {
			t.Errorf("%s for %q is %.60q", test.path, test.accepts, body)
		}
	}
}

func TestBelowAPrefix(t *testing.T) {
	_, body := ask(t, newSite(built, Options{Base: "/ops/console", API: "/ops"}), "GET", "/ops/console/threads")
	for _, want := range []string{`src="/ops/console/assets/app-3f2a.js"`, `href="/ops/console/assets/app-11aa.css"`, `name="perdure-base" content="/ops/console/"`, `name="perdure-api" content="/ops/"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s: %s", want, body)
		}
	}
	_, body = ask(t, newSite(built, Options{Base: `/"><script>/`}), "GET", "/")
	if strings.Contains(body, `"><script>/`) {
		t.Errorf("the base is not escaped: %s", body)
	}
}

// TestBuildIsComplete holds the build in the repository to what the handler and its
// policy expect of it.
func TestBuildIsComplete(t *testing.T) {
	h := Handler(Options{})
	_, body := ask(t, h, "GET", "/console/")
	if strings.Contains(body, nonceMark) || strings.Contains(body, apiMark) || !strings.Contains(body, `name="csp-nonce"`) {
		t.Errorf("the page is\n%s", body)
	}
	if m := regexp.MustCompile(`(?s)<script(?:\s[^>]*)?>\s*[^<\s]|\son\w+=|<style|\sstyle=`).FindString(body); m != "" {
		t.Errorf("the page has %q, which its policy forbids", m)
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="(/console/[^"]+)"`).FindAllStringSubmatch(body, -1) {
		if resp, _ := ask(t, h, "GET", m[1], "Accept", "*/*"); resp.StatusCode != http.StatusOK {
			t.Errorf("the page needs %s, which is answered with %d", m[1], resp.StatusCode)
		}
	}
	if m := regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).FindString(body); m != "" {
		t.Errorf("the page needs another host: %s", m)
	}
}
