// Package answers is what the providers share of HTTP: how long to wait, how much
// of a foreign error to quote, and keys that stay with their server.
package answers

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MaxWait is the longest wait that a provider is believed.
const MaxWait = 24 * time.Hour

// RetryAfter reads the headers by which a server says how long to wait:
// milliseconds, seconds, or a date. It is 0 if there are none.
func RetryAfter(h http.Header) time.Duration {
	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.ParseFloat(strings.TrimSpace(h.Get(header.name)), 64); err == nil && n >= 0 {
			return time.Duration(min(n, float64(MaxWait)/float64(header.unit)) * float64(header.unit))
		}
	}
	until, err := http.ParseTime(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date")) // the server's clock: ours may be wrong
	if err != nil {
		now = time.Now()
	}
	return min(max(0, until.Sub(now)), MaxWait)
}

// Short cuts the page of a proxy to what an error can hold.
func Short(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "\uFFFD")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// errElsewhere: a server may not send the key on to another one, which the
// client of package net/http would do.
var errElsewhere = errors.New("redirected to another server")

// Stay returns a client that follows redirects only on one server.
func Stay(h *http.Client) *http.Client {
	c := *h
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if first := via[0].URL; r.URL.Host != first.Host || r.URL.Scheme != first.Scheme {
			return errElsewhere
		}
		if h.CheckRedirect != nil {
			return h.CheckRedirect(r, via)
		}
		if len(via) >= 10 {
			return errors.New("10 redirects")
		}
		return nil
	}
	return &c
}

// WrongURL reports whether an error comes from the URL, so that no other
// attempt can help.
func WrongURL(err error) bool {
	u, ok := errors.AsType[*url.Error](err)
	if err != nil && strings.Contains(err.Error(), "request URL origin must match") {
		return true // OpenAI's SDK sees a redirect elsewhere first
	}
	return ok && (u.Op == "parse" || errors.Is(err, errElsewhere) || strings.Contains(u.Err.Error(), "unsupported protocol scheme"))
}
