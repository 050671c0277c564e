package cli

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Text that models, tools, servers and people have written reaches a terminal in
// one of these forms, and in no other: printable and oneLine as a part of a line
// of ours, label as a name in it, frame as lines of its own, and escaped as JSON.
// Each is built on printable, which decides what a character may be. Whatever
// stands in a line of ours is cut to what is left of it (cut, short), so that the
// terminal does not go on with it at the margin.

// marks is how many combining characters one character may carry.
const marks = 4

// steers reports whether a character does something to the terminal or to the
// order of what stands around it, or cannot be seen.
func steers(c rune) bool {
	switch {
	case c < 0x7f:
		return c < ' '
	case c == 0x2800, c == 0x1d159: // of braille and of music, both empty
		return true
	}
	return !unicode.IsPrint(c) || unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// combines reports whether a character is drawn onto the one before it.
func combines(c rune) bool {
	return unicode.Is(unicode.M, c) || c >= 0x1160 && c <= 0x11ff || c >= 0xd7b0 && c <= 0xd7ff // of Hangul
}

// printable makes a text a part of a line: what steers a terminal or cannot be
// seen is written as <U+202E>. Characters that only choose or join the shapes of
// those around them, as emoji and some scripts need it, are left out.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(c rune) bool { return c > '~' || c < ' ' }) {
		return s
	}
	var out strings.Builder
	carried := marks // as many as it can be: there is nothing that could carry one
	before := rune(0)
	for i, c := range s {
		size := 1
		if c == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(s[i:])
		}
		switch {
		case c == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, "<%02X>", s[i])
			carried = marks
		case unicode.Is(unicode.Zs, c):
			out.WriteByte(' ')
			carried = marks
		case c == 0xfe0e || c == 0xfe0f, c == 0x200c || c == 0x200d:
			next, _ := utf8.DecodeRuneInString(s[i+3:])
			if looks := c >= 0xfe0e; picture(before) && (looks || picture(next)) || !looks && unicode.In(before, joined...) && unicode.In(next, joined...) {
				break
			}
			fallthrough
		case steers(c), combines(c) && carried >= marks:
			fmt.Fprintf(&out, "<U+%04X>", c)
			carried = marks
		case combines(c):
			carried++
			out.WriteRune(c)
		default:
			carried = 0
			out.WriteRune(c)
		}
		before = c
	}
	return out.String()
}

// picture reports whether a character may be an emoji, or a part of one.
func picture(c rune) bool { return unicode.In(c, unicode.So, unicode.Sk) && c > 0xff }

// joined are the scripts whose letters are joined or kept apart by characters of
// no width.
var joined = []*unicode.RangeTable{
	unicode.Arabic, unicode.Bengali, unicode.Devanagari, unicode.Gujarati, unicode.Gurmukhi, unicode.Kannada, unicode.Khmer,
	unicode.Malayalam, unicode.Myanmar, unicode.Oriya, unicode.Sinhala, unicode.Syriac, unicode.Tamil, unicode.Telugu,
}

// oneLine is a text as part of a line, with one space where it has several, or
// lines.
func oneLine(s string) string { return printable(strings.Join(strings.Fields(s), " ")) }

// nameCells is how many columns a name may have that is no plain word.
const nameCells = 24

var plainWord = regexp.MustCompile(`^[\w.:@/+=~-]+$`)

// label is a name in a line: an id that needs no quotes as it is, another one not
// longer than a line has room for.
func label(id string) string {
	if plainWord.MatchString(id) {
		return id
	}
	return cut(name(id), nameCells)
}

// oddSpace are the spaces of which a reader does not see which, or how many: those
// at an end, all but the first in a row, and any but the usual one.
var oddSpace = regexp.MustCompile(`^\s+|\s+$|\s{2,}|[\t-\r\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]`)

// name is an id of which no other one looks the same because of spaces: odd ones
// are written as <U+0020>.
func name(id string) string {
	return oneLine(oddSpace.ReplaceAllStringFunc(id, func(spaces string) string {
		out := ""
		for _, c := range spaces {
			out += fmt.Sprintf("<U+%04X>", c)
		}
		return out
	}))
}

