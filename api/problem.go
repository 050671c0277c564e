package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// Problem is an error as the API reports it (RFC 9457). Type is stable across
// versions; Detail is for people.
type Problem struct {
	Type   string `json:"type" jsonschema:"the kind of problem: urn:perdure:problem:NAME"`
	Title  string `json:"title" jsonschema:"the kind in words"`
	Status int    `json:"status" jsonschema:"the HTTP status"`
	Detail string `json:"detail,omitempty" jsonschema:"what happened, and what to do about it"`

	Thread  string   `json:"thread,omitempty" jsonschema:"the thread that it is about"`
	Run     string   `json:"run,omitempty" jsonschema:"the run that it is about, such as the one that keeps a thread busy"`
	Seq     *uint64  `json:"seq,omitempty" jsonschema:"the thread's current sequence, where If-Match named another"`
	Version string   `json:"version,omitempty" jsonschema:"the current version of a value, where If-Match named another"`
	Pins    []string `json:"pins,omitempty" jsonschema:"threads that keep another from being erased or archived"`

	At    *time.Time `json:"at,omitempty" jsonschema:"when the thread was archived"`
	Quota string     `json:"quota,omitempty" jsonschema:"the quota that is used up: threads, bytes, runs, starts, streams, running bulk jobs or schedules"`
	Limit int64      `json:"limit,omitempty" jsonschema:"how many of these it may have"`
	Retry int64      `json:"retry,omitempty" jsonschema:"seconds after which there may be room again; absent if time does not help"`
}

// Error returns the detail, or the title without one.
func (p *Problem) Error() string { return cmp.Or(p.Detail, p.Title) }

// Unwrap returns the error of package perdure that the problem stands for, if
// there is one, so that errors.Is and errors.As find it.
func (p *Problem) Unwrap() error {
	switch p.Kind() {
	case "busy":
		return &perdure.BusyError{Thread: p.Thread, Run: p.Run}
	case "stale":
		e := &perdure.StaleError{Thread: p.Thread}
		if p.Seq != nil {
			e.Seq = *p.Seq
		}
		return e
	case "archived":
		e := &perdure.ArchivedError{Thread: p.Thread}
		if p.At != nil {
			e.At = *p.At
		}
		return e
	case "pinned":
		return &perdure.PinnedError{Thread: p.Thread, By: p.Pins}
	case "quota":
		_, help, _ := strings.Cut(p.Detail, "; ")
		return &perdure.QuotaError{Quota: p.Quota, Limit: p.Limit, Retry: time.Duration(p.Retry) * time.Second, Help: help}
	}
	for _, k := range kinds {
		if k.name == p.Kind() {
			return k.err
		}
	}
	return nil
}

const problemPrefix = "urn:perdure:problem:"

// Kind is the last part of the type: "busy".
func (p *Problem) Kind() string { return strings.TrimPrefix(p.Type, problemPrefix) }

// Errors that only the API has.
var (
	// ErrUnauthorized: the token is missing or invalid.
	ErrUnauthorized = errors.New("api: no valid token")
	// ErrScope: the token does not allow the operation.
	ErrScope = errors.New("api: the token does not allow this")
	// ErrNotFound: there is nothing at that address.
	ErrNotFound = errors.New("api: not found")
	// ErrBody: the request's body is malformed.
	ErrBody = errors.New("api: bad body")
	// ErrBodyTooLarge: the request's body is over the limit.
	ErrBodyTooLarge = errors.New("api: the body is too large")
	// ErrOrigin: the request comes from a web page that may not send it, or
	// names a host that this server is not.
	ErrOrigin = errors.New("api: the origin or host is not allowed")
	// ErrMedia: the body's media type is not accepted.
	ErrMedia = errors.New("api: unsupported media type")
	// ErrMethod: the address does not support the method.
	ErrMethod = errors.New("api: method not allowed")
	// ErrTooMany: too many requests are in progress.
	ErrTooMany = errors.New("api: too many requests")
	// ErrOverloaded: the server is handling as much as it can.
	ErrOverloaded = errors.New("api: the server is overloaded; try again")
	// ErrAmbiguous: the name has several matches; the error lists them.
	ErrAmbiguous = errors.New("api: the name is ambiguous")
	// ErrUnsupported: a compatible face cannot do what the request asks.
	ErrUnsupported = errors.New("api: not supported here")
	// ErrStopping: the server is about to stop.
	ErrStopping = errors.New("api: the server is stopping; try again")
)

