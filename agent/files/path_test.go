package files

import (
	"path"
	"strings"
	"testing"
)

func FuzzPath(f *testing.F) {
	for _, p := range []string{"/a/b", "a", "..", "/a/../b", "//a//", "\\a", "/a\x00", "\xff", "/...", ""} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		c, err := Clean(p)
		if err != nil {
			return
		}
		if c[0] != '/' || path.Clean(c) != c || strings.Contains(c, "..") && !strings.Contains(p, "..") || len(c) > MaxPath {
			t.Errorf("%q became %q", p, c)
		}
		for name := range strings.SplitSeq(c, "/") {
			if name == ".." {
				t.Errorf("%q became %q", p, c)
			}
		}
		if again, err := Clean(c); err != nil || again != c {
			t.Errorf("%q became %q, and that %q, %v", p, c, again, err)
		}
		if name, err := diskName(c); c != "/" && err == nil && (strings.HasPrefix(name, "/") || name == "") {
			t.Errorf("%q is %q on disk", p, name)
		}
	})
}
