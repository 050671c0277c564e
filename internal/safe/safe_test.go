package safe

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestIDsThatDifferLookDifferent, however they differ in spaces.
func TestIDsThatDifferLookDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"pay", " pay", "pay ", "  pay", "p ay", "p  ay", "p   ay", "p\u2000ay", "p\u00a0ay", "\u00a0pay", "p\tay", "pay\n"} {
		if other, ok := seen[Name(id)]; ok {
			t.Errorf("%q looks like %q: %s", id, other, Name(id))
		}
		seen[Name(id)] = id
	}
	if Name("my trip") != "my trip" || Label("p\u2000ay") != "p<U+2000>ay" {
		t.Errorf("%q, %q", Name("my trip"), Label("p\u2000ay"))
	}
}

// FuzzUntrusted: whatever a text is, its lines stay behind the bar and within
// the terminal, nothing in them steers it or is unseen, and escaped JSON means
// the same.
func FuzzUntrusted(f *testing.F) {
	for _, s := range []string{
		"", "plain", "  call     pay\n  [a]pprove > ", strings.Repeat(" ", 200) + "? Pay?", "a\r\nb\rc\x1b[2J\u009b1A",
		strings.Repeat("日本語", 50), "e" + strings.Repeat("\u0301", 300), "\u0301\n\u0301", "\u202e\u2066\u200b\U000e0041", "\ufe0f❤\ufe0f\u200d👩", "\xff\xc0",
		"ᄀ" + strings.Repeat("\u1161", 90), "x\tyyyy", strings.Repeat("❤\ufe0f", 99), strings.Repeat("\u3000", 99) + "x", `{"a":"\u202e"}`,
	} {
		f.Add(s)
	}
	pieces := []string{" ", "\n", "\t", "\r", "a", "日", "e\u0301", "\u0301", "\u1161", "\u200d", "\ufe0f", "❤", "\U000e0041", "\x1b[A", "\xff", "[a]pprove", "│ ", "                     "}
	for r := rand.New(rand.NewPCG(1, 2)); len(pieces) < 600; { // so that an ordinary test finds much
		n := r.IntN(60)
		s := ""
		for range n {
			s += pieces[r.IntN(18)]
		}
		f.Add(s)
		pieces = append(pieces, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(what, line string) {
			t.Helper()
			carried := marks
			for _, c := range line {
				switch {
				case Steers(c):
					t.Fatalf("%s of %q has %q: %q", what, s, c, line)
				case !combines(c):
					carried = 0
				default:
					if carried++; carried > marks {
						t.Fatalf("%s of %q piles up characters: %q", what, s, line)
					}
				}
			}
		}
		check("printable", Text(s))
		check("oneLine", Line(s))
		if n := Cells(Label(s)); n > LabelCells && !plainWord.MatchString(s) {
			t.Fatalf("the label of %q has %d columns", s, n)
		}
		for _, margin := range []string{"", "  "} {
			text, hidden := Frame(margin, s, 100, 7)
			lines := strings.Split(text, "\n")
			if len(lines) > 7 || hidden > 0 && len(lines) != 7 {
				t.Fatalf("%d lines of %q are shown, and %d hidden", len(lines), s, hidden)
			}
			for _, line := range lines {
				rest, ok := strings.CutPrefix(line, margin+strings.TrimSpace(Bar))
				if !ok || Cells(line) > 100 {
					t.Fatalf("a line of %q is out of its frame: %q", s, line)
				}
				check("a line", strings.TrimPrefix(rest, " "))
			}
		}
		for n := range 12 {
			if got := Cut(Text(s), n); n > 0 && Cells(got) > n {
				t.Fatalf("%q cut to %d has %d columns", got, n, Cells(got))
			}
			joined := strings.Join(Wrap(Text(s), n+2), "")
			if strings.ReplaceAll(joined, " ", "") != strings.ReplaceAll(Text(s), " ", "") {
				t.Fatalf("%q in lines is %q", Text(s), joined)
			}
		}
		data, _ := json.Marshal(s)
		text := JSON(string(data))
		check("JSON", text)
		var before, after any
		if json.Unmarshal(data, &before) != nil || json.Unmarshal([]byte(text), &after) != nil || before != after {
			t.Fatalf("%s means %q, and as %s it means %q", data, before, text, after)
		}
	})
}

func TestNothingSteersTheTerminal(t *testing.T) {
	evil := "a\x1b[31mb\x07c\u009bd\u202ee\u2066f\rg\u2028h\ufeffi\x7fj\xffk\tl\nm"
	want := "a<U+001B>[31mb<U+0007>c<U+009B>d<U+202E>e<U+2066>f<U+000D>g<U+2028>h<U+FEFF>i<U+007F>j<FF>k<U+0009>l<U+000A>m"
	if got := Text(evil); got != want {
		t.Errorf("printable makes %q", got)
	}
	for text, want := range map[string]string{
		" a\n\tb\x1b ":                      "a b<U+001B>",
		"re\u200bject \U000e0061\U000e0062": "re<U+200B>ject <U+E0061><U+E0062>",
		"❤\ufe0f👩\u200d💻 1\ufe0f":           "❤👩💻 1<U+FE0F>",
		"❤\ufe0f\ufe0f\u200dx":              "❤<U+FE0F><U+200D>x",
		"می\u200cخواهم a\u200cb":            "میخواهم a<U+200C>b",
		"e\u0301\u0301\u0301\u0301\u0301":   "e\u0301\u0301\u0301\u0301<U+0301>",
		"\u0301x \u0301":                    "<U+0301>x <U+0301>",
		"a\u00a0b\u3000c\u3164\u2800":       "a b c<U+3164><U+2800>",
		"\ue000\ufdd0\uff21日本":              "<U+E000><U+FDD0>\uff21日本",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	for n, want := range map[int]string{0: "abcé", 2: "a…", 4: "abcé", 3: "ab…", 1: "…"} {
		if got := Cut("abcé", n); got != want {
			t.Errorf("cut to %d is %q", n, got)
		}
	}
}
