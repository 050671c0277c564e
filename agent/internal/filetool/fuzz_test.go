package filetool

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/agent/files"
)

// slowGlob matches as the documentation of a pattern says it, by trying all.
func slowGlob(pattern, names []string) bool {
	switch {
	case len(pattern) == 0:
		return len(names) == 0
	case pattern[0] == "**":
		return slowGlob(pattern[1:], names) || len(names) > 0 && slowGlob(pattern, names[1:])
	case len(names) == 0:
		return false
	}
	ok, _ := path.Match(pattern[0], names[0])
	return ok && slowGlob(pattern[1:], names[1:])
}

func FuzzGlob(f *testing.F) {
	for _, p := range []string{"*.md", "**/*.md", "a/**/b/**/c", "**", "**/**/**/x", "{a,b{c,d}}/*", "[a-z]/?", "/x", "{", "[", "a\\", "{,}", "***", "./a", "a//b", "{a,b,c}{a,b,c}{a,b,c}{a,b,c}{a,b,c}"} {
		f.Add(p, "/a/b/c/x.md")
	}
	f.Fuzz(func(t *testing.T, pattern, p string) {
		p, err := files.CleanFile(p)
		if err != nil || strings.Count(p, "/") > 8 || strings.Count(pattern, "*") > 12 {
			return
		}
		g, err := parsePattern("/", pattern)
		if err != nil {
			return
		}
		names := strings.Split(p[1:], "/")
		want := false
		for _, one := range g.alternatives {
			want = want || slowGlob(one, names)
		}
		if got := g.match(p); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, p, got, want)
		}
		if want {
			for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
				if !g.mayHold(dir) {
					t.Errorf("%q would not be looked for in %s, where %s is", pattern, dir, p)
				}
			}
		}
	})
}

func FuzzEdit(f *testing.F) {
	f.Add("a\nb\na\n", "a", "c", false)
	f.Add("aaa", "aa", "b", false)
	f.Add("x\r\ny", "x\ny", "", true)
	f.Add("a  b", "a b", "", false)
	f.Add("", "", "", true)
	f.Fuzz(func(t *testing.T, text, old, new string, all bool) {
		a := EditArgs{Path: "/f", Old: old, New: new, All: all}
		why := checkEdit(text, a)
		n := 0 // overlapping ones too
		for i := range text {
			if old != "" && strings.HasPrefix(text[i:], old) {
				n++
			}
		}
		if !utf8.ValidString(text) || !utf8.ValidString(old) {
			return
		}
		ok := old != "" && old != new && (n == 1 || all && n > 0)
		if ok != (why == "") {
			t.Errorf("%q for %q in %q, which is there %d times, all %v: %q", old, new, text, n, all, why)
		}
	})
}

func FuzzGrep(f *testing.F) {
	f.Add("a+", "baab\ncc", false, true)
	f.Add("(", "(", true, false)
	f.Add("(?s).*", "a\n\r\nb", false, false)
	f.Add("[[:alpha:]]{1000}", strings.Repeat("a", 5000), false, false)
	f.Fuzz(func(t *testing.T, pattern, text string, literal, fold bool) {
		re, weight, err := GrepArgs{Pattern: pattern, Literal: literal, IgnoreCase: fold}.compile()
		if err != nil {
			if literal && utf8.ValidString(pattern) && len(pattern) <= 1000 {
				t.Errorf("the literal %q: %v", pattern, err)
			}
			return
		}
		s := search{re: re, weight: weight, limit: 3, left: maxSearch}
		err = s.add(files.File{Path: "/f", Text: text})
		if out := s.text(err != nil); len(out) > maxOutput+1000 || s.found > 3 {
			t.Errorf("found %d, in %d bytes", s.found, len(out))
		}
		if literal && !fold && utf8.ValidString(pattern) && utf8.ValidString(text) {
			want := 0
			for _, line := range splitLines(text) {
				if strings.Contains(line, pattern) {
					want++
				}
			}
			if diff := cmp.Diff(min(want, 3), s.found); diff != "" {
				t.Errorf("%q in %q: %s", pattern, text, diff)
			}
		}
	})
}
