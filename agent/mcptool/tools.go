package mcptool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/schema"
)

// Info is what a server says about a tool. Its JSON can be kept in a file, so that an
// agent's tools stay as they were when someone reviewed them; see [Server.Declare].
type Info struct {
	Name        string          `json:"name"` // on the server
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`             // of its arguments; an object
	ReadOnly    bool            `json:"readOnly,omitempty"` // the server says that the tool changes nothing
	Additive    bool            `json:"additive,omitempty"` // the server says that the tool destroys nothing
}

// Limits of a list of tools.
const (
	maxPages       = 100
	maxTools       = 1000
	maxDescription = 16 << 10
	maxSchema      = 256 << 10
)

// List asks the server for its tools and returns those that the options select, sorted
// by name.
func (s *Server) List(ctx context.Context) ([]Info, error) {
	tools, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	var infos []Info
	var errs []error
	for _, t := range tools {
		if len(s.opts.Only) > 0 && !matchesAny(s.opts.Only, t.Name) || matchesAny(s.opts.Except, t.Name) {
			continue
		}
		info, err := infoOf(t)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: tool %q of server %s: %w; Except leaves it out", ErrList, clip(t.Name, 100), s.name, err))
			continue
		}
		infos = append(infos, info)
	}
	some := func(pattern string) bool {
		return slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return matches(pattern, t.Name) })
	}
	for _, p := range s.opts.Only {
		if !some(p) {
			errs = append(errs, fmt.Errorf("%w: server %s has no tool %q, which Only names", ErrOption, s.name, p))
		}
	}
	for _, r := range s.rules {
		if !some(r.pattern) {
			errs = append(errs, fmt.Errorf("%w: server %s has no tool %q, which With names", ErrOption, s.name, r.pattern))
		}
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	for i := range infos[:max(0, len(infos)-1)] {
		if infos[i].Name == infos[i+1].Name {
			errs = append(errs, fmt.Errorf("%w: server %s lists tool %q twice", ErrList, s.name, infos[i].Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return infos, nil
}

// Tools asks the server for its tools and returns them as tools of an agent. Call
// it when the program starts; see the package documentation about resuming.
func (s *Server) Tools(ctx context.Context) ([]agent.Tool, error) {
	infos, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	var tools []agent.Tool
	var errs []error
	from := map[string]string{}
	for _, info := range infos {
		t := s.Declare(info)
		if other, ok := from[t.Name()]; ok {
			errs = append(errs, fmt.Errorf("%w: tools %q and %q of server %s would both be called %s", ErrList, other, info.Name, s.name, t.Name()))
		}
		from[t.Name()] = info.Name
		tools = append(tools, t)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return tools, nil
}

// Declare returns a tool of the server without asking it, so that the agent has
// the same tools wherever and whenever it runs. The options come after those of
// With. Mistakes in info are reported when an agent with the tool runs.
func (s *Server) Declare(info Info, opts ...agent.ToolOption) agent.Tool {
	all := []agent.ToolOption{agent.Timeout(s.opts.Timeout)}
	if s.asks(info) {
		all = append(all, agent.NeedsApproval())
	}
	if s.opts.Login.Name != "" {
		all = append(all, agent.Needs(s.opts.Login))
	}
	for _, r := range s.rules {
		if matches(r.pattern, info.Name) {
			all = append(all, r.opts...)
		}
	}
	call := func(ctx context.Context, args json.RawMessage) (agent.Output, error) {
		return s.Call(ctx, info.Name, args)
	}
	return agent.RawTool(s.toolName(info.Name), info.Description, info.Schema, call, append(all, opts...)...)
}

// asks reports whether a tool needs approval by default.
func (s *Server) asks(info Info) bool {
	switch s.opts.Ask {
	case AskNever:
		return false
	case AskDestructive:
		return !info.ReadOnly && !info.Additive
	case AskUnlessReadOnly:
		return !info.ReadOnly
	}
	return true
}

// list returns all tools of the server.
func (s *Server) list(ctx context.Context) ([]*mcp.Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout+s.opts.Timeout)
	defer cancel()
	for last := false; ; last = true {
		c, err := s.take(ctx)
		if err != nil {
			return nil, err
		}
		tools, again, err := s.listOn(ctx, c)
		if !again || last {
			return tools, err
		}
	}
}

// listOn reads all tools of the server, page by page. It reports whether to ask
// again because the server no longer knew the session.
func (s *Server) listOn(ctx context.Context, c *session) (_ []*mcp.Tool, again bool, _ error) {
	broken := false
	defer func() { s.give(c, broken) }()
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: server %s: %w", ErrList, s.name, fmt.Errorf(format, args...))
	}
	var tools []*mcp.Tool
	seen := map[string]bool{"": true}
	params := &mcp.ListToolsParams{}
	m := &mark{}
	for range maxPages {
		sub, stop := context.WithCancel(context.WithValue(ctx, markKey{}, m))
		unlink := context.AfterFunc(c.ctx, stop)
		res, err := c.cs.ListTools(sub, params)
		unlink()
		stop()
		if err != nil {
			broken = ctx.Err() == nil
			return nil, broken && m.gone.Load(), perdure.NotDone(bad("%w", s.told(err, c.child, c.token)))
		}
		if tools = append(tools, res.Tools...); len(tools) > maxTools {
			return nil, false, bad("it lists more than %d tools", maxTools)
		}
		if res.NextCursor == "" {
			return tools, false, nil
		}
		if seen[res.NextCursor] {
			return nil, false, bad("its list turns in a circle")
		}
		seen[res.NextCursor] = true
		params = &mcp.ListToolsParams{Cursor: res.NextCursor}
	}
	return nil, false, bad("its list has more than %d pages", maxPages)
}

// infoOf checks what a server says about a tool.
func infoOf(t *mcp.Tool) (Info, error) {
	info := Info{Name: t.Name, Description: t.Description}
	if t.Name == "" || len(t.Name) > 1000 || !utf8.ValidString(t.Name) {
		return info, errors.New("its name is empty, too long or no UTF-8")
	}
	if len(t.Description) > maxDescription {
		return info, fmt.Errorf("its description has more than %d bytes", maxDescription)
	}
	info.Description = strings.ToValidUTF8(cmp.Or(t.Description, t.Title), "\uFFFD")
	m, ok := t.InputSchema.(map[string]any)
	if !ok {
		return info, errors.New("the schema of its arguments is not a JSON object")
	}
	switch m["type"] {
	case "object":
	case nil:
		m["type"] = "object"
	default:
		return info, errors.New("the schema of its arguments is not that of an object")
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return info, fmt.Errorf("the schema of its arguments: %w", err)
	}
	if len(raw) > maxSchema {
		return info, fmt.Errorf("the schema of its arguments has more than %d bytes", maxSchema)
	}
	if _, err := schema.Parse(raw); err != nil {
		return info, fmt.Errorf("the schema of its arguments: %w", err)
	}
	info.Schema = raw
	if a := t.Annotations; a != nil {
		destroys := a.DestructiveHint != nil && *a.DestructiveHint
		info.ReadOnly = a.ReadOnlyHint && !destroys
		info.Additive = a.DestructiveHint != nil && !*a.DestructiveHint
	}
	return info, nil
}

const maxName = 64

var (
	plainName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	odd       = regexp.MustCompile(`[^a-zA-Z0-9_-]`)
)

// toolName returns what models call a tool. A name that is too long is cut and ends
// with a hash of the whole, so that two that begin alike stay different.
func (s *Server) toolName(tool string) string {
	name := tool
	if !s.opts.NoPrefix {
		name = cmp.Or(s.opts.Prefix, s.name) + "_" + tool
	}
	plain := odd.ReplaceAllString(name, "_")
	if len(plain) > maxName {
		sum := sha256.Sum256([]byte(name))
		plain = plain[:maxName-9] + "_" + hex.EncodeToString(sum[:4])
	}
	return plain
}

// matches reports whether a name matches a pattern, in which * is any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return strings.HasSuffix(rest, last)
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// clip returns a server's text as valid UTF-8 of at most about n bytes.
func clip(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
