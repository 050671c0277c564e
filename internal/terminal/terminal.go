// Package terminal prints the results of a command and reads what a person types.
// On a terminal it uses colours, fits lines to the width and can ask; in a pipe it
// prints plain text, or JSON. It imports package safe and nothing else of Perdure.
package terminal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/safe"
	"golang.org/x/term"
)

// Terminal is the standard streams of a command, and how it should use them. In,
// Out, Err and Env are required.
type Terminal struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string

	JSON  bool // a program reads the output
	Plain bool // no colours, no live progress

	// For tests. Forced makes it behave as on a terminal of so many Columns (0: 100)
	// and Lines (0: any).
	Forced         bool
	Columns, Lines int
	Editor         func(context.Context, string) (string, error) // lets a person edit a text; nil: $EDITOR
	Secret         func(context.Context, string) (string, error) // reads a secret; nil: the terminal
	Now            func() time.Time                              // nil: time.Now

	keys   *keyboard
	broken error
}

// Broken is the first error of writing to Out, if any.
func (t *Terminal) Broken() error { return t.broken }

// PrintJSON prints a value as JSON that a person can read.
func (t *Terminal) PrintJSON(v any) error { return t.encode(v, "  ") }

// PrintLine prints a value as one line of JSON.
func (t *Terminal) PrintLine(v any) error { return t.encode(v, "") }

func (t *Terminal) encode(v any, indent string) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(t.Out, safe.JSON(text.String()))
	return err
}

// Printf prints a part of the result and folds lines that are too long for the
// terminal. If it cannot be written, [Terminal.Broken] says why: half a result must
// not look like a whole one.
func (t *Terminal) Printf(format string, args ...any) {
	lines := strings.Split(fmt.Sprintf(format, args...), "\n")
	for i, line := range lines {
		if plain, long := t.tooLong(line); long {
			lines[i] = strings.Join(safe.Wrap(plain, t.edge()-2-safe.Cells(safe.Bar)), "\n  "+safe.Bar)
		}
	}
	t.Print(strings.Join(lines, "\n"))
}

// Print prints a text unchanged, such as a command to paste.
func (t *Terminal) Print(text string) {
	if _, err := io.WriteString(t.Out, text); err != nil && t.broken == nil {
		t.broken = err
	}
}

// PrintClipped prints a line in a style, cut where the terminal ends.
func (t *Terminal) PrintClipped(style, line string) error {
	if plain, long := t.tooLong(line); long {
		line = safe.Cut(plain, t.edge())
	}
	_, err := fmt.Fprintln(t.Out, t.Style(style, line))
	return err
}

// PrintName prints an id on a line of its own.
func (t *Terminal) PrintName(id string) {
	if t.onScreen(t.Out) {
		t.Printf("%s\n", safe.Label(id))
		return
	}
	t.PrintValue(strings.ReplaceAll(id, "\n", safe.Text("\n")))
}

// PrintValue prints a text that is the whole result: on a terminal in a frame,
// for a program as it is but for what would steer a terminal.
func (t *Terminal) PrintValue(text string) {
	if t.onScreen(t.Out) {
		t.Printf("%s\n", t.Framed("", text))
		return
	}
	t.Printf("%s\n", safe.Piped(text))
}

// Note prints a line for the person to the standard error, wrapped to the terminal
// unless it holds a command to paste.
func (t *Terminal) Note(text string, paste bool) {
	if !paste && t.onScreen(t.Err) {
		text = strings.Join(safe.Wrap(text, t.WrapAt(safe.Cells(safe.Bar))), "\n"+safe.Bar)
	}
	fmt.Fprintln(t.Err, text)
}

// edge is how many columns the terminal has that Out is; 0 if it is none.
func (t *Terminal) edge() int {
	if t.onScreen(t.Out) {
		return t.Width()
	}
	return 0
}

// styles matches what Style adds to a text.
var styles = regexp.MustCompile(`\x1b\[\d*m`)

// tooLong reports whether a line is too long for the terminal, and returns it
// without its styles.
func (t *Terminal) tooLong(line string) (plain string, long bool) {
	plain = styles.ReplaceAllString(line, "")
	return plain, t.edge() > 0 && safe.Cells(plain) > t.edge()
}

// onScreen reports whether a stream is a terminal, whatever is printed to it.
func (t *Terminal) onScreen(stream any) bool { return t.Forced || IsTerminal(stream) }

// Live reports whether a person watches what is written to w, so that it may have
// colours and change in place.
func (t *Terminal) Live(w io.Writer) bool {
	if t.Plain || t.JSON || t.Env("NO_COLOR") != "" || t.Env("TERM") == "dumb" {
		return false
	}
	return t.onScreen(w)
}

// IsTerminal reports whether a stream is a file that is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width is how many columns a line has; 0 if that does not matter.
func (t *Terminal) Width() int {
	if t.Forced {
		return cmp.Or(t.Columns, 100)
	}
	for _, w := range []io.Writer{t.Out, t.Err} {
		if f, ok := w.(*os.File); ok {
			if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
				return max(width, 20)
			}
		}
		if w == t.Out && !t.Live(t.Err) {
			break
		}
	}
	return 0
}