// kind is a kind of problem, and the error that it stands for.
type kind struct {
	name   string
	status int
	err    error
}

// kinds lists the kinds in the order in which they are matched: more specific ones first.
var kinds = []kind{
	{"unauthorized", http.StatusUnauthorized, ErrUnauthorized},
	{"scope", http.StatusForbidden, ErrScope},
	{"origin", http.StatusForbidden, ErrOrigin},
	{"not-found", http.StatusNotFound, ErrNotFound},
	{"method", http.StatusMethodNotAllowed, ErrMethod},
	{"media-type", http.StatusUnsupportedMediaType, ErrMedia},
	{"body-too-large", http.StatusRequestEntityTooLarge, ErrBodyTooLarge},
	{"body", http.StatusBadRequest, ErrBody},
	{"too-many", http.StatusTooManyRequests, ErrTooMany},
	{"overloaded", http.StatusServiceUnavailable, ErrOverloaded},
	{"ambiguous", http.StatusConflict, ErrAmbiguous},
	{"unsupported", http.StatusUnprocessableEntity, ErrUnsupported},
	{"stopping", http.StatusServiceUnavailable, ErrStopping},

	{"quota", http.StatusTooManyRequests, perdure.ErrQuota},
	{"no-thread", http.StatusNotFound, perdure.ErrNoThread},
	{"no-run", http.StatusNotFound, perdure.ErrRunNotFound},
	{"no-ask", http.StatusNotFound, perdure.ErrNoAsk},
	{"no-bulk", http.StatusNotFound, perdure.ErrNoBulk},
	{"no-schedule", http.StatusNotFound, perdure.ErrNoSchedule},
	{"no-flow", http.StatusUnprocessableEntity, perdure.ErrNoFlow},
	{"no-memory", http.StatusNotFound, memory.ErrNotFound},
	{"no-rule", http.StatusNotFound, agent.ErrNoRule},
	{"no-upload", http.StatusNotFound, perdure.ErrNoUpload},
	{"archived", http.StatusGone, perdure.ErrArchived},
	{"thawing", http.StatusConflict, archive.ErrThawing},
	{"erased", http.StatusGone, perdure.ErrErased},
	{"restored", http.StatusGone, perdure.ErrRestored},
	{"ask-over", http.StatusGone, perdure.ErrAskOver},
	{"answered", http.StatusConflict, perdure.ErrAnswered},
	{"answer", http.StatusUnprocessableEntity, perdure.ErrAnswer},
	{"forbidden", http.StatusForbidden, perdure.ErrForbidden},
	{"busy", http.StatusConflict, perdure.ErrBusy},
	{"busy", http.StatusConflict, store.ErrBackup},
	{"queue-full", http.StatusTooManyRequests, perdure.ErrQueueFull},
	{"key-reused", http.StatusConflict, perdure.ErrKeyReused},
	{"nothing-to-do", http.StatusConflict, perdure.ErrNothingToDo},
	{"exists", http.StatusConflict, perdure.ErrExists},
	{"pinned", http.StatusConflict, perdure.ErrPinned},
	{"stale", http.StatusPreconditionFailed, perdure.ErrStale},
	{"version", http.StatusPreconditionFailed, memory.ErrConflict},
	{"name", http.StatusBadRequest, perdure.ErrName},
	{"namespace", http.StatusBadRequest, memory.ErrNamespace},
	{"credential", http.StatusUnprocessableEntity, credentials.ErrInvalid},
	{"unsealed", http.StatusConflict, credentials.ErrUnsealed},
	{"key", http.StatusConflict, store.ErrKey},
	{"ahead", http.StatusBadRequest, perdure.ErrAhead},
	{"moved", http.StatusConflict, perdure.ErrMoved},
	{"newer", http.StatusConflict, perdure.ErrNewer},
	{"corrupt", http.StatusUnprocessableEntity, perdure.ErrCorrupt},
	{"corrupt", http.StatusUnprocessableEntity, store.ErrCorrupt},
	{"too-large", http.StatusRequestEntityTooLarge, perdure.ErrTooLarge},
	{"not-json", http.StatusUnprocessableEntity, perdure.ErrNotJSON},
	{"invalid", http.StatusBadRequest, perdure.ErrInvalid},
	{"full", http.StatusInsufficientStorage, store.ErrFull},
	{"full", http.StatusInsufficientStorage, archive.ErrFull},
	{"archive", http.StatusServiceUnavailable, archive.ErrUnavailable},
	{"unavailable", http.StatusServiceUnavailable, store.ErrUnavailable},
	{"unavailable", http.StatusServiceUnavailable, store.ErrClosed},
	{"unavailable", http.StatusServiceUnavailable, store.ErrBusy},
}

