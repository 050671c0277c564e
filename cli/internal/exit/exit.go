// Package exit holds the exit codes of commands, and errors that carry one. It
// imports the kernel's and the API's errors.
package exit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/safe"
)

// The exit codes, which scripts can rely on.
const (
	OK          = 0
	Failed      = 1   // the run failed, or something else went wrong
	BadUsage    = 2   // the command line is wrong
	NotFound    = 3   // there is no such thread, run, ask, …
	Waiting     = 4   // the run waits for a person or a signal
	Conflict    = 5   // somebody else was first, the thread is busy, or there is nothing to do
	Auth        = 6   // no valid token, or it does not allow this
	Unavailable = 7   // the server or the store cannot be reached
	Interrupted = 130 // by Ctrl-C
)

// ErrQuiet ends a command that has printed everything there is to say.
var ErrQuiet = errors.New("")

// Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
	Next string // what to do, in our own words
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usage marks an error of the caller.
func Usage(err error) error { return &Error{Code: BadUsage, Err: err} }

// Quiet ends a command with a code and no message.
func Quiet(code int) error { return &Error{Code: code, Err: ErrQuiet} }

// Code returns the exit code of an error; nil has [OK].
func Code(err error) int {
	var exit *Error
	var p *api.Problem
	var dial *net.OpError
	var garbled *safe.NotUTF8Error
	var request *url.Error
	var gateway interface{ Away() bool } // see client: one that does not reach the server
	switch {
	case err == nil:
		return OK
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &garbled):
		return BadUsage
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &p):
	case errors.As(err, &dial), errors.As(err, &request): // not net.Error: a full disk is one too
		return Unavailable
	case errors.As(err, &gateway) && gateway.Away():
		return Unavailable
	default:
		p = api.ProblemOf(err)
	}
	switch {
	case p.Kind() == "quota" && p.Retry == 0, p.Kind() == "unsealed", p.Kind() == "key": // it does not help to try again
		return Failed
	case p.Kind() == "no-flow":
		return NotFound
	case p.Kind() == "answer": // it does not fit the ask
		return BadUsage
	}
	switch p.Status {
	case http.StatusNotFound, http.StatusGone:
		return NotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return Conflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return Auth
	case http.StatusServiceUnavailable, http.StatusInsufficientStorage, http.StatusTooManyRequests:
		return Unavailable
	}
	if errors.Is(err, perdure.ErrInvalid) || p.Status == http.StatusBadRequest {
		return BadUsage
	}
	return Failed
}
