package script

import (
	"regexp"
	"strings"
	"sync/atomic"
)

// rule gives its reply to requests that it fits.
type rule struct {
	name  string // for errors
	when  func(*view, *values) bool
	times int64 // 0: always
	used  atomic.Int64
	reply func(*values) (Reply, error)
}

// take reports whether the rule may be used once more.
func (r *rule) take() bool {
	return r.times <= 0 || r.used.Add(1) <= r.times
}

// match is a condition on a text.
type match struct {
	equals   *string
	contains string
	regexp   *regexp.Regexp
}

// find reports whether the text fits, and the groups of the regexp.
func (m *match) find(s string) ([]string, bool) {
	if m.equals != nil && s != *m.equals || !strings.Contains(s, m.contains) {
		return nil, false
	}
	if m.regexp == nil {
		return nil, true
	}
	groups := m.regexp.FindStringSubmatch(s)
	return groups, groups != nil
}

// conditions are those of a rule, all of which must hold.
type conditions struct {
	last, system *match
	others       []func(*view) bool
}

// groups is the regexp whose groups templates see.
func (c *conditions) groups() *regexp.Regexp {
	if c.last != nil && c.last.regexp != nil {
		return c.last.regexp
	}
	if c.system != nil {
		return c.system.regexp
	}
	return nil
}

// hold reports whether all hold, and hands the groups on.
func (c *conditions) hold(v *view, vals *values) bool {
	for _, ok := range c.others {
		if !ok(v) {
			return false
		}
	}
	for _, m := range []struct {
		match *match
		text  string
	}{{c.system, v.r.System}, {c.last, v.last}} {
		if m.match == nil {
			continue
		}
		groups, ok := m.match.find(m.text)
		if !ok {
			return false
		}
		if groups != nil {
			vals.groups, vals.regexp = groups, m.match.regexp
		}
	}
	return true
}
