package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/internal/strict"
)

// MetaKey is the key in a call's _meta that holds its idempotency key, see
// [perdure.Key]. Servers that read it can tell a repeated call from a new one.
const MetaKey = "perdure.dev/idempotency-key"

// Call calls a tool by its name on the server, as the tools of [Server.Tools] and
// [Server.Declare] do. It belongs in a step. A failure that the tool itself
// reports is not an error but an output with Error set.
//
// An error is marked [perdure.NotDone] if the call certainly did not run. A call
// whose result is lost after it was sent is [ErrLost] and is not sent again.
func (s *Server) Call(ctx context.Context, tool string, args json.RawMessage) (agent.Output, error) {
	if args = bytes.TrimSpace(args); len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if args[0] != '{' || !json.Valid(args) || strict.Text(args) != nil {
		return agent.Output{}, perdure.NotDone(perdure.Permanent(fmt.Errorf("mcptool: the arguments of %s are not a JSON object in valid Unicode", tool)))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.Timeout)
		defer cancel()
	}
	// A session that proves dead before the call is sent is replaced, once: that
	// is safe, and usual after a restart of the server.
	for last := false; ; last = true {
		c, err := s.take(ctx)
		if err != nil {
			return agent.Output{}, err
		}
		out, again, err := s.callOn(ctx, c, tool, args)
		if !again || last {
			return out, err
		}
	}
}

// callOn calls a tool in a session. It reports whether the call may be sent again
// because the session was already dead.
func (s *Server) callOn(ctx context.Context, c *session, tool string, args json.RawMessage) (out agent.Output, again bool, err error) {
	broken, untold := false, (*mark)(nil)
	defer func() {
		if untold == nil {
			s.give(c, broken)
			return
		}
		// The session stays until the server knows that the call was cancelled.
		go func() {
			select {
			case <-untold.told:
			case <-time.After(patience):
			}
			s.give(c, broken)
		}()
	}()
	token, unfollow := s.follow(ctx, tool)
	defer unfollow()
	m := &mark{told: make(chan struct{})}
	sending, cancel := context.WithCancel(context.WithValue(ctx, markKey{}, m))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	m.cancel = cancel

	params := &mcp.CallToolParams{Name: tool, Arguments: args, Meta: mcp.Meta{}}
	if key := perdure.Key(ctx); key != "" {
		params.Meta[MetaKey] = key
	}
	params.SetProgressToken(token)
	res, err := c.cs.CallTool(sending, params)
	if err == nil {
		return outputOf(res, c.token), false, nil
	}

	if sending.Err() != nil && m.web.Load() && m.sent.Load() {
		untold = m
	}
	about := func(kind error) error {
		return fmt.Errorf("%w: %s of server %s: %w", kind, tool, s.name, s.told(err, c.child, c.token))
	}
	status := int(m.status.Load())
	wire, answered := errors.AsType[*jsonrpc.Error](err)
	answered = answered && (!m.web.Load() || status != 0)
	switch {
	case m.tooLarge.Load() || answered && wire.Code == codeTooLarge:
		text := fmt.Sprintf("The tool has run, but its result is larger than %d bytes and was left out. Ask for less.", s.opts.MaxMessage)
		return agent.Output{Text: text, Error: true}, false, nil
	case ctx.Err() != nil:
		err = ctx.Err()
		if !m.sent.Load() {
			return out, false, perdure.NotDone(about(ErrUnreachable))
		}
		return out, false, about(ErrLost)
	case m.gone.Load() || !m.sent.Load():
		broken = true
		return out, true, perdure.NotDone(about(ErrUnreachable))
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return out, false, s.noLogin(m, err, c.token)
	case status == http.StatusTooManyRequests:
		return out, false, perdure.NotDone(perdure.After(time.Duration(m.after.Load()), about(ErrRefused)))
	case status >= 300 && status < 500 && status != http.StatusRequestTimeout:
		return out, false, perdure.NotDone(perdure.Permanent(about(ErrRefused)))
	case status >= 500:
		return out, false, about(ErrLost)
	case answered:
		switch wire.Code {
		case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams:
			return out, false, perdure.NotDone(perdure.Permanent(about(ErrRefused)))
		}
		return out, false, about(ErrFailed)
	}
	broken = true
	if c.child != nil {
		c.child.gone(patience) // so that the error can tell how it ended
	}
	return out, false, about(ErrLost)
}

// noLogin returns the error of a server that wants another token.
func (s *Server) noLogin(m *mark, err error, token string) error {
	err = fmt.Errorf("it wants another login (HTTP %d): %w", m.status.Load(), err)
	return perdure.NotDone(perdure.Permanent(fmt.Errorf("%w: server %s: %w", ErrRefused, s.name, s.told(err, nil, token))))
}

// Progress is the progress of a call, as its server reports it. Those who watch
// the thread receive it as a delta, see [perdure.Delta].
type Progress struct {
	Server  string  `json:"server"`
	Tool    string  `json:"tool"`
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // 0: not known
	Message string  `json:"message,omitempty"`
}

// maxProgress is the longest message of a progress, in bytes.
const maxProgress = 1 << 10

// follow turns the progress of a call into deltas of its context until stop is
// called. The token names the call to the server.
func (s *Server) follow(ctx context.Context, tool string) (token string, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	token = "perdure-" + strconv.FormatUint(s.calls, 10)
	s.progress[token] = func(p Progress) {
		p.Server, p.Tool = s.name, tool
		p.Message = clip(scrub.From(ctx).Text(p.Message), maxProgress) // before it is cut, or half of a secret would stay
		perdure.Delta(ctx, p)
	}
	return token, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.progress, token)
	}
}

func (s *Server) onProgress(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	token, ok := r.Params.ProgressToken.(string)
	if !ok {
		return
	}
	s.mu.Lock()
	report := s.progress[token]
	s.mu.Unlock()
	if report != nil {
		report(Progress{Done: r.Params.Progress, Total: r.Params.Total, Message: r.Params.Message})
	}
}
