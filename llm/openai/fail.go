package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
)

const (
	maxMessage = 1000    // bytes of an error's message that are kept
	maxBody    = 1 << 20 // bytes of an error's body that are read
)

func invalid(format string, args ...any) *llm.Error {
	return &llm.Error{Kind: llm.ErrInvalid, Provider: provider, Message: fmt.Sprintf(format, args...)}
}

// interrupted is the error of a connection that failed.
func (s *server) interrupted(err error) *llm.Error {
	kind := llm.ErrInterrupted
	if answers.WrongURL(err) {
		kind = llm.ErrInvalid
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL, which may hold a password
	}
	return &llm.Error{Kind: kind, Provider: provider, Message: s.clean(err.Error())}
}

// clean returns a text that an error can quote.
func (s *server) clean(text string) string {
	text = strings.TrimSpace(llm.Scrub(text, s.secrets...))
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// problem is an error as servers write it. OpenAI's code is a text,
// OpenRouter's a number.
type problem struct {
	Message  string          `json:"message"`
	Type     string          `json:"type"`
	Code     json.RawMessage `json:"code"`
	Metadata struct {
		FlaggedInput json.RawMessage `json:"flagged_input"`
	} `json:"metadata"`
}

// code returns the name of the error, and its status if the name is one.
func (p *problem) code() (string, int) {
	var text string
	if json.Unmarshal(p.Code, &text) != nil {
		text = strings.TrimPrefix(string(p.Code), "null")
	}
	status, err := strconv.Atoi(text)
	if err != nil || status < 400 || status > 599 {
		status = 0
	}
	if text == "" || status != 0 && p.Type != "" {
		text = p.Type
	}
	return text, status
}

// parseProblem reads an error, in any of the forms that servers use.
func parseProblem(body []byte) problem {
	var p problem
	var outer struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	if json.Unmarshal(body, &outer) != nil {
		p.Message = string(body)
		return p
	}
	switch {
	case json.Unmarshal(outer.Error, &p) == nil && (p.Message != "" || len(p.Code) > 0):
	case json.Unmarshal(outer.Error, &p.Message) == nil && p.Message != "":
	case outer.Message != "":
		_ = json.Unmarshal(body, &p)
	case len(outer.Detail) > 0:
		p.Message = string(outer.Detail)
	default:
		p.Message = string(body)
	}
	return p
}

// refusal returns the error for a response other than 200.
func (s *server) refusal(res *http.Response) *llm.Error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxBody))
	e := s.failure(parseProblem(body), res.StatusCode)
	e.Message = cmp.Or(e.Message, strings.ToLower(http.StatusText(res.StatusCode)))
	e.RetryAfter = answers.RetryAfter(res.Header)
	return e
}

// failure returns the error that a server reports, with a status or in a stream.
func (s *server) failure(p problem, status int) *llm.Error {
	code, named := p.code()
	status = cmp.Or(status, named)
	return &llm.Error{Kind: kind(status, code, p), Provider: provider, Status: status, Code: s.clean(code), Message: s.clean(p.Message)}
}

// codes are the errors whose name says more than their status.
var codes = map[string]error{
	"context_length_exceeded":         llm.ErrTooLong,
	"exceed_context_size_error":       llm.ErrTooLong, // llama.cpp
	"string_above_max_length":         llm.ErrTooLong,
	"insufficient_quota":              llm.ErrAuth,
	"billing_hard_limit_reached":      llm.ErrAuth,
	"billing_not_active":              llm.ErrAuth,
	"account_deactivated":             llm.ErrAuth,
	"invalid_api_key":                 llm.ErrAuth,
	"authentication_error":            llm.ErrAuth,
	"content_policy_violation":        llm.ErrRefused,
	"content_filter":                  llm.ErrRefused,
	"moderation_blocked":              llm.ErrRefused,
	"invalid_prompt":                  llm.ErrRefused,
	"ResponsibleAIPolicyViolation":    llm.ErrRefused, // Azure
	"rate_limit_exceeded":             llm.ErrRateLimited,
	"rate_limit_error":                llm.ErrRateLimited,
	"server_error":                    llm.ErrOverloaded,
	"internal_error":                  llm.ErrOverloaded,
	"overloaded_error":                llm.ErrOverloaded,
	"service_unavailable":             llm.ErrOverloaded,
	"invalid_request_error":           nil, // says no more than the status
	"invalid_image_url":               llm.ErrInvalid,
	"unsupported_parameter":           llm.ErrInvalid,
	"model_not_found":                 llm.ErrInvalid,
	"unsupported_country_region_code": llm.ErrAuth,
}

// kind returns the sentinel for an error.
func kind(status int, code string, p problem) error {
	if k := cmp.Or(codes[code], codes[p.Type]); k != nil {
		return k
	}
	message := strings.ToLower(p.Message)
	long := slices.ContainsFunc([]string{"maximum context length", "context length exceeded", "exceeds the context", "context window", "context size", "prompt is too long"},
		func(words string) bool { return strings.Contains(message, words) })
	switch {
	case long && (status == 0 || status == http.StatusBadRequest || status == http.StatusUnprocessableEntity || status >= 500):
		return llm.ErrTooLong
	case status == http.StatusRequestEntityTooLarge:
		return llm.ErrTooLong
	case status == http.StatusTooManyRequests:
		return llm.ErrRateLimited
	case status == http.StatusForbidden && len(p.Metadata.FlaggedInput) > 0:
		return llm.ErrRefused // OpenRouter
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusPaymentRequired:
		return llm.ErrAuth
	case status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooEarly || status >= 500:
		return llm.ErrOverloaded
	case status == 0 && p.Type != "invalid_request_error":
		return llm.ErrInterrupted
	}
	return llm.ErrInvalid
}
