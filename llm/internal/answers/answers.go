// Package answers holds what the providers share about replies: how they reach
// the caller, what an HTTP status means, how long to wait, how much of a foreign
// error to quote, and keys that stay with their server. It may import llm.
package answers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/llm"
)

// Deltas yields what generate emits, and its error unless the loop has ended. A
// context that ended is the error then, and no [llm.Error]: nobody may retry what
// was cancelled.
func Deltas(ctx context.Context, provider string, generate func(emit func(llm.Delta) error) error) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		stopped := false
		err := generate(func(d llm.Delta) error {
			if stopped = !yield(d, nil); stopped {
				return errors.New("stopped")
			}
			return nil
		})
		switch {
		case err == nil || stopped:
		case ctx.Err() != nil:
			yield(llm.Delta{}, fmt.Errorf("%s: %w", provider, ctx.Err()))
		default:
			yield(llm.Delta{}, err)
		}
	}
}

// StatusKind returns the kind of error that an HTTP status stands for.
func StatusKind(status int) error {
	switch {
	case status == http.StatusTooManyRequests:
		return llm.ErrRateLimited
	case status == http.StatusUnauthorized || status == http.StatusPaymentRequired || status == http.StatusForbidden:
		return llm.ErrAuth
	case status == http.StatusRequestEntityTooLarge:
		return llm.ErrTooLong
	case status == http.StatusRequestTimeout || status < 400:
		return llm.ErrInterrupted
	case status >= 500:
		return llm.ErrOverloaded
	}
	return llm.ErrInvalid
}

// MaxWait is the longest wait that a provider may ask for.
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

// Short cuts a text, such as the page of a proxy, to what an error can hold.
func Short(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "\uFFFD")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// errElsewhere: a redirect to another server must not carry the key there, as
// package net/http would.
var errElsewhere = errors.New("redirected to another server")

// Stay returns a client that follows redirects only to the same server.
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

// WrongURL reports whether an error is due to the URL, so that a retry cannot
// help.
func WrongURL(err error) bool {
	u, ok := errors.AsType[*url.Error](err)
	if err != nil && strings.Contains(err.Error(), "request URL origin must match") {
		return true // OpenAI's SDK notices the redirect first
	}
	return ok && (u.Op == "parse" || errors.Is(err, errElsewhere) || strings.Contains(u.Err.Error(), "unsupported protocol scheme"))
}
