package linediff

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestShort(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""},
		{"", "a", "+ a"},
		{"a\nb", "", "- a\n- b"},
		{"a\nb\nc", "a\nx\nc", "  a\n- b\n+ x\n  c"},
		{"1\n2\n3\n4\n5\nb\n6\n7\n8\n9", "1\n2\n3\n4\n5\n6\n7\n8\n9", "  …\n  4\n  5\n- b\n  6\n  7\n  …"},
		{"a\na\na", "a\na", "  a\n  a\n- a"},
		{"a\nb\nc\nd", "b\nd\ne", "- a\n  b\n- c\n  d\n+ e"},
	} {
		if diff := cmp.Diff(c.want, strings.Join(Short(c.before, c.after), "\n")); diff != "" {
			t.Errorf("%q and %q (-want +got):\n%s", c.before, c.after, diff)
		}
	}
}
