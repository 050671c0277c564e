package filetool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/perdure/perdure/agent/files"
)

// A search looks at maxWalk files and folders, and at maxSearch bytes, which
// count more the longer an expression takes for them.
const (
	maxWalk   = 100_000
	maxSearch = 64 << 20
)

// errEnough ends a walk.
var errEnough = errors.New("agent: enough")

// walk visits the files below a folder, folder by folder, without the folders
// that enter refuses.
func (t Tools) walk(ctx context.Context, dir string, enter func(dir string) bool, visit func(files.File) error) error {
	left := maxWalk
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		all, err := t.fs.List(ctx, dir)
		if err != nil {
			return err
		}
		for _, f := range all {
			if left--; left < 0 || depth > files.MaxPath {
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

// GlobArgs are the arguments of Glob.
type GlobArgs struct {
	Pattern string `json:"pattern" jsonschema:"pattern of paths, such as **/*.md; from the root if it begins with /, or else from path" schema:"minlen=1"`
	Path    string `json:"path,omitempty" jsonschema:"folder to look in; the root if it is left out"`
}

// CleanPath implements Args.
func (a *GlobArgs) CleanPath() {
	if strings.HasPrefix(a.Pattern, "/") {
		a.Path = "/" // the pattern counts from the root, whatever the path says
	}
	cleanArg(files.Clean, &a.Path)
}

// Glob finds files by their paths.
func (t Tools) Glob(ctx context.Context, a GlobArgs) (Result, error) {
	dir, err := files.Clean(a.Path)
	if err != nil {
		return explain(err)
	}
	g, err := parsePattern(dir, a.Pattern)
	if err != nil {
		return mistake("The pattern %q is none: %v. One that is: **/*.md", a.Pattern, err)
	}
	if strings.HasPrefix(a.Pattern, "/") {
		dir = "/"
	}
	var out strings.Builder
	n := 0
	err = t.walk(ctx, dir, g.mayHold, func(f files.File) error {
		if !g.match(f.Path) {
			return nil
		}
		if out.Len()+len(f.Path) > maxOutput {
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
		return explain(err)
	case n == 0:
		hint := ""
		if !strings.Contains(a.Pattern, "**") {
			hint = " Begin the pattern with **/ to look in all folders below."
		}
		return Result{Text: fmt.Sprintf("No file matches %s.%s", a.Pattern, hint)}, nil
	}
	return Result{Text: strings.TrimSuffix(out.String(), "\n")}, nil
}

// GrepArgs are the arguments of Grep.
type GrepArgs struct {
	Pattern    string `json:"pattern" jsonschema:"what lines have to contain: a regular expression (RE2)" schema:"minlen=1"`
	Literal    bool   `json:"literal,omitempty" jsonschema:"the pattern is a text as it stands, not a regular expression"`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema:"capital and small letters are the same"`
	Path       string `json:"path,omitempty" jsonschema:"file or folder to look in; the root if it is left out"`
	Glob       string `json:"glob,omitempty" jsonschema:"pattern of the paths of files to look in, such as **/*.md"`
	Limit      int    `json:"limit,omitempty" jsonschema:"how many lines to show at most; 100 if it is left out" schema:"min=0"`
}

// compile returns the expression, and how much longer than a plain one it takes.
func (a GrepArgs) compile() (re *regexp.Regexp, weight int, err error) {
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
	// Matching takes the length of the text times that of the program, and
	// nested repetitions make a short expression a long program.
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

// CleanPath implements Args.
func (a *GrepArgs) CleanPath() { cleanArg(files.Clean, &a.Path) }

// Grep finds lines in files.
func (t Tools) Grep(ctx context.Context, a GrepArgs) (Result, error) {
	dir, err := files.Clean(a.Path)
	if err != nil {
		return explain(err)
	}
	re, weight, err := a.compile()
	if err != nil {
		return mistake("The pattern cannot be used: %v. To look for a text as it stands set literal to true.", err)
	}
	g := &pattern{alternatives: [][]string{{"**"}}}
	if a.Glob != "" {
		if g, err = parsePattern(dir, a.Glob); err != nil {
			return mistake("The glob %q is none: %v. One that is: **/*.md", a.Glob, err)
		}
	}
	s := search{re: re, weight: weight, limit: cmp.Or(max(a.Limit, 0), 100), left: maxSearch}
	visit := func(f files.File) error {
		s.seen = true
		if !g.match(f.Path) {
			return nil
		}
		f, err := t.fs.Read(ctx, f.Path)
		switch {
		case errors.Is(err, files.ErrNotText):
			s.skipped++
			return nil
		case errors.Is(err, files.ErrNotFound), errors.Is(err, files.ErrPath): // changed since it was listed
			return nil
		case err != nil:
			return err
		}
		return s.add(f)
	}
	one, err := t.fs.Read(ctx, dir)
	switch {
	case err == nil: // the path is that of a file, which the glob need not match
		s.seen = true
		err = s.add(one)
	case errors.Is(err, files.ErrNotText):
		return explain(err)
	case errors.Is(err, files.ErrNotFound), errors.Is(err, files.ErrPath):
		err = t.walk(ctx, dir, g.mayHold, visit)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return explain(err)
	}
	if err == nil && !s.seen && dir != "/" && a.Glob == "" {
		return mistake("There is no file or folder %s. Use ls or glob to see which there are.", dir)
	}
	return Result{Text: s.text(err != nil)}, nil
}

// search is what Grep has found so far.
type search struct {
	re             *regexp.Regexp
	limit          int
	weight, left   int  // what a byte counts, and how much may still be looked at
	seen           bool // there are files at all
	found, skipped int
	out            strings.Builder
}

func (s *search) add(f files.File) error {
	if s.left -= len(f.Text) * s.weight; s.left < 0 {
		return errEnough
	}
	for i, line := range splitLines(f.Text) {
		if !s.re.MatchString(line) {
			continue
		}
		shown := fmt.Sprintf("%s:%d: %s\n", f.Path, i+1, cutLine(line, 500))
		if s.found == s.limit || s.out.Len()+len(shown) > maxOutput {
			return errEnough
		}
		s.found++
		s.out.WriteString(shown)
	}
	return nil
}

func (s *search) text(more bool) string {
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
