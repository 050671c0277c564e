package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/perdure/perdure/api"
)

// The methods and headers that pages of Options.Origins may use.
const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, Last-Event-ID, Idempotency-Key, If-Match, If-None-Match, Traceparent, X-Agentkit-Trace-Id, X-Requested-With, Mcp-Protocol-Version, Mcp-Method, Mcp-Name"
	corsExposed = "ETag, Location, Last-Event-ID, X-Agentkit-Trace-Id, Retry-After, Link"
)

// guard keeps out requests that a foreign web page made a browser send. Without
// Options.Auth it is all that stands between such a page and the API.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := rw.(*paced)
		defer s.survive(w, r)
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Add("Vary", "Origin")
		if !s.knownHost(r.Host) && !probe(r) {
			s.fail(w, r, fmt.Errorf("%w: %.80q is not a name of this server", api.ErrOrigin, r.Host))
			return
		}
		origin, listed, err := s.origin(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if origin == "" {
			h.Set("Cross-Origin-Resource-Policy", "same-origin")
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if listed {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders)
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", corsExposed)
		next.ServeHTTP(w, r)
	})
}

// probe reports whether a request is a health check. Those come by address, and
// the response discloses nothing else.
func probe(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == api.HealthGet.Path || r.URL.Path == api.ReadyGet.Path)
}

// knownHost reports whether the server may be called by a name. A page whose own
// name resolves to this machine (DNS rebinding) sends that name.
func (s *Server) knownHost(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if isLoopback(name) {
		return true
	}
	return slices.ContainsFunc(s.opts.Hosts, func(known string) bool {
		return known == "*" || host != "" && (strings.EqualFold(known, name) || strings.EqualFold(known, host))
	})
}

// isLoopback reports whether a name or address is this machine's own.
func isLoopback(name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap().IsLoopback()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// origin returns the foreign origin of the page that sent a request if it is
// allowed, and whether Options.Origins names it; "" if no foreign page sent it, or
// one that cannot see the response. Requests that change something must come from
// no page, from a page of this server, or from an allowed one.
func (s *Server) origin(r *http.Request) (origin string, listed bool, err error) {
	given := r.Header.Values("Origin")
	if len(given) > 0 {
		origin = given[0]
	}
	if len(given) > 1 || strings.ContainsAny(origin, " ,") {
		return "", false, fmt.Errorf("%w: there is more than one header Origin", api.ErrOrigin)
	}
	if ownPage(r) {
		return "", false, nil
	}
	if origin != "" {
		if slices.ContainsFunc(s.opts.Origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), origin) }) && origin != "null" {
			return origin, true, nil
		}
		if s.opts.Auth != nil && slices.Contains(s.opts.Origins, "*") {
			return origin, false, nil
		}
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return "", false, nil
	}
	return "", false, fmt.Errorf("%w: a page from %.80q may not do this", api.ErrOrigin, origin)
}

// ownPage reports whether no page sent a request, or one of this server.
func ownPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" { // no page can set it
		return site == "same-origin" || site == "none"
	}
	origin := r.Header.Get("Origin")
	page, err := url.Parse(origin)
	return origin == "" || err == nil && page.Host != "" && (page.Scheme == "http" || page.Scheme == "https") && strings.EqualFold(page.Host, r.Host)
}

// survive confines a panic of a handler to its request. If the response has begun,
// the connection is aborted, so that nobody takes the response for complete.
func (s *Server) survive(w *paced, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.opts.Logger.Error("a handler panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Length")
	tell(w, api.ProblemOf(errors.New("server: a handler panicked")), nil)
}

// CheckListen returns an error for an address that other machines can reach,
// unless callers are authenticated or the operator insists.
func CheckListen(addr string, authed, insecure bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("server: %q is not an address such as 127.0.0.1:7373: %w", addr, err)
	}
	if authed || insecure || isLoopback(strings.ToLower(host)) && !strings.HasSuffix(host, ".localhost") {
		return nil
	}
	return fmt.Errorf("server: %s can be reached from other machines, and anyone could do anything there: listen on 127.0.0.1, or set up tokens", addr)
}
