package agent

import (
	"errors"
	"path"
	"strings"
)

// globber matches paths against a pattern: those of path.Match for each name,
// ** for any number of folders, and {a,b} for either.
type globber struct{ patterns [][]string } // the names of each

// maxGlobs is how many patterns the braces of one may stand for.
const maxGlobs = 64

// newGlob reads a pattern that counts from a folder, or from the root if it
// begins with a slash.
func newGlob(dir, pattern string) (*globber, error) {
	if len(pattern) > maxPath {
		return nil, errors.New("it is too long")
	}
	all, err := expandBraces(pattern)
	if err != nil {
		return nil, err
	}
	g := new(globber)
	for _, p := range all {
		if p == "" {
			return nil, errors.New("it is empty")
		}
		var names []string
		if !strings.HasPrefix(p, "/") {
			for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
				if name != "" {
					names = append(names, quoteGlob(name))
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
		g.patterns = append(g.patterns, names)
	}
	return g, nil
}

var globQuoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func quoteGlob(name string) string { return globQuoter.Replace(name) }

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
		if all = append(all, more...); len(all) > maxGlobs {
			return nil, errors.New("its braces stand for too many patterns")
		}
	}
	return all, nil
}

// match reports whether a path of a file matches.
func (g *globber) match(p string) bool {
	names := strings.Split(p[1:], "/")
	for _, pattern := range g.patterns {
		if matchNames(pattern, names, false) {
			return true
		}
	}
	return false
}

// mayHold reports whether a file below a folder can match.
func (g *globber) mayHold(dir string) bool {
	if dir == "/" {
		return true
	}
	names := strings.Split(dir[1:], "/")
	for _, pattern := range g.patterns {
		if matchNames(pattern, names, true) {
			return true
		}
	}
	return false
}

// matchNames matches the names of a path; as a folder, those of a beginning of
// the pattern. at[j] says whether what was read of the pattern matches the first
// j names, so that many ** take no longer than few.
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
