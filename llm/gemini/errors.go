package gemini

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
	"google.golang.org/genai"
)

// problem turns an error of the SDK into one of package llm, without the key.
func problem(err error, got *answer, key string) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		e = &llm.Error{Kind: llm.ErrInterrupted, Provider: provider, Status: got.status, Message: answers.Short(err.Error())}
		if api, ok := errors.AsType[genai.APIError](err); ok {
			e = answered(api, got)
		} else if got.status >= 400 {
			e.Kind = answers.StatusKind(got.status)
		} else if answers.WrongURL(err) {
			e.Kind = llm.ErrInvalid
		}
	}
	e.Message = llm.Scrub(e.Message, key)
	e.Code = llm.Scrub(e.Code, key)
	return e
}

// statusCode is a code as Google writes it. Without one, the SDK puts the HTTP
// status line there.
var statusCode = regexp.MustCompile(`^[A-Z_]+$`)

// answered returns the error for one that the API sent, as an answer or in its
// stream.
func answered(api genai.APIError, got *answer) *llm.Error {
	e := &llm.Error{Provider: provider, Status: got.status, Message: answers.Short(api.Message)}
	if statusCode.MatchString(api.Status) {
		e.Code = api.Status
	}
	status := got.status
	if status < 400 {
		status = api.Code // in the stream of an answer that began well
	}
	e.Kind = kind(status, e.Code, strings.ToLower(api.Message))
	e.RetryAfter = answers.RetryAfter(got.header)
	for _, d := range api.Details {
		if s, ok := d["retryDelay"].(string); ok {
			if wait, err := time.ParseDuration(s); err == nil {
				e.RetryAfter = min(max(0, wait), answers.MaxWait)
			}
		}
		if d["reason"] == "API_KEY_INVALID" {
			e.Kind = llm.ErrAuth
		}
	}
	return e
}

// kind returns the sentinel for an error.
func kind(status int, code, message string) error {
	switch code {
	case "RESOURCE_EXHAUSTED":
		return llm.ErrRateLimited
	case "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "UNKNOWN", "ABORTED":
		return llm.ErrOverloaded
	case "UNAUTHENTICATED", "PERMISSION_DENIED":
		return llm.ErrAuth
	case "CANCELLED":
		return llm.ErrInterrupted
	}
	byStatus := answers.StatusKind(status)
	switch {
	case status >= 400 && byStatus != llm.ErrInvalid:
	case strings.Contains(message, "token count") && strings.Contains(message, "exceeds"):
		return llm.ErrTooLong
	case strings.Contains(message, "api key"), strings.Contains(message, "billing"):
		return llm.ErrAuth
	case code == "INVALID_ARGUMENT" || code == "NOT_FOUND" || code == "FAILED_PRECONDITION":
		return llm.ErrInvalid
	}
	return byStatus
}
