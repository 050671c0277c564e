package mcptool

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/llm"
)

// session is a connection that has been initialised.
type session struct {
	key   string
	cs    *mcp.ClientSession
	child *child // nil: HTTP
	token string

	ctx    context.Context // ends when the session is given up
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it is left

	hush  sync.Once
	quiet chan struct{} // closed when the session is given up and no call runs in it
	calls int           // that run; like used, guarded by the server's mu
	used  time.Time     // when the session was last taken
}

// lastGreeted is the newest version of the protocol that begins with a greeting.
const lastGreeted = "2025-11-25"

// maxSessions is how many users with tokens of their own stay connected.
const maxSessions = 32

// take returns a session for a call and holds it until give. Its errors are marked
// NotDone.
func (s *Server) take(ctx context.Context) (*session, error) {
	if err := s.check(); err != nil {
		return nil, perdure.NotDone(perdure.Permanent(err))
	}
	var token string
	if s.opts.Token != nil {
		var err error
		if token, err = s.opts.Token(ctx); err != nil {
			return nil, perdure.NotDone(fmt.Errorf("mcptool: the token for %s: %w", s.name, err))
		}
		scrub.From(ctx).Add(token)
	}
	sum := sha256.Sum256([]byte(token))
	key := string(sum[:])
	if c, err := s.have(key); c != nil || err != nil {
		return c, err
	}
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return nil, s.unreachable(ctx.Err(), nil, token)
	case <-s.life.Done():
	}
	if c, err := s.have(key); c != nil || err != nil {
		return c, err
	}
	if !sleep(ctx, s.pause()) {
		return nil, s.unreachable(fmt.Errorf("it fails again and again: %w", ctx.Err()), nil, token)
	}
	c, err := s.connect(ctx, token)
	if err != nil {
		return nil, err
	}
	c.key = key
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[key] = c
	s.evict(c)
	go s.watch(c)
	if s.closed {
		c.cancel()
		return nil, s.closedError()
	}
	c.calls, c.used = 1, time.Now()
	return c, nil
}

func (s *Server) closedError() error {
	return perdure.NotDone(perdure.Permanent(fmt.Errorf("%w: server %s", ErrClosed, s.name)))
}

// have takes the existing session of a token, if there is one.
func (s *Server) have(key string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.closedError()
	}
	c := s.sessions[key]
	if c == nil || c.ctx.Err() != nil {
		return nil, nil
	}
	c.calls++
	c.used = time.Now()
	return c, nil
}

// give returns a session. A broken one is not used again.
func (s *Server) give(c *session, broken bool) {
	s.mu.Lock()
	if c.calls--; c.calls == 0 && c.ctx.Err() != nil {
		c.hush.Do(func() { close(c.quiet) })
	}
	if !broken {
		s.fails = 0
	}
	s.mu.Unlock()
	if broken {
		s.fail(c)
		c.cancel()
	}
}

// evict ends the sessions that have been idle longest while there are too many.
// The caller holds mu.
func (s *Server) evict(but *session) {
	for range len(s.sessions) - maxSessions {
		var old *session
		for _, c := range s.sessions {
			if c != but && c.calls == 0 && (old == nil || c.used.Before(old.used)) {
				old = c
			}
		}
		if old == nil {
			return
		}
		delete(s.sessions, old.key)
		s.ending[old] = true
		old.cancel()
	}
}

// fail records that a session broke, once.
func (s *Server) fail(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ctx.Err() == nil {
		s.fails++
		s.failed = time.Now()
	}
}

// pause returns how long to wait before a program that failed is started again.
// After one failure there is no wait.
func (s *Server) pause() time.Duration {
	const first, longest = 100 * time.Millisecond, 10 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.url != "" || s.fails < 2 {
		return 0
	}
	d := min(first<<min(s.fails-2, 10), longest)
	return time.Until(s.failed.Add(d))
}

// connect starts or reaches the server. The caller holds the gate.
func (s *Server) connect(ctx context.Context, token string) (*session, error) {
	m := &mark{}
	c, err := s.greet(ctx, token, m, s.url != "")
	if s.url == "" && errors.As(err, new(*jsonrpc.Error)) && ctx.Err() == nil {
		c, err = s.greet(ctx, token, m, true)
	}
	if err == nil {
		return c, nil
	}
	s.mu.Lock()
	s.fails++
	s.failed = time.Now()
	s.mu.Unlock()
	if m.status.Load() == http.StatusUnauthorized || m.status.Load() == http.StatusForbidden {
		return nil, s.noLogin(m, err, token)
	}
	return nil, s.unreachable(err, c.child, token)
}

