package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

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

// printf prints what the command gives. The command fails if that cannot be
// written: half an answer must not look like one. Lines that are too long for the
// terminal are folded.
func (a *app) printf(format string, args ...any) {
	lines := strings.Split(fmt.Sprintf(format, args...), "\n")
	for i, line := range lines {
		lines[i] = a.fold(line)
	}
	a.print(strings.Join(lines, "\n"))
}

// print prints a text as it is, such as a command that people paste.
func (a *app) print(text string) {
	if _, err := io.WriteString(a.out, text); err != nil && a.broken == nil {
		a.broken = err
	}
}

// hint says what to do next, where it is in nobody's way.
func (a *app) hint(format string, args ...any) {
	if !a.json {
		text := a.named(fmt.Sprintf(format, args...))
		if !strings.Contains(text, " "+a.program()+" ") && (a.forced || isTerminal(a.err)) {
			text = strings.Join(wrap(text, a.left(cells(frameLeft))), "\n"+frameLeft)
		}
		fmt.Fprintln(a.err, text)
	}
}

// edge is how many columns the terminal has to which the command prints; 0 if it
// is none.
func (a *app) edge() int {
	if a.forced || isTerminal(a.out) {
		return a.width()
	}
	return 0
}

// fold breaks a line that is too long for the terminal, so that the terminal does
// not: what follows is behind a bar. It loses its styles.
func (a *app) fold(line string) string {
	if plain := styles.ReplaceAllString(line, ""); a.edge() > 0 && cells(plain) > a.edge() {
		return strings.Join(wrap(plain, a.edge()-2-cells(frameLeft)), "\n  "+frameLeft)
	}
	return line
}

// clip cuts a line that is too long for the terminal. It loses its styles.
func (a *app) clip(line string) string {
	if plain := styles.ReplaceAllString(line, ""); a.edge() > 0 && cells(plain) > a.edge() {
		return cut(plain, a.edge())
	}
	return line
}

// styles are what style adds to a text.
var styles = regexp.MustCompile(`\x1b\[\d*m`)

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
			widths[j] = max(widths[j], cells(rows[i][j]))
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
				line.WriteString(strings.Repeat(" ", widths[j]-cells(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(a.out, a.clip(strings.TrimRight(line.String(), " "))); err != nil {
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

// width is how many columns a line has; 0 if that does not matter.
func (a *app) width() int {
	if a.forced {
		return cmp.Or(a.columns, 100)
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

// height is how many lines a screen has; 0 if that does not matter.
func (a *app) height() int {
	if a.forced {
		return a.lines
	}
	if f, ok := a.out.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil {
			return height
		}
	}
	return 0
}

// short is how many columns a value may have in a line that has used so many.
func (a *app) short(used int) int {
	width := a.width()
	if width == 0 {
		width = 200
	}
	return max(width-used, 8)
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
	case "failed", "blocked", "quarantined", "damaged":
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
