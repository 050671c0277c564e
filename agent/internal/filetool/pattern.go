package filetool

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/perdure/perdure/agent/files"
)

// pattern matches paths: each name as path.Match does, ** for any number of
// folders, and {a,b} for either.
type pattern struct{ alternatives [][]string } // as names

// maxAlternatives is how many patterns the braces of one may stand for.
const maxAlternatives = 64

// parsePattern reads a pattern that is relative to a folder, or to the root if it
// begins with a slash.
func parsePattern(dir, text string) (*pattern, error) {
	if len(text) > files.MaxPath {
		return nil, errors.New("it is too long")
	}
	all, err := expandBraces(text)
	if err != nil {
		return nil, err
	}
	g := new(pattern)
	for _, p := range all {
		if p == "" {
			return nil, errors.New("it is empty")
		}
		var names []string
		if !strings.HasPrefix(p, "/") {
			for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
				if name != "" {
					names = append(names, globQuoter.Replace(name))
				}
			}
		}
		for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
			if _, err := path.Match(name, ""); err != nil {
				return nil, errors.New("a [ or \\ in it has no end")
			}
			if name == ".." {
				return nil, errors.New("it has .. in it")
			}
			if name != "" && name != "." && !(name == "**" && len(names) > 0 && names[len(names)-1] == "**") {
				names = append(names, name)
			}
		}
		g.alternatives = append(g.alternatives, names)
	}
	return g, nil
}

var globQuoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// expandBraces returns the patterns that one with braces stands for.
func expandBraces(pattern string) ([]string, error) {
	open := strings.Index(pattern, "{")
	if open < 0 {
		return []string{pattern}, nil
	}
	var choices []string
	depth, from, end := 0, open+1, -1
	for i := open; i < len(pattern) && end < 0; i++ {
		switch c := pattern[i]; {
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			choices, from = append(choices, pattern[from:i]), i+1
		case c == '}':
			if depth--; depth == 0 {
				choices, end = append(choices, pattern[from:i]), i
			}
		}
	}
	if end < 0 {
		return nil, errors.New("a { in it has no end")
	}
	var all []string
	for _, c := range choices {
		more, err := expandBraces(pattern[:open] + c + pattern[end+1:])
		if err != nil {
			return nil, err
		}
		if all = append(all, more...); len(all) > maxAlternatives {
			return nil, errors.New("its braces stand for too many patterns")
		}
	}
	return all, nil
}

// match reports whether the path of a file matches.
func (g *pattern) match(p string) bool { return g.matchAny(p, false) }

// mayHold reports whether a file below a folder can match.
func (g *pattern) mayHold(dir string) bool { return dir == "/" || g.matchAny(dir, true) }

func (g *pattern) matchAny(p string, folder bool) bool {
	names := strings.Split(p[1:], "/")
	return slices.ContainsFunc(g.alternatives, func(a []string) bool { return matchNames(a, names, folder) })
}

// matchNames matches the names of a path or, for a folder, against a beginning of
// the pattern. at[j] says whether the pattern read so far matches the first j
// names, so that many ** take no longer than few.
func matchNames(pattern, names []string, folder bool) bool {
	at := make([]bool, len(names)+1)
	at[0] = true
	for _, p := range pattern {
		if folder && at[len(names)] {
			return true
		}
		if p == "**" {
			for j := range names {
				at[j+1] = at[j+1] || at[j]
			}
			continue
		}
		for j := len(names); j > 0; j-- {
			ok := at[j-1]
			if ok {
				ok, _ = path.Match(p, names[j-1])
			}
			at[j] = ok
		}
		at[0] = false
	}
	return at[len(names)]
}
