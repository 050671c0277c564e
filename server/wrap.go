package server

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/perdure/perdure/api"
)

// wrap counts requests, turns the mux's own responses into problems, and names the
// thread that a response is about.
func (s *Server) wrap(mux http.Handler) http.Handler {
	names := map[string]string{}
	for _, op := range slices.Concat(api.All(), s.faces) {
		names[op.Method+" "+op.Path] = op.Name
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		a := &outcome{ResponseWriter: w}
		r = keepEmpty(r)
		a.r = r
		defer func() {
			status := cmp.Or(a.status, http.StatusInternalServerError) // 0: the handler panicked
			stream := strings.HasPrefix(w.Header().Get("Content-Type"), api.TypeEvents)
			s.meter.request(cmp.Or(names[r.Pattern], "none"), status, time.Since(begun), stream)
		}()
		given := r.URL.EscapedPath()
		clean := path.Clean("/" + given) // as the mux would have it
		if strings.HasSuffix(given, "/") && clean != "/" {
			clean += "/"
		}
		if clean != given {
			// The mux would redirect, which clients do not expect for a write.
			s.fail(a, r, fmt.Errorf("%w: %s; its address would be %s", api.ErrNotFound, given, clean))
			return
		}
		mux.ServeHTTP(a, r)
		switch {
		case a.own == http.StatusMethodNotAllowed:
			s.fail(a, r, fmt.Errorf("%w: %s accepts %s", api.ErrMethod, r.URL.EscapedPath(), w.Header().Get("Allow")))
		case a.own != 0:
			s.fail(a, r, fmt.Errorf("%w: %s %s", api.ErrNotFound, r.Method, r.URL.EscapedPath()))
		case a.status == 0:
			a.status = http.StatusOK
		}
	})
}

// noSegment stands for an empty segment of a path, which the mux would drop.
const noSegment = "\x00"

// keepEmpty keeps the empty segments in the path of memory: the namespace of
// threads without an owner has one.
func keepEmpty(r *http.Request) *http.Request {
	const memory = "/v1/memory/"
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), memory)
	if !ok || !strings.Contains("/"+rest, "//") {
		return r
	}
	parts := strings.Split(rest, "/")
	for i := range parts {
		if parts[i] == "" {
			parts[i] = url.PathEscape(noSegment)
		}
	}
	raw := memory + strings.Join(parts, "/")
	unescaped, err := url.PathUnescape(raw)
	if err != nil {
		return r
	}
	r = r.WithContext(r.Context())
	u := *r.URL
	u.Path, u.RawPath = unescaped, raw
	r.URL = &u
	return r
}

// outcome is a response whose status is noted. Of the mux's own responses, for
// want of a handler, only the status and the headers remain.
type outcome struct {
	http.ResponseWriter
	r      *http.Request
	status int
	own    int    // the mux's own status
	thread string // that the response is about, if the path does not say so
}

// load returns what the request takes of the limits, nil without a connection.
func (a *outcome) load() *load {
	if a == nil {
		return nil
	}
	if p, ok := a.ResponseWriter.(*paced); ok {
		return p.load
	}
	return nil
}

// traceHeader names the thread in all responses about one, but for problems, for
// clients that resume by it.
const traceHeader = "X-Agentkit-Trace-Id"

// WriteHeader notes the status.
func (a *outcome) WriteHeader(status int) {
	missing := a.r.Pattern == "" && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && a.Header().Get("Content-Type") != api.TypeProblem
	// No handler redirects; the mux does for want of a slash.
	elsewhere := status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	if a.own == 0 && (missing || elsewhere) {
		a.own = status
		a.Header().Del("Location")
		return
	}
	if a.status == 0 && status >= 200 {
		a.status = status
		a.thread = cmp.Or(a.thread, a.r.PathValue("thread"), a.r.PathValue("session"))
		if a.thread != "" && status < http.StatusMultipleChoices && !strings.ContainsFunc(a.thread, unicode.IsControl) {
			a.Header().Set(traceHeader, a.thread)
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the answer.
func (a *outcome) Write(p []byte) (int, error) {
	if a.own != 0 && a.status == 0 {
		return len(p), nil
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (a *outcome) Flush() {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (a *outcome) Unwrap() http.ResponseWriter { return a.ResponseWriter }