// greet starts or reaches the server and sends the greeting. With discover it first
// asks whether the server needs none. Programs are asked only if they refuse the
// greeting: many end, or never answer, if anything else comes first.
func (s *Server) greet(ctx context.Context, token string, m *mark, discover bool) (*session, error) {
	c := &session{token: token, done: make(chan struct{}), quiet: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(s.life)
	limit, stopLimit := context.WithTimeout(context.WithValue(c.ctx, markKey{}, m), s.opts.StartTimeout)
	defer stopLimit()
	defer context.AfterFunc(ctx, stopLimit)()

	var (
		t    mcp.Transport
		idle = func() {}
		err  error
	)
	if s.url != "" {
		t, idle = s.transport(token)
	} else {
		if c.child, err = startChild(s.opts, s.cmd, s.args); err == nil {
			t = &stdio{child: c.child, max: s.opts.MaxMessage, in: bufio.NewReaderSize(c.child.stdout, 64<<10), turn: make(chan struct{}, 1)}
			// The SDK would wait for the program when it gives up; this does not.
			defer context.AfterFunc(limit, c.child.kill)()
		}
	}
	if err == nil {
		opts := &mcp.ClientSessionOptions{}
		if !discover {
			opts.ProtocolVersion = lastGreeted
		}
		c.cs, err = s.client().Connect(limit, t, opts)
	}
	if err == nil {
		context.AfterFunc(c.ctx, func() {
			if c.child != nil {
				c.child.stop()
			}
			s.settle(c)
			c.cs.Close()
			idle()
		})
		return c, nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	} else if errors.Is(limit.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it did not greet in %v: %w", s.opts.StartTimeout, err)
	}
	c.cancel()
	idle()
	if c.child != nil {
		c.child.stop()
	}
	return c, err
}

// settle waits until the calls of an abandoned session have ended, so that the
// server learns of it before the session closes.
func (s *Server) settle(c *session) {
	s.mu.Lock()
	n := c.calls
	s.mu.Unlock()
	if n == 0 {
		return
	}
	select {
	case <-c.quiet:
	case <-time.After(2 * patience):
	}
}

// watch waits for the end of a session and cleans up.
func (s *Server) watch(c *session) {
	c.cs.Wait()
	s.fail(c)
	s.mu.Lock()
	if s.sessions[c.key] == c {
		delete(s.sessions, c.key)
	}
	s.ending[c] = true
	s.mu.Unlock()
	c.cancel()
	if c.child != nil {
		c.child.stop()
	}
	c.cs.Close()
	s.mu.Lock()
	delete(s.ending, c)
	s.mu.Unlock()
	close(c.done)
}

// client returns an MCP client that offers the server nothing: no sampling, no
// elicitation, no roots. It never repeats a call by itself.
func (s *Server) client() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "perdure", Version: "1"}, &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{},
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: s.onProgress,
	})
}

// unreachable returns the error of a call that was not sent.
func (s *Server) unreachable(err error, c *child, token string) error {
	return perdure.NotDone(fmt.Errorf("%w: server %s: %w", ErrUnreachable, s.name, s.told(err, c, token)))
}

// told returns an error with what the program said, and without secrets.
func (s *Server) told(err error, c *child, token string) error {
	text := err.Error()
	if c != nil {
		if words := c.words(); words != "" {
			text += "; " + words
		}
	}
	secrets := slices.AppendSeq([]string{token}, maps.Values(s.opts.Headers))
	secrets = slices.AppendSeq(secrets, maps.Values(s.opts.Env))
	told := errors.New(clip(llm.Scrub(text, secrets...), 8<<10))
	for _, kept := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, kept) {
			return &because{told, kept}
		}
	}
	return told
}

// because is an error with its own text that matches a sentinel.
type because struct{ told, kept error }

func (b *because) Error() string { return b.told.Error() }
func (b *because) Unwrap() error { return b.kept }