// Height is how many lines a screen has; 0 if that does not matter.
func (t *Terminal) Height() int {
	if t.Forced {
		return t.Lines
	}
	if f, ok := t.Out.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil {
			return height
		}
	}
	return 0
}

// Room is how many columns a value may take in a line of which so many are used.
func (t *Terminal) Room(used int) int { return max(cmp.Or(t.Width(), 200)-used, 8) }

// WrapAt is how many columns a line has beside those that are used; 0 if it need
// not be wrapped.
func (t *Terminal) WrapAt(used int) int {
	if t.Width() == 0 {
		return 0
	}
	return max(t.Width()-used, 8)
}

// Frame is [safe.Frame] within this terminal.
func (t *Terminal) Frame(margin, text string, most int) (framed string, hidden int) {
	return safe.Frame(margin, text, t.Width(), most)
}

// Framed is all of a text in its frame.
func (t *Terminal) Framed(margin, text string) string {
	out, _ := t.Frame(margin, text, 0)
	return out
}

// Paragraph is a message that others may have written, and what to do, which they
// have not. Lines after the first are framed, indented by the width of the prefix
// that the first line is printed after.
func (t *Terminal) Paragraph(prefix, text, next string) string {
	margin := strings.Repeat(" ", safe.Cells(prefix))
	first, rest, _ := strings.Cut(text, "\n")
	first = safe.Line(first)
	if rest == "" && next != "" && (t.Width() == 0 || safe.Cells(prefix+first+"; "+next) <= t.Width()) {
		return first + "; " + next
	}
	out := strings.Join(safe.Wrap(first, t.WrapAt(safe.Cells(prefix+safe.Bar))), "\n"+margin+safe.Bar)
	if rest != "" {
		out += "\n" + t.Framed(margin, rest)
	}
	if next != "" {
		out += "\n" + next
	}
	return out
}

// The styles of a terminal.
const (
	Bold  = "1"
	Dim   = "2"
	Red   = "31"
	Green = "32"
	Amber = "33"
	Blue  = "34"
)

// Style colours a text that is printed to Out, if that is a terminal.
func (t *Terminal) Style(style, text string) string {
	if style == "" || text == "" || !t.Live(t.Out) {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// Table prints rows in columns; the first row is the heading. Cells are cut so that
// rows fit the terminal. Style gives the style of a cell by its text.
func (t *Terminal) Table(rows [][]string, style func(string) string) error {
	var widths []int
	for i, row := range rows {
		rows[i] = make([]string, len(row))
		for j, cell := range row {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			rows[i][j] = safe.Cut(safe.Line(cell), 200)
			widths[j] = max(widths[j], safe.Cells(rows[i][j]))
		}
	}
	fit(widths, t.Width())
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			with := Bold
			if i > 0 {
				with = style(cell)
			}
			cell = safe.Cut(cell, widths[j])
			line.WriteString(t.Style(with, cell))
			if j < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[j]-safe.Cells(cell)+2))
			}
		}
		if err := t.PrintClipped("", strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// fit narrows the widest columns until all fit a width; 0 is any. The first column holds
// ids, which are to be pasted: it is narrowed only if it leaves no room for another.
func fit(widths []int, width int) {
	for width > 0 {
		sum, widest := 2*(len(widths)-1), 0
		for i, w := range widths {
			if sum += w; w > widths[widest] || widest == 0 && i > 0 && widths[0] <= width-10 {
				widest = i
			}
		}
		if sum <= width || widths[widest] <= 8 {
			return
		}
		widths[widest] -= min(sum-width, max(1, widths[widest]/8))
	}
}

// Clock is the present.
func (t *Terminal) Clock() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

// When is a point in time as people read it: today's without the date.
func (t *Terminal) When(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	now := t.Clock()
	at = at.In(now.Location())
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format("2006-01-02 15:04")
}

// Length is a duration as people read it.
func Length(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Count is a number of things.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Screen is the end of a terminal: lines that stay, and below them a block that is
// drawn again and again. Without Live there are only lines that stay.
type Screen struct {
	Out   io.Writer
	Live  bool
	Drawn int // lines of the block
}

// Print writes lines that stay.
func (s *Screen) Print(text string) {
	s.Clear()
	fmt.Fprintln(s.Out, text)
}

// Draw draws the block below. Each line has to fit.
func (s *Screen) Draw(lines []string) {
	if s.Live {
		text := s.erase() + strings.Join(lines, "\n") + "\n"
		s.Drawn = len(lines)
		io.WriteString(s.Out, text)
	}
}

// Clear removes the block.
func (s *Screen) Clear() {
	if s.Drawn > 0 {
		io.WriteString(s.Out, s.erase())
		s.Drawn = 0
	}
}

// erase goes to the block's beginning and empties it.
func (s *Screen) erase() string {
	if s.Drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", s.Drawn)
}