// Kinds without an error of their own.
var (
	internal  = Problem{Type: problemPrefix + "internal", Status: http.StatusInternalServerError, Title: "internal error"}
	cancelled = Problem{Type: problemPrefix + "cancelled", Status: http.StatusServiceUnavailable, Title: "the request was cancelled"}
)

// later is the advice for a call that the store did not answer, and settle what to add
// if the call was to change something.
const (
	later  = "try again later"
	settle = ": a change may have happened, and repeating it with the same idempotency key is safe"
)

// ReadProblemOf is [ProblemOf] for the error of a call that changes nothing.
func ReadProblemOf(err error) *Problem {
	p := *ProblemOf(err)
	p.Detail = strings.TrimSuffix(p.Detail, settle)
	return &p
}

// ProblemOf returns an error as a problem. An unknown error becomes an internal
// one without details.
func ProblemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	p := new(internal)
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			_, title, _ := strings.Cut(k.err.Error(), ": ")
			p = &Problem{Type: problemPrefix + k.name, Status: k.status, Title: title, Detail: plainly(err)}
			switch k.name { // what the store says, such as its address, is for the log
			case "unavailable":
				p.Detail = "the store does not answer; " + later + settle
				if moving, ok := errors.AsType[*fault.MovingError](err); ok {
					p.Detail = plainly(moving)
				} else if errors.Is(err, store.ErrBusy) {
					p.Detail = "another program locks the store, or keeps a transaction open on it; end that, and " + later + settle
				}
			case "full":
				p.Detail = "the store has no space left: its disk, its memory or a limit of its account is full; make room or raise the limit, and " + later + settle
				if k.err == archive.ErrFull {
					p.Detail = plainly(err) + "; free some space there, and repeat it"
				}
			}
			break
		}
	}
	if p.Status == http.StatusInternalServerError && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		p = new(cancelled)
	}
	if busy, ok := errors.AsType[*perdure.BusyError](err); ok {
		p.Thread, p.Run = busy.Thread, busy.Run
	} else if stale, ok := errors.AsType[*perdure.StaleError](err); ok {
		p.Thread, p.Seq = stale.Thread, &stale.Seq
	} else if pinned, ok := errors.AsType[*perdure.PinnedError](err); ok {
		p.Thread, p.Pins = pinned.Thread, pinned.By
	} else if away, ok := errors.AsType[*perdure.ArchivedError](err); ok {
		p.Thread, p.At = away.Thread, &away.At
	} else if over, ok := errors.AsType[*perdure.QuotaError](err); ok {
		p.Quota, p.Limit, p.Retry = over.Quota, over.Limit, int64((over.Retry+time.Second-1)/time.Second)
	} else if conflict, ok := errors.AsType[*memory.ConflictError](err); ok {
		p.Version = conflict.Version
	}
	return p
}

// Limits of a problem's detail. Text that it repeats from the request is quoted.
const (
	maxQuoted = 100
	maxDetail = 4000
)

// plainly returns the message of an error without the package name in front,
// and with long texts truncated.
func plainly(err error) string {
	text := err.Error()
	for _, name := range []string{"backup: ", "perdure: ", "api: ", "agent: ", "server: ", "store: ", "archive: "} {
		text = strings.TrimPrefix(text, name)
	}
	text = quoted.ReplaceAllStringFunc(text, func(q string) string {
		if len(q) <= maxQuoted+2 {
			return q
		}
		return strings.TrimRight(strings.ToValidUTF8(q[:maxQuoted], ""), `\`) + `…"`
	})
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "…"
	}
	return text
}

// quoted is a text as %q writes it.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Problems returns the kinds of problems with their statuses, in order.
func Problems() []Problem {
	var all []Problem
	for i, k := range kinds {
		if i > 0 && kinds[i-1].name == k.name {
			continue
		}
		_, title, _ := strings.Cut(k.err.Error(), ": ")
		all = append(all, Problem{Type: problemPrefix + k.name, Status: k.status, Title: title})
	}
	return append(all, internal, cancelled)
}

// Invalid returns an ErrInvalid that says what is wrong with a request.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", perdure.ErrInvalid, fmt.Sprintf(format, args...))
}
