package demo

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/llm"
)

// width is the column at which lines of the story are broken.
const width = 76

// view shows what an agent does while it does it.
type view struct {
	term   *terminal.Terminal
	shown  map[string]string // what was shown of an unfinished reply, by path
	last   string            // path of the reply whose line is still open
	column int
	space  bool // print a space before the next word
}

// say prints a line.
func (v *view) say(style, text string) {
	v.endLine()
	v.term.Printf("%s\n", v.term.Style(style, text))
}

// endLine ends the line of an unfinished reply.
func (v *view) endLine() {
	if v.last != "" {
		v.term.Printf("\n")
		v.last, v.space = "", false
	}
}

// delta shows a piece of a reply and returns how many bytes of the reply are shown.
func (v *view) delta(d *perdure.DeltaEvent) int {
	var piece llm.Delta
	if json.Unmarshal(d.Data, &piece) != nil || piece.Text == "" {
		return 0
	}
	if d.Path != v.last {
		v.endLine()
		v.last = d.Path
		v.shown[d.Path] = "" // what another process showed of it is void
		v.term.Printf("  ")
		v.column = 2
	}
	v.shown[d.Path] += piece.Text
	v.write(piece.Text)
	return len(v.shown[d.Path])
}

// write prints text, broken into lines at spaces. A space is printed together with
// the word after it.
func (v *view) write(text string) {
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			v.term.Printf("\n  ")
			v.column, v.space = 2, false
		}
		v.writeLine(safe.Text(line))
	}
}

func (v *view) writeLine(line string) {
	var b strings.Builder
	for i, c := range line {
		if c == ' ' {
			v.space = true
			continue
		}
		if v.space && v.column+1+wordLength(line[i:]) > width {
			b.WriteString("\n  ")
			v.column = 2
		} else if v.space {
			b.WriteByte(' ')
			v.column++
		}
		b.WriteRune(c)
		v.column += safe.Cells(string(c))
		v.space = false
	}
	v.term.Printf("%s", b.String())
}

// wordLength is how many columns come before the next space, and a few more if the
// word is not complete yet.
func wordLength(text string) int {
	word, _, whole := strings.Cut(text, " ")
	n := safe.Cells(word)
	if !whole {
		n += 4
	}
	return n
}

// event shows what is recorded of a step.
func (v *view) event(e *perdure.Event) {
	switch {
	case e.Kind == "attempt":
		v.say(terminal.Amber, "  "+safe.Text(e.Path)+" failed, and is tried again: "+shorten(e.Error, 100))
		return
	case e.Kind != "step":
		return
	case e.Error != "":
		v.say(terminal.Red, "  "+safe.Text(e.Path)+" failed: "+shorten(e.Error, 100))
		return
	}
	var r agent.Record
	if json.Unmarshal(e.Value, &r) != nil || r.ID == "" {
		return // not a message: a step that holds others
	}
	switch r.Message.Role {
	case llm.RoleAssistant:
		text := r.Message.Text()
		switch shown := v.shown[e.Path]; {
		case text == shown:
		case v.last == e.Path && strings.HasPrefix(text, shown):
			v.write(text[len(shown):])
		default: // some deltas were missed
			v.endLine()
			v.last, v.column = e.Path, 2
			v.term.Printf("  ")
			v.write(text)
		}
		v.endLine()
		delete(v.shown, e.Path)
		for _, p := range r.Message.Parts {
			if p.Call != nil {
				v.say("", "    "+v.term.Style(terminal.Blue, "→ "+safe.Text(p.Call.Name))+"  "+v.term.Style(terminal.Dim, gist(p.Call.Args)))
			}
		}
	case llm.RoleTool:
		for _, p := range r.Message.Parts {
			if p.Result != nil {
				v.say("", "    "+v.term.Style(terminal.Green, "✓ "+safe.Text(p.Result.Name))+"  "+v.term.Style(terminal.Dim, shorten(p.Result.Text, 56)))
			}
		}
	}
}

// gist sums up the arguments of a call in a few words.
func gist(args string) string {
	d := json.NewDecoder(strings.NewReader(args))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return shorten(args, 56)
	}
	var words []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		var v any
		if d.Decode(&v) != nil {
			break
		}
		switch v := v.(type) {
		case string:
			words = append(words, shorten(v, 40))
		case []any:
			words = append(words, terminal.Count(len(v), strings.TrimSuffix(key.(string), "s"), key.(string)))
		case bool: // says little without its name
		default:
			words = append(words, fmt.Sprint(v))
		}
	}
	return shorten(strings.Join(words, ", "), 60)
}

// shorten returns the first line of a text, cut to so many columns.
func shorten(text string, most int) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = safe.Text(line)
	if rest != "" && safe.Cells(line) <= most {
		return line + " …"
	}
	return safe.Cut(line, most)
}
