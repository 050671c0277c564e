package llm

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/scrub"
)

// What can go wrong with a request. An [*Error] matches one of them.
var (
	// ErrRateLimited: too many requests or tokens. Try again after RetryAfter.
	ErrRateLimited = errors.New("llm: rate limited")
	// ErrOverloaded: the provider cannot answer now. Try again.
	ErrOverloaded = errors.New("llm: overloaded")
	// ErrInterrupted: the connection failed, or the reply was cut off or made no
	// sense. Try again.
	ErrInterrupted = errors.New("llm: interrupted")
	// ErrTooLong: the conversation exceeds the model's context.
	ErrTooLong = errors.New("llm: context too long")
	// ErrTooLarge: the reply exceeds [MaxReply].
	ErrTooLarge = errors.New("llm: reply too large")
	// ErrRefused: the provider refuses the request because of its content.
	ErrRefused = errors.New("llm: refused")
	// ErrAuth: the key is missing, wrong or does not permit this, or the account
	// has no credit left.
	ErrAuth = errors.New("llm: not authorised")
	// ErrInvalid: the provider does not accept the request. The same request
	// fails again.
	ErrInvalid = errors.New("llm: invalid request")
)

// Error is a failure of a provider. It never contains a key.
type Error struct {
	Kind       error         // one of the sentinels
	Provider   string        // "openai", …
	Status     int           // of HTTP, 0 if there was no answer
	Code       string        // the provider's own
	Message    string        // the provider's own, or of the network
	RetryAfter time.Duration // 0 if unknown
}

// Error says what failed and what the provider said about it.
func (e *Error) Error() string {
	texts := []string{e.Kind.Error(), e.Provider, e.Code, e.Message}
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), ": ")
}

// Unwrap makes errors.Is match the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// Temporary reports whether the same request might succeed later.
func Temporary(err error) bool {
	return errors.Is(err, ErrRateLimited) || errors.Is(err, ErrOverloaded) || errors.Is(err, ErrInterrupted)
}

// RetryAfter returns how long the provider asks to wait, 0 if it does not say.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// Scrub removes secrets from a text, for errors that quote a request, whether they
// appear plain, in another case, escaped, in hex or in base64. It ignores secrets of
// less than 8 bytes, since they would be found everywhere.
func Scrub(text string, secrets ...string) string {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < 8 })
	return scrub.Replace(text, "[secret]", secrets...)
}
