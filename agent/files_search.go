package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxWalk is how many files and folders a search looks at, and maxSearch how
// many bytes, of which those that an expression takes longer for count more.
const (
	maxWalk   = 100_000
	maxSearch = 64 << 20
)

// errEnough ends a walk.
var errEnough = errors.New("agent: enough")

// walkFiles visits the files below a folder, in the order of folders. Folders
// that enter refuses are left out.
func (t fileTools) walkFiles(ctx context.Context, dir string, enter func(dir string) bool, visit func(File) error) error {
	left := maxWalk
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		all, err := t.files.List(ctx, dir)
		if err != nil {
			return err
		}
		for _, f := range all {
			if left--; left < 0 || depth > maxPath {
				return errEnough
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if !f.Dir {
				err = visit(f)
			} else if enter(f.Path) {
				err = walk(f.Path, depth+1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return walk(dir, 0)
}

type globArgs struct {
	Pattern string `json:"pattern" jsonschema:"pattern of paths, such as **/*.md; from the root if it begins with /, or else from path" schema:"minlen=1"`
	Path    string `json:"path,omitempty" jsonschema:"folder to look in; the root if it is left out"`
}

func (t fileTools) glob(ctx context.Context, a globArgs) (Output, error) {
	dir, err := cleanPath(a.Path)
	if err != nil {
		return fileMistake(err)
	}
	g, err := newGlob(dir, a.Pattern)
	if err != nil {
		return sayMistake("The pattern %q is none: %v. One that is: **/*.md", a.Pattern, err)
	}
	if strings.HasPrefix(a.Pattern, "/") {
		dir = "/"
	}
	var out strings.Builder
	n := 0
	err = t.walkFiles(ctx, dir, g.mayHold, func(f File) error {
		if !g.match(f.Path) {
			return nil
		}
		if out.Len()+len(f.Path) > fileOutput {
			return errEnough
		}
		n++
		out.WriteString(f.Path + "\n")
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		fmt.Fprintf(&out, "(there are more than these %d; use a narrower pattern or path to see them)\n", n)
	case err != nil:
		return fileMistake(err)
	case n == 0:
		hint := ""
		if !strings.Contains(a.Pattern, "**") {
			hint = " Begin the pattern with **/ to look in all folders below."
		}
		return Output{Text: fmt.Sprintf("No file matches %s.%s", a.Pattern, hint)}, nil
	}
	return Output{Text: strings.TrimSuffix(out.String(), "\n")}, nil
}

type grepArgs struct {
	Pattern    string `json:"pattern" jsonschema:"what lines have to contain: a regular expression (RE2)" schema:"minlen=1"`
	Literal    bool   `json:"literal,omitempty" jsonschema:"the pattern is a text as it stands, not a regular expression"`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema:"capital and small letters are the same"`
	Path       string `json:"path,omitempty" jsonschema:"file or folder to look in; the root if it is left out"`
	Glob       string `json:"glob,omitempty" jsonschema:"pattern of the paths of files to look in, such as **/*.md"`
	Limit      int    `json:"limit,omitempty" jsonschema:"how many lines to show at most; 100 if it is left out" schema:"min=0"`
}

// compile returns the expression, and how much longer it takes than a plain one.
func (a grepArgs) compile() (re *regexp.Regexp, weight int, err error) {
	expr := a.Pattern
	if len(expr) > 1000 {
		return nil, 0, errors.New("it is longer than 1000 bytes")
	}
	if a.Literal {
		expr = regexp.QuoteMeta(expr)
	}
	if a.IgnoreCase {
		expr = "(?i:" + expr + ")"
	}
	if re, err = regexp.Compile(expr); err != nil {
		return nil, 0, err
	}
	// A text costs its length times that of the program, and a model may ask
	// for a long one by a few repetitions inside each other.
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, err
	}
	if len(prog.Inst) > 500 {
		return nil, 0, errors.New("it repeats too much")
	}
	return re, 1 + len(prog.Inst)/16, nil
}

func (t fileTools) grep(ctx context.Context, a grepArgs) (Output, error) {
	dir, err := cleanPath(a.Path)
	if err != nil {
		return fileMistake(err)
	}
	re, weight, err := a.compile()
	if err != nil {
		return sayMistake("The pattern cannot be used: %v. To look for a text as it stands set literal to true.", err)
	}
	g := &globber{patterns: [][]string{{"**"}}}
	if a.Glob != "" {
		if g, err = newGlob(dir, a.Glob); err != nil {
			return sayMistake("The glob %q is none: %v. One that is: **/*.md", a.Glob, err)
		}
	}
	s := fileSearch{re: re, weight: weight, limit: a.Limit, left: maxSearch}
	if s.limit <= 0 {
		s.limit = 100
	}
	look := func(f File) error {
		s.seen = true
		if !g.match(f.Path) {
			return nil
		}
		f, err := t.files.Read(ctx, f.Path)
		switch {
		case errors.Is(err, ErrNotText):
			s.skipped++
			return nil
		case errors.Is(err, ErrNoFile), errors.Is(err, ErrPath): // changed since it was listed
			return nil
		case err != nil:
			return err
		}
		return s.file(f)
	}
	one, err := t.files.Read(ctx, dir)
	switch {
	case err == nil: // the path is that of a file, which the glob need not match
		s.seen = true
		err = s.file(one)
	case errors.Is(err, ErrNotText):
		return fileMistake(err)
	case errors.Is(err, ErrNoFile), errors.Is(err, ErrPath):
		err = t.walkFiles(ctx, dir, g.mayHold, look)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return fileMistake(err)
	}
	if err == nil && !s.seen && dir != "/" && a.Glob == "" {
		return sayMistake("There is no file or folder %s. Use ls or glob to see which there are.", dir)
	}
	return Output{Text: s.text(err != nil)}, nil
}

// fileSearch is what a grep has found so far.
type fileSearch struct {
	re             *regexp.Regexp
	limit          int
	weight, left   int  // what a byte counts, and how much may still be looked at
	seen           bool // there are files at all
	found, skipped int
	out            strings.Builder
}

func (s *fileSearch) file(f File) error {
	if s.left -= len(f.Text) * s.weight; s.left < 0 {
		return errEnough
	}
	for i, line := range linesOf(f.Text) {
		if !s.re.MatchString(line) {
			continue
		}
		shown := fmt.Sprintf("%s:%d: %s\n", f.Path, i+1, cutLine(line, 500))
		if s.found == s.limit || s.out.Len()+len(shown) > fileOutput {
			return errEnough
		}
		s.found++
		s.out.WriteString(shown)
	}
	return nil
}

func (s *fileSearch) text(more bool) string {
	if s.found == 0 && !more {
		s.out.WriteString("No line matches.\n")
	}
	if more {
		fmt.Fprintf(&s.out, "(there may be more than these %d; use a narrower pattern, path or glob to see them)\n", s.found)
	}
	if s.skipped > 0 {
		fmt.Fprintf(&s.out, "(left out %s that are not text or too large)\n", howMany(s.skipped, "file"))
	}
	return strings.TrimSuffix(s.out.String(), "\n")
}
