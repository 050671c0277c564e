package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
)

// problem turns an error of the SDK into one of package llm, without the key.
func problem(err error, key string) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		e = &llm.Error{Kind: llm.ErrInterrupted, Provider: provider, Message: err.Error()}
		if api, ok := errors.AsType[*sdk.Error](err); ok {
			e = answered(api)
		} else if answers.WrongURL(err) {
			e.Kind = llm.ErrInvalid
		}
	}
	e.Message = answers.Short(llm.Scrub(e.Message, key))
	e.Code = llm.Scrub(e.Code, key)
	return e
}

// answered returns the error for one that the API sent, as an answer or in its
// stream.
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
	e.Message = cmp.Or(e.Message, answers.Short(api.RawJSON()))
	e.Kind = kind(e.Status, e.Code, strings.ToLower(e.Message))
	if api.Response != nil {
		e.RetryAfter = answers.RetryAfter(api.Response.Header)
	}
	return e
}

// kind returns the sentinel for an error: by what the API says about it, else by
// its status, which is 200 for an error in a stream.
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
	return answers.StatusKind(status)
}

// says reports whether a message contains one of the texts.
func says(message string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(message, text) })
}
