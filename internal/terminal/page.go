package terminal

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"strings"

	"github.com/perdure/perdure/internal/safe"
)

// pageWidth is the longest line of a page; longer ones are hard to read.
const pageWidth = 92

// Page shows a page of Markdown. On a terminal its paragraphs are wrapped, and a
// page that is longer than the screen is shown in $PAGER, or in less. Elsewhere it
// is printed as it is.
func (t *Terminal) Page(ctx context.Context, text string) error {
	if !t.onScreen(t.Out) {
		t.Print(text)
		return t.broken
	}
	text = t.layOut(text)
	words := strings.Fields(cmp.Or(t.Env("PAGER"), "less"))
	program, err := exec.LookPath(words[0])
	if t.Plain || t.Forced || err != nil || strings.Count(text, "\n") < t.Height() {
		t.Print(text)
		return t.broken
	}
	c := exec.CommandContext(ctx, program, words[1:]...)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(text), t.Out, t.Err
	c.Env = append(os.Environ(), "LESS="+cmp.Or(t.Env("LESS"), "FRX"))
	return c.Run()
}

// layOut wraps the paragraphs and lists of a page, and makes its headings bold.
// Code and tables stay as they are.
func (t *Terminal) layOut(text string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence:
			code = !code
			continue
		case code:
			line = "    " + line
		case strings.HasPrefix(line, "#"):
			line = t.Style(Bold, line)
		case !strings.HasPrefix(line, "|"):
			margin := ""
			if strings.HasPrefix(line, "- ") {
				margin = "  "
			}
			wrapped := safe.Wrap(line, min(t.WrapAt(len(margin)), pageWidth))
			line = strings.Join(wrapped, "\n"+margin)
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}
