package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"golang.org/x/term"
)

// printJSON prints a value as JSON.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

// table prints rows in columns; the first row is the heading.
func (a *app) table(rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, printable(cell))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// terminal reports whether people watch what is printed as it is.
func (a *app) terminal() bool {
	if a.plain || a.json || a.env("NO_COLOR") != "" || a.env("TERM") == "dumb" {
		return false
	}
	f, ok := a.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// The styles of a terminal.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	amber = "33"
	blue  = "34"
)

// style colours a text for terminals.
func (a *app) style(style, text string) string {
	if !a.terminal() {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// printable keeps what models, tools and people wrote from steering the
// terminal.
func printable(s string) string {
	out := []rune(s)
	for i, c := range out {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f || c >= 0x80 && c < 0xa0 || c == 0x202e || c == 0x2066 || c == 0x2067 {
			out[i] = '\uFFFD'
		}
	}
	return string(out)
}
