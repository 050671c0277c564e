package script

import (
	"context"
	"fmt"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/llm"
)

// kept is how many requests a Model remembers, so that one which serves for days
// does not grow.
const kept = 256

// Model is an llm.Model that follows a script. It is safe for concurrent use.
type Model struct {
	name  string // the model that replies name
	file  string // for errors
	rules []*rule

	mu       sync.Mutex
	count    int
	requests []llm.Request
}

var _ llm.Model = (*Model)(nil)

// Load reads a script from a file.
func Load(path string) (*Model, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return Parse(path, data)
}

// Must returns the model, and panics if there is an error.
func Must(m *Model, err error) *Model {
	if err != nil {
		panic(err)
	}
	return m
}

// New returns a model that gives the replies, for tests in Go. A reply with a When
// fits if that returns true. Replies without a When fit in turn: the first of them if
// the request has no assistant message, the second if it has one, and so on. The first
// reply that fits is given. Texts are used as they are, not as templates.
func New(replies ...Reply) *Model {
	m := &Model{name: "script", file: "script.New"}
	turn := 0
	for i, reply := range replies {
		r := &rule{name: fmt.Sprintf("reply %d", i), times: int64(reply.Times)}
		if when := reply.When; when != nil {
			r.when = func(v *values) bool { return when(v.request) }
		} else {
			n := turn
			turn++
			r.when = func(v *values) bool { return v.replies == n }
		}
		r.reply = func(*values) (Reply, error) { return reply, nil }
		m.rules = append(m.rules, r)
	}
	return m
}

// String returns the name of the model.
func (m *Model) String() string { return "script:" + m.name }

// Generate gives the reply of the first rule that fits the request.
func (m *Model) Generate(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		m.note(r)
		if err := ctx.Err(); err != nil {
			yield(llm.Delta{}, err)
			return
		}
		reply, err := m.choose(valuesOf(r))
		if err != nil {
			yield(llm.Delta{}, err)
			return
		}
		reply.play(ctx, m.name, r, yield)
	}
}

// choose finds the rule that fits and fills in its reply.
func (m *Model) choose(asked *values) (Reply, error) {
	for _, rule := range m.rules {
		v := *asked
		if !rule.when(&v) || rule.times > 0 && rule.used.Add(1) > rule.times {
			continue
		}
		reply, err := rule.reply(&v)
		if err != nil {
			return Reply{}, invalid("%s: %s: %v", m.file, rule.name, err)
		}
		return reply, nil
	}
	names := make([]string, len(m.rules))
	for i, rule := range m.rules {
		names[i] = rule.name
	}
	return Reply{}, invalid("%s: no rule fits the request (%s); the rules are: %s. Add one, or a default",
		m.file, asked, strings.Join(names, ", "))
}

func invalid(format string, args ...any) error {
	return &llm.Error{Kind: llm.ErrInvalid, Provider: "script", Message: fmt.Sprintf(format, args...)}
}

// note remembers a request. It copies the lists, which callers reuse, and shares
// what they do not write to.
func (m *Model) note(r *llm.Request) {
	c := clone(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	if len(m.requests) == kept {
		m.requests = append(m.requests[:0], m.requests[1:]...)
	}
	m.requests = append(m.requests, c)
}

// clone copies the lists of a request.
func clone(r *llm.Request) llm.Request {
	c := *r
	c.Messages = slices.Clone(r.Messages)
	n := 0
	for _, msg := range r.Messages {
		n += len(msg.Parts)
	}
	parts := make([]llm.Part, 0, n)
	for i, msg := range r.Messages {
		from := len(parts)
		parts = append(parts, msg.Parts...)
		c.Messages[i].Parts = slices.Clip(parts[from:])
	}
	c.Tools = slices.Clone(r.Tools)
	c.Stop = slices.Clone(r.Stop)
	return c
}

// Requests returns the last 256 requests that the model got in this process, oldest
// first. Their parts share memory with the originals and must not be modified.
func (m *Model) Requests() []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Clone(m.requests)
	for i := range list {
		list[i] = clone(&list[i])
	}
	return list
}

// Count returns how many requests the model got in this process.
func (m *Model) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// rule gives its reply to requests that it fits.
type rule struct {
	name  string // for errors
	when  func(*values) bool
	times int64 // 0: always
	used  atomic.Int64
	reply func(*values) (Reply, error)
}

// match is a condition on a text.
type match struct {
	equals   *string
	contains string
	regexp   *regexp.Regexp
}

// fits reports whether a text fits, and sets the groups of the regexp.
func (m *match) fits(s string, v *values) bool {
	if m.equals != nil && s != *m.equals || !strings.Contains(s, m.contains) {
		return false
	}
	if m.regexp == nil {
		return true
	}
	groups := m.regexp.FindStringSubmatch(s)
	if groups != nil {
		v.groups, v.regexp = groups, m.regexp
	}
	return groups != nil
}

// conditions are those of a rule, all of which must hold.
type conditions struct {
	last, system match
	others       []func(*values) bool
}

// hold reports whether all hold, and sets the groups.
func (c *conditions) hold(v *values) bool {
	if slices.ContainsFunc(c.others, func(holds func(*values) bool) bool { return !holds(v) }) {
		return false
	}
	return c.system.fits(v.request.System, v) && c.last.fits(v.last, v)
}
