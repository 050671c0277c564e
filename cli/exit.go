package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	neturl "net/url"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/safe"
)

// The exit codes, which scripts can rely on.
const (
	exitOK          = 0
	exitFailed      = 1   // the run failed, or something else went wrong
	exitUsage       = 2   // the command was called in a wrong way
	exitNotFound    = 3   // there is no such thread, run, ask, …
	exitWaiting     = 4   // the run waits for a person or a signal
	exitConflict    = 5   // somebody else was faster, or the thread is busy
	exitAuth        = 6   // no valid token, or it does not allow this
	exitUnavailable = 7   // the server or the store cannot be reached
	exitInterrupted = 130 // by Ctrl-C
)

// errQuiet ends a command with a code, without a message: it has said all.
var errQuiet = errors.New("")

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error
	next string // what to do, in our words
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage marks an error of the one who calls.
func usage(err error) error { return &exitError{code: exitUsage, err: err} }

// quiet ends a command with a code.
func quiet(code int) error { return &exitError{code: code, err: errQuiet} }

// message is what a person reads of an error: what happened, and what to do.
func (a *app) message(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	text := strings.TrimSpace(err.Error())
	for _, part := range []string{"perdure: ", "api: ", "client: ", "agent: "} {
		text = strings.ReplaceAll(strings.TrimPrefix(text, part), ": "+part, ": ")
	}
	next := ""
	for _, h := range advice {
		switch {
		case !errors.Is(err, h.err):
			continue
		case h.verb == "":
			next = h.do
		default:
			next = fmt.Sprintf(h.do, a.command(h.verb, "", h.args...))
		}
		break
	}
	var exit *exitError
	if errors.As(err, &exit) && exit.next != "" {
		next = exit.next
	}
	return a.term.Paragraph(a.shellName()+": ", a.named(text), a.named(next))
}

// advice is what helps against errors, where they do not say it themselves.
var advice = []struct {
	err  error
	do   string
	verb string
	args []string
}{
	{api.ErrUnauthorized, "give one with --token or $PERDURE_TOKEN (perdure token create makes them), together with --server or $PERDURE_SERVER", "", nil},
	{perdure.ErrPinned, "they are erased with it if you say --dependents", "", nil},
	{perdure.ErrNoThread, "%s lists those that there are", "threads", nil},
	{perdure.ErrNoAsk, "%s lists the open ones; one that is over is only found by its whole id", "asks", nil},
	{perdure.ErrRunNotFound, "%s lists those that there are", "show", []string{"THREAD"}},
}

// code returns the exit code of an error.
func code(err error) int {
	var exit *exitError
	var p *api.Problem
	var dial *net.OpError
	var garbled *safe.NotUTF8Error
	var request *neturl.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &garbled):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &p):
	case errors.As(err, &dial), errors.As(err, &request): // not net.Error, which a full disk is too
		return exitUnavailable
	default:
		p = api.ProblemOf(err)
	}
	switch p.Status {
	case http.StatusNotFound, http.StatusGone:
		return exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return exitConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitAuth
	case http.StatusServiceUnavailable, http.StatusInsufficientStorage, http.StatusTooManyRequests:
		return exitUnavailable
	}
	if errors.Is(err, perdure.ErrInvalid) || p.Status == http.StatusBadRequest {
		return exitUsage
	}
	return exitFailed
}