// escaped writes the characters of JSON that printable would not let pass as
// escapes, which mean the same.
func escaped(s string) string {
	if !strings.ContainsFunc(s, func(c rune) bool { return steers(c) || c > '~' }) {
		return s
	}
	var out strings.Builder
	carried := marks
	for _, c := range s {
		mark := combines(c)
		switch {
		case c == '\n', !steers(c) && !(mark && carried >= marks):
			out.WriteRune(c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, c)
		}
		if carried++; !mark {
			carried = 0
		}
	}
	return out.String()
}

// cells is how many columns of a terminal a text takes.
func cells(s string) int {
	n := 0
	for _, c := range s {
		n += cell(c)
	}
	return n
}

func cell(c rune) int {
	if c < 0x300 {
		return 1
	}
	if unicode.In(c, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(c).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut shortens a text to so many columns.
func cut(s string, n int) string {
	if n <= 0 || cells(s) <= n {
		return s
	}
	room := n - 1
	for i, c := range s {
		if room -= cell(c); room < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// pad fills a text with spaces to so many columns.
func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-cells(s))) }

// wrap breaks a line into lines of so many columns, at spaces if it can. Without
// a width it stays one.
func wrap(line string, columns int) []string {
	if columns <= 0 {
		return []string{line}
	}
	var out []string
	for cells(line) > columns {
		room, end, space := max(columns, 2), 0, 0
		for i, c := range line {
			if room -= cell(c); room < 0 {
				if c == ' ' {
					space = i
				}
				break
			}
			if c == ' ' && i > 0 {
				space = i
			}
			end = i + utf8.RuneLen(c)
		}
		if space > 0 && strings.TrimLeft(line[:space], " ") != "" {
			out = append(out, strings.TrimRight(line[:space], " "))
			line = line[space+1:]
			continue
		}
		out = append(out, line[:end])
		line = line[end:]
	}
	return append(out, line)
}

// frameLeft stands before each line of a text that is not ours.
const frameLeft = "│ "

// frame is a text in lines of its own, each behind a margin and a bar. Not more
// than most lines are shown, 0 for all; hidden is how many are not.
func (a *app) frame(margin, text string, most int) (framed string, hidden int) {
	var all []string
	for _, line := range textLines(text) {
		all = append(all, wrap(printable(strings.ReplaceAll(line, "\t", "    ")), a.left(cells(margin+frameLeft)))...)
	}
	if most > 0 && len(all) > most {
		hidden = len(all) - most
		all = all[:most]
	}
	for i, line := range all {
		all[i] = strings.TrimRight(margin+frameLeft+line, " ")
	}
	return strings.Join(all, "\n"), hidden
}

// framed is all of a text in its frame.
func (a *app) framed(margin, text string) string {
	out, _ := a.frame(margin, text, 0)
	return out
}

// left is how many columns a line has behind so many; 0 if they do not matter.
func (a *app) left(used int) int {
	if a.width() == 0 {
		return 0
	}
	return max(a.width()-used, 8)
}

// printName prints a name that is all that a line gives.
func (a *app) printName(id string) {
	if a.forced || isTerminal(a.out) {
		a.printf("%s\n", label(id))
		return
	}
	a.data(strings.ReplaceAll(id, "\n", printable("\n")))
}

// textLines are the lines of a text.
func textLines(text string) []string {
	return strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
}

// data prints a value that is all that a command gives: to a terminal in its
// frame, to a program as it is but for what would steer a terminal after all.
func (a *app) data(text string) {
	if a.forced || isTerminal(a.out) {
		a.printf("%s\n", a.framed("", text))
		return
	}
	var out strings.Builder
	for _, c := range strings.Join(textLines(text), "\n") {
		if c != '\n' && c != '\t' && unicode.In(c, unicode.Cc, unicode.Bidi_Control) {
			fmt.Fprintf(&out, "<U+%04X>", c)
			continue
		}
		out.WriteRune(c)
	}
	a.printf("%s\n", out.String())
}
