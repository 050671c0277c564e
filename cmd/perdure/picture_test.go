//go:build unix

package main

import (
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
)

// picturePath is the picture of the README. DEMO_PICTURE=1 makes
// TestDemoTellsWhatHappened draw it from the run that the test makes.
const picturePath = "../../docs/pictures/kill.svg"

// pictureParts are the parts of the demo's output that the picture shows: from a
// line that begins so, that many lines. None stands for a gap.
var pictureParts = []struct {
	from  string
	lines int
}{
	{"1. A worker", 1}, {"", 0},
	{"  The pages agree", 2}, {"2. The worker is dead", 4},
	{"3. Another worker", 6}, {"", 0},
	{"6. Who did what", 5}, {"", 0},
	{"  /researcher/turn-3/reply", 1}, {"", 0},
	{"  /researcher/turn-4/reply", 2}, {"", 0},
	{"  20 steps ran once", 2},
}

// pictureLines returns the lines of the picture of a run of the demo.
func pictureLines(t *testing.T, out string) (lines []string) {
	t.Helper()
	all := strings.Split(out, "\n")
	at := 0
	for _, p := range pictureParts {
		if p.lines == 0 {
			lines = append(lines, "  …")
			continue
		}
		for at < len(all) && !strings.HasPrefix(all[at], p.from) {
			at++
		}
		if at+p.lines > len(all) {
			t.Fatalf("the demo does not say %q", p.from)
		}
		if c := p.from[0]; c >= '2' && c <= '9' {
			lines = append(lines, "")
		}
		for _, line := range all[at : at+p.lines] {
			if line != "" {
				lines = append(lines, strings.TrimRight(line, " "))
			}
		}
		at += p.lines
	}
	return lines
}

// drawPicture returns lines as a picture of a terminal.
func drawPicture(lines []string) string {
	const height = 18
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="920" height="%d" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="#d4d4d4" role="img" aria-label="perdure demo: a worker is killed, another one continues">`+"\n", (len(lines)+2)*height)
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#16181d"/>` + "\n")
	for i, line := range append([]string{"$ perdure demo --fast"}, lines...) {
		style := ""
		switch {
		case strings.Contains(line, "✗"):
			style = ` fill="#ff6b6b" font-weight="bold"`
		case strings.Contains(line, "run again"):
			style = ` fill="#ffd166"`
		case strings.HasPrefix(line, "$"), len(line) > 1 && line[0] >= '1' && line[0] <= '9':
			style = ` fill="#ffffff" font-weight="bold"`
		case strings.HasPrefix(line, "  20 steps"), strings.HasPrefix(line, "  The chain"):
			style = ` fill="#7bd88f"`
		}
		fmt.Fprintf(&b, `<text x="18" y="%d" xml:space="preserve"%s>%s</text>`+"\n", (i+1)*height+8, style, html.EscapeString(line))
	}
	return b.String() + "</svg>\n"
}

var (
	pictureText    = regexp.MustCompile(`(?m)^<text [^>]*>(.*)</text>$`)
	pictureVarious = regexp.MustCompile(`: [\w-]+…$|\d+(\.\d+)?| +`) // hash, numbers of processes, times, columns
)

// checkPicture compares the picture of the README with what the demo says now, but
// for what differs from run to run.
func checkPicture(t *testing.T, out string) {
	t.Helper()
	lines := pictureLines(t, out)
	if os.Getenv("DEMO_PICTURE") != "" {
		if err := os.WriteFile(picturePath, []byte(drawPicture(lines)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	picture, err := os.ReadFile(picturePath)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(lines []string) string {
		var b strings.Builder
		for _, line := range lines {
			if !strings.HasPrefix(line, "  The pages agree") { // where it is cut differs
				b.WriteString(pictureVarious.ReplaceAllString(line, " ") + "\n")
			}
		}
		return b.String()
	}
	var drawn []string
	for _, m := range pictureText.FindAllStringSubmatch(string(picture), -1) {
		drawn = append(drawn, html.UnescapeString(m[1]))
	}
	if got, want := plain(drawn), plain(append([]string{"$ perdure demo --fast"}, lines...)); got != want {
		t.Errorf("docs/pictures/kill.svg shows\n%s\nand the demo says\n%s\nDEMO_PICTURE=1 go test -run TestDemoTellsWhatHappened ./cmd/perdure draws it anew", got, want)
	}
}
