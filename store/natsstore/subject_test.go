package natsstore

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestSubjects turns names into subjects and back, and lists them by all their prefixes.
func TestSubjects(t *testing.T) {
	names := []string{"a", "/", "//", "due/", "due/a.b c/d", "0123456789abcdef", "0123456789abcde/f", strings.Repeat("/", 512), strings.Repeat("ä/", 170)}
	for range 200 {
		var b strings.Builder
		for range 1 + rand.IntN(60) {
			b.WriteByte("ab/.*> \xff"[rand.IntN(8)])
		}
		names = append(names, b.String())
	}
	for _, name := range names {
		subject := encode(name)
		if back, ok := decode(subject); !ok || back != name {
			t.Errorf("%q becomes %s, and that %q", name, subject, back)
		}
		if strings.ContainsAny(subject, " *>") || strings.Contains(subject, "..") || len(subject) > 2000 {
			t.Errorf("%q becomes %s, which is no subject", name, subject)
		}
		for i := range len(name) + 1 {
			if whole, ok := strings.CutSuffix(common(name[:i]), ">"); !ok || !strings.HasPrefix(subject, whole) {
				t.Errorf("%q is not listed by %q: %s does not match %s", name, name[:i], subject, common(name[:i]))
			}
		}
	}
	for prefix, want := range map[string]string{"": ">", "due/": "due=2f.>", "due/x": "due=2f.>", "1/due/flow/x": "1=2f.due=2f.flow=2f.>"} {
		if got := common(prefix); got != want {
			t.Errorf("names with %q are listed by %s, want %s", prefix, got, want)
		}
	}
}
