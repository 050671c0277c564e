package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/credentials"
)

// Server is an MCP server whose tools agents can use. Make one with [Command]
// or [HTTP]; nothing is started or connected before its first use. It is safe
// for concurrent use after it is set up with Set and With.
type Server struct {
	name  string
	cmd   string
	args  []string
	url   string
	opts  Options
	rules []rule

	life context.Context // ends with Close
	end  context.CancelFunc
	gate chan struct{} // held while connecting

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session // by the hash of their token
	ending   map[*session]bool   // still cleaning up
	fails    int                 // in a row, of a command
	failed   time.Time
	progress map[string]func(Progress) // of the calls that run, by their token
	calls    uint64
}

// rule gives options to the tools whose names match.
type rule struct {
	pattern string
	opts    []agent.ToolOption
}

// Options of a server. All may be left out.
type Options struct {
	// Prefix is put before the names of tools, followed by a _. The default is
	// the server's name.
	Prefix string
	// NoPrefix leaves the names of tools as they are.
	NoPrefix bool
	// Only and Except select tools by their names at the server; * matches any
	// text. Without Only all are selected.
	Only, Except []string
	// Ask says which tools need approval unless With says otherwise.
	Ask Ask
	// Timeout limits a call; 0 means one minute. [agent.Timeout] and
	// [agent.AtMostOnce] in With give a tool another limit.
	Timeout time.Duration
	// StartTimeout is the time in which the server has to start and respond; 0
	// means 30 seconds.
	StartTimeout time.Duration
	// MaxMessage is the size in bytes of the largest message accepted from the
	// server; 0 means 16 MiB. If the result of a call is larger, the model gets
	// an error.
	MaxMessage int

	// Env is the environment of a command besides PATH, HOME, LANG, TMPDIR and the
	// like: nothing else is inherited.
	Env map[string]string
	// Dir is the working directory of a command.
	Dir string

	// Headers are sent with every HTTP request.
	Headers map[string]string
	// Login is the credential whose secret is sent as a bearer token with every
	// HTTP request. All tools of the server need it.
	Login agent.Credential
	// Token returns the bearer token to use for a context; nil means the secret of
	// Login, if there is one. It is for tokens that come from elsewhere, such as the
	// environment. Users with different tokens never share a session.
	Token func(ctx context.Context) (string, error)
	// Client sends HTTP requests; nil means a client of the server's own. Its Jar
	// and CheckRedirect are not used.
	Client *http.Client
}

// Ask says which tools need approval.
type Ask string

// The choices. They rely on what a server says about its tools, which may not be true:
// use servers whose authors you trust.
const (
	AskUnlessReadOnly Ask = ""            // all tools, except those said to change nothing
	AskDestructive    Ask = "destructive" // all tools, except those said to change nothing or only to add
	AskAlways         Ask = "always"
	AskNever          Ask = "never"
)

// Command returns a server that is a program and speaks over its standard input and
// output. It is started on first use and, if it has ended, again on the next use.
func Command(name, cmd string, args ...string) *Server {
	s := newServer(name)
	s.cmd, s.args = cmd, slices.Clone(args)
	return s
}

// HTTP returns a server at a URL that speaks streamable HTTP.
func HTTP(name, url string) *Server {
	s := newServer(name)
	s.url = url
	return s
}

func newServer(name string) *Server {
	s := &Server{
		name:     name,
		gate:     make(chan struct{}, 1),
		sessions: map[string]*session{},
		ending:   map[*session]bool{},
		progress: map[string]func(Progress){},
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s.Set(Options{})
}

// Name returns the server's name.
func (s *Server) Name() string { return s.name }

// Set sets the options, before the first use, and returns the server.
func (s *Server) Set(o Options) *Server {
	o.Env, o.Headers = maps.Clone(o.Env), maps.Clone(o.Headers)
	o.Only, o.Except = slices.Clone(o.Only), slices.Clone(o.Except)
	o.Timeout, o.StartTimeout = cmp.Or(o.Timeout, time.Minute), cmp.Or(o.StartTimeout, 30*time.Second)
	o.MaxMessage = cmp.Or(o.MaxMessage, 16<<20)
	if o.Token == nil && o.Login.Name != "" {
		o.Token = func(ctx context.Context) (string, error) { return credentials.Secret(ctx, o.Login.Name) }
	}
	s.opts = o
	return s
}

// With gives options to the tools whose names on the server match the pattern, in
// which * stands for any text, and returns the server. Later options win.
//
//	s.With("delete_*", agent.NeedsApproval(), agent.AtMostOnce(time.Minute))
func (s *Server) With(pattern string, opts ...agent.ToolOption) *Server {
	s.rules = append(s.rules, rule{pattern, opts})
	return s
}

// NoApproval lets the calls of a tool run without a person's decision, for
// tools that would need one otherwise.
func NoApproval() agent.ToolOption {
	return agent.WithApproval(agent.Approval{If: func(json.RawMessage) bool { return false }})
}

// check returns all mistakes in the server's setup.
func (s *Server) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: server %q: %s", ErrOption, s.name, fmt.Sprintf(format, args...)))
	}
	o := s.opts
	if !plainName.MatchString(s.name) {
		wrong("its name is not 1 to 64 letters, digits, - and _")
	}
	if o.Prefix != "" && !plainName.MatchString(o.Prefix) {
		wrong("its prefix is not 1 to 64 letters, digits, - and _")
	}
	if o.Prefix != "" && o.NoPrefix {
		wrong("it has a Prefix and NoPrefix")
	}
	if !slices.Contains([]Ask{AskUnlessReadOnly, AskDestructive, AskAlways, AskNever}, o.Ask) {
		wrong("there is no Ask %q", o.Ask)
	}
	if o.Timeout < 0 || o.StartTimeout < 0 || o.MaxMessage < 0 {
		wrong("a limit is negative")
	}
	if s.url == "" {
		if s.cmd == "" {
			wrong("it has no command")
		}
		if len(o.Headers) > 0 || o.Token != nil || o.Login.Name != "" || o.Client != nil {
			wrong("Headers, Login, Token and Client are for HTTP; a command gets its secrets by Env")
		}
		for k, v := range o.Env {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
				wrong("%q is not a name and value for its environment", k)
			}
		}
		return errors.Join(errs...)
	}
	u, err := url.Parse(s.url)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		wrong("its URL is not http://… or https://…")
	case u.User != nil:
		wrong("its URL holds a secret; give it by Headers, Login or Token")
	}
	if len(o.Env) > 0 || o.Dir != "" {
		wrong("Env and Dir are for commands")
	}
	return errors.Join(errs...)
}

// Close ends the connections and, if it is running, the program with everything that it
// started in its process group. Calls in progress fail; later ones fail with
// [ErrClosed].
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	all := slices.AppendSeq(slices.Collect(maps.Keys(s.ending)), maps.Values(s.sessions))
	s.mu.Unlock()
	s.end()
	for _, c := range all {
		<-c.done
	}
	// Whoever is connecting sees that the server is closed, and cleans up.
	s.gate <- struct{}{}
	<-s.gate
	return nil
}
