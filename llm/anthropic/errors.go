package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/perdure/perdure/llm"
)

// problem makes an error of the SDK one of package llm, without the key.
func problem(ctx context.Context, err error, key string) error {
	if ctx.Err() != nil {
		// Not an *llm.Error: nobody may try again what was cancelled.
		return fmt.Errorf("%s: %w", provider, ctx.Err())
	}
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		e = &llm.Error{Kind: llm.ErrInterrupted, Provider: provider, Message: err.Error()}
		if api, ok := errors.AsType[*sdk.Error](err); ok {
			e = answered(api)
		} else if wrongURL(err) {
			e.Kind = llm.ErrInvalid
		}
	}
	e.Message = llm.Scrub(e.Message, key)
	e.Code = llm.Scrub(e.Code, key)
	return e
}

// answered is an error that the API sent, as an answer or in its stream.
func answered(api *sdk.Error) *llm.Error {
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	e := &llm.Error{Provider: provider, Status: api.StatusCode}
	if json.Unmarshal([]byte(api.RawJSON()), &body) == nil {
		e.Code, e.Message = body.Error.Type, body.Error.Message
	}
	if e.Message == "" {
		e.Message = short(api.RawJSON())
	}
	e.Kind = kind(e.Status, e.Code, strings.ToLower(e.Message))
	if api.Response != nil {
		e.RetryAfter = retryAfter(api.Response.Header)
	}
	return e
}

// kind sorts an error by what the API says about it, and else by its status,
// which is 200 for an error in a stream.
func kind(status int, code, message string) error {
	if status >= 500 {
		return llm.ErrOverloaded
	}
	switch code {
	case "rate_limit_error":
		return llm.ErrRateLimited
	case "overloaded_error", "api_error":
		return llm.ErrOverloaded
	case "authentication_error", "permission_error", "billing_error":
		return llm.ErrAuth
	case "timeout_error":
		return llm.ErrInterrupted
	case "request_too_large":
		return llm.ErrTooLong
	case "invalid_request_error":
		switch {
		case says(message, "prompt is too long", "exceed context limit", "context window"):
			return llm.ErrTooLong
		case says(message, "credit balance"):
			return llm.ErrAuth
		case says(message, "content filtering policy"):
			return llm.ErrRefused
		}
		return llm.ErrInvalid
	case "not_found_error":
		return llm.ErrInvalid
	}
	switch status {
	case http.StatusTooManyRequests:
		return llm.ErrRateLimited
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return llm.ErrAuth
	case http.StatusRequestTimeout:
		return llm.ErrInterrupted
	case http.StatusRequestEntityTooLarge:
		return llm.ErrTooLong
	}
	if status >= 400 {
		return llm.ErrInvalid
	}
	return llm.ErrInterrupted
}

// says reports whether a message holds one of the texts.
func says(message string, texts ...string) bool {
	for _, t := range texts {
		if strings.Contains(message, t) {
			return true
		}
	}
	return false
}

// retryAfter reads Retry-After: seconds, or a date.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		const most = 24 * time.Hour
		return time.Duration(min(max(s, 0), most.Seconds()) * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

// short cuts the page of a proxy to what an error can hold.
func short(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "\uFFFD")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// errElsewhere: a server may not send the key on to another one, which the
// client of package net/http would do.
var errElsewhere = errors.New("redirected to another server")

// stay returns a client that follows redirects only on one server.
func stay(h *http.Client) *http.Client {
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

// wrongURL reports whether an error comes from the URL, so that no other
// attempt can help.
func wrongURL(err error) bool {
	u, ok := errors.AsType[*url.Error](err)
	return ok && (u.Op == "parse" || errors.Is(err, errElsewhere) || strings.Contains(u.Err.Error(), "unsupported protocol scheme"))
}
