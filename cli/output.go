package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// printJSON prints a value as JSON that a person can read.
func (a *app) printJSON(v any) error { return a.encode(v, "  ") }

// printLine prints a value as one line of JSON, of a stream.
func (a *app) printLine(v any) error { return a.encode(v, "") }

func (a *app) encode(v any, indent string) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(a.out, escaped(text.String()))
	return err
}

// escaped writes the characters of JSON that steer a terminal as escapes, which
// mean the same.
func escaped(s string) string {
	if !strings.ContainsFunc(s, steers) {
		return s
	}
	var out strings.Builder
	for _, c := range s {
		if c != '\n' && c <= 0xffff && steers(c) {
			fmt.Fprintf(&out, `\u%04x`, c)
			continue
		}
		out.WriteRune(c)
	}
	return out.String()
}

// printf prints what the command gives. The command fails if that cannot be
// written: half an answer must not look like one.
func (a *app) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(a.out, format, args...); err != nil && a.broken == nil {
		a.broken = err
	}
}

// hint says what to do next, where it is in nobody's way.
func (a *app) hint(format string, args ...any) {
	if !a.json {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// table prints rows in columns; the first row is the heading. Cells are cut so
// that rows fit the terminal.
func (a *app) table(rows [][]string) error {
	var widths []int
	for i, row := range rows {
		rows[i] = make([]string, len(row))
		for j, cell := range row {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			rows[i][j] = cut(oneLine(cell), 200)
			widths[j] = max(widths[j], utf8.RuneCountInString(rows[i][j]))
		}
	}
	fit(widths, a.width())
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			style := styleOf(cell)
			cell = cut(cell, widths[j])
			if i == 0 {
				style = bold
			}
			line.WriteString(a.style(style, cell))
			if j < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(a.out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// fit makes the widest columns narrower until all are within a width, if there
// is one.
func fit(widths []int, width int) {
	for width > 0 {
		sum, widest := 2*(len(widths)-1), 0
		for i, w := range widths {
			if sum += w; w > widths[widest] {
				widest = i
			}
		}
		if sum <= width || widths[widest] <= 8 {
			return
		}
		widths[widest] -= min(sum-width, max(1, widths[widest]/8))
	}
}

// terminal reports whether people watch what is printed as it is.
func (a *app) terminal() bool { return a.watched(a.out) }

// watched reports whether people watch what is written to w as it is.
func (a *app) watched(w io.Writer) bool {
	if a.plain || a.json || a.env("NO_COLOR") != "" || a.env("TERM") == "dumb" {
		return false
	}
	return a.forced || isTerminal(w)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width is how many characters a line has; 0 if that does not matter.
func (a *app) width() int {
	if a.forced {
		return 100
	}
	for _, w := range []io.Writer{a.out, a.err} {
		if f, ok := w.(*os.File); ok {
			if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
				return max(width, 20)
			}
		}
		if w == a.out && !a.watched(a.err) {
			break
		}
	}
	return 0
}

// short is how long a value may be in a line that has used so many characters.
func (a *app) short(used int) int {
	width := a.width()
	if width == 0 {
		width = 200
	}
	return max(width-used, 20)
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
	if style == "" || text == "" || !a.terminal() {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// styleOf is the style of a status.
func styleOf(status string) string {
	switch status {
	case "succeeded", "answered":
		return green
	case "failed", "blocked", "quarantined":
		return red
	case "suspended", "paused", "open":
		return amber
	case "running", "queued":
		return blue
	case "cancelled", "expired", "closed":
		return dim
	}
	return ""
}

// steers reports whether a character would do something to the terminal, or to
// the order of what stands around it.
func steers(c rune) bool {
	switch {
	case c < ' ', c >= 0x7f && c < 0xa0:
		return true
	case c == 0x061c, c == 0x200e, c == 0x200f, c >= 0x2028 && c <= 0x202e, c >= 0x2066 && c <= 0x2069, c == 0xfeff:
		return true
	}
	return false
}

// printable keeps what models, tools and people wrote from steering the
// terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && steers(c) {
			return utf8.RuneError
		}
		return c
	}, strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n"))
}

// oneLine is a text as part of a line.
func oneLine(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }

// cut shortens a text to so many characters.
func cut(s string, n int) string {
	if n <= 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
