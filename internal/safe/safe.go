// Package safe makes text that models, tools, servers and people have written
// safe to print, and measures it in the columns of a terminal. It imports nothing
// of Perdure.
//
// Such text reaches a terminal in one of these forms, and in no other: [Text] and
// [Line] as a part of a line of ours, [Label] and [Name] as a name in it, [Frame]
// as lines of its own, and [JSON]. All of them are built on Text, which decides
// about each character. Text inside a line of ours is [Cut] to what is left of it,
// so that the terminal does not continue it at the margin.
package safe

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// marks is how many combining characters one character may carry.
const marks = 4

// Steers reports whether a character controls the terminal, reorders the text
// around it, or is invisible.
func Steers(c rune) bool {
	switch {
	case c < 0x7f:
		return c < ' '
	case c == 0x2800, c == 0x1d159: // of braille and of music, both empty
		return true
	}
	return !unicode.IsPrint(c) || unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// combines reports whether a character is drawn over the one before it.
func combines(c rune) bool {
	return unicode.Is(unicode.M, c) || c >= 0x1160 && c <= 0x11ff || c >= 0xd7b0 && c <= 0xd7ff // of Hangul
}

// Text makes a text fit to be part of a line: a character that steers the
// terminal is written as its code, such as <U+202E>. Characters that only select
// or join the shapes of their neighbours, as in emoji and some scripts, are left
// out.
func Text(s string) string {
	if !strings.ContainsFunc(s, func(c rune) bool { return c > '~' || c < ' ' }) {
		return s
	}
	var out strings.Builder
	carried := marks // the limit, since nothing precedes that could carry one
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
		case Steers(c), combines(c) && carried >= marks:
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

// Line is a text as part of a line, with each run of white space as one space.
func Line(s string) string { return Text(strings.Join(strings.Fields(s), " ")) }

// LabelCells is how many columns a name may take that is not a plain word.
const LabelCells = 24

var plainWord = regexp.MustCompile(`^[\w.:@/+=~-]+$`)

// Label is an id in a line: unchanged if it is a plain word, otherwise cut to
// [LabelCells].
func Label(id string) string {
	if plainWord.MatchString(id) {
		return id
	}
	return Cut(Name(id), LabelCells)
}

// oddSpace matches spaces that a reader cannot count or tell apart: leading and
// trailing ones, several in a row, and all but the ordinary one.
var oddSpace = regexp.MustCompile(`^\s+|\s+$|\s{2,}|[\t-\r\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]`)

// Name is an id that no other id looks like because of its spaces: odd ones are
// written as <U+0020>.
func Name(id string) string {
	return Line(oddSpace.ReplaceAllStringFunc(id, func(spaces string) string {
		out := ""
		for _, c := range spaces {
			out += fmt.Sprintf("<U+%04X>", c)
		}
		return out
	}))
}

// JSON writes the characters of a JSON text that [Text] would not let pass as
// escapes, which mean the same.
func JSON(s string) string {
	if !strings.ContainsFunc(s, func(c rune) bool { return Steers(c) || c > '~' }) {
		return s
	}
	var out strings.Builder
	carried := marks
	for _, c := range s {
		mark := combines(c)
		switch {
		case c == '\n', !Steers(c) && !(mark && carried >= marks):
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

// Cells is how many columns of a terminal a text takes.
func Cells(s string) int {
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

// Cut shortens a text to n columns; 0 leaves it as it is.
func Cut(s string, n int) string {
	if n <= 0 || Cells(s) <= n {
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

// Pad fills a text with spaces to n columns.
func Pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-Cells(s))) }

// Wrap breaks a line into lines of at most that many columns, at spaces where it
// can; 0 leaves it as it is.
func Wrap(line string, columns int) []string {
	if columns <= 0 {
		return []string{line}
	}
	var out []string
	for Cells(line) > columns {
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

// Bar stands before each line of a [Frame].
const Bar = "│ "

// Frame is a text in lines of its own, each behind a margin and a bar, within that
// many columns; 0 does not break them. At most that many lines are shown, 0 for
// all; hidden is how many are not.
func Frame(margin, text string, columns, most int) (framed string, hidden int) {
	if columns > 0 {
		columns = max(columns-Cells(margin+Bar), 8)
	}
	var all []string
	for _, line := range lines(text) {
		all = append(all, Wrap(Text(strings.ReplaceAll(line, "\t", "    ")), columns)...)
	}
	if most > 0 && len(all) > most {
		hidden = len(all) - most
		all = all[:most]
	}
	for i, line := range all {
		all[i] = strings.TrimRight(margin+Bar+line, " ")
	}
	return strings.Join(all, "\n"), hidden
}

// lines are the lines of a text.
func lines(text string) []string {
	return strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
}

// Piped is a text for a program: unchanged but for characters that would steer a
// terminal if it ended up on one.
func Piped(text string) string {
	var out strings.Builder
	for _, c := range strings.Join(lines(text), "\n") {
		if c != '\n' && c != '\t' && unicode.In(c, unicode.Cc, unicode.Bidi_Control) {
			fmt.Fprintf(&out, "<U+%04X>", c)
			continue
		}
		out.WriteRune(c)
	}
	return out.String()
}

// Argument is a text as one word of a shell command to paste. One that is not a
// plain word is cut to [LabelCells], so that it does not fill lines of its own.
func Argument(text string) string {
	if !plainWord.MatchString(text) {
		text = Cut(text, LabelCells)
	}
	return Quote(text)
}

// Quote is a text as one word of a shell.
func Quote(text string) string {
	text = Text(text)
	if bareWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// bareWord matches a word that no shell needs quotes for.
var bareWord = regexp.MustCompile(`^[\w./:@%+=,-]+$`)

// NotUTF8Error reports a text that is not UTF-8, which JSON would change silently.
type NotUTF8Error struct{ What, Text string }

func (e *NotUTF8Error) Error() string {
	return fmt.Sprintf("%s is not UTF-8: %.40q; convert it first, for example with iconv", e.What, e.Text)
}

// CheckUTF8 returns a [NotUTF8Error] if a text is not UTF-8. What names the text.
func CheckUTF8(what, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return &NotUTF8Error{what, text}
}
