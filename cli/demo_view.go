package cli

import (
	"encoding/json"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// demoWidth is where lines of the story are broken.
const demoWidth = 76

// demoView shows what an agent does, as it does it.
type demoView struct {
	*app
	shown  map[string]string // what was shown of a reply on its way, by path
	last   string            // path of the reply whose line is not ended
	column int
	space  bool // one is to be printed before the next word
}

// say prints a line.
func (v *demoView) say(style, text string) {
	v.endLine()
	if style != "" {
		text = v.style(style, text)
	}
	v.printf("%s\n", text)
}

// endLine ends the line of a reply on its way.
func (v *demoView) endLine() {
	if v.last != "" {
		v.printf("\n")
		v.last, v.space = "", false
	}
}

// delta shows a piece of a reply, and returns how much of the reply was shown.
func (v *demoView) delta(d *perdure.DeltaEvent) int {
	var piece llm.Delta
	if json.Unmarshal(d.Data, &piece) != nil || piece.Text == "" {
		return 0
	}
	if d.Path != v.last {
		v.endLine()
		v.last = d.Path
		v.shown[d.Path] = "" // what another process showed of it is void
		v.printf("  ")
		v.column = 2
	}
	v.shown[d.Path] += piece.Text
	v.write(piece.Text)
	return len(v.shown[d.Path])
}

// write prints text, broken into lines at spaces. A space is printed with the
// word behind it.
func (v *demoView) write(text string) {
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			v.printf("\n  ")
			v.column, v.space = 2, false
		}
		v.writeLine(printable(line))
	}
}

func (v *demoView) writeLine(line string) {
	var b strings.Builder
	for i, c := range line {
		if c == ' ' {
			v.space = true
			continue
		}
		if v.space && v.column+1+wordLength(line[i:]) > demoWidth {
			b.WriteString("\n  ")
			v.column = 2
		} else if v.space {
			b.WriteByte(' ')
			v.column++
		}
		b.WriteRune(c)
		v.column += cell(c)
		v.space = false
	}
	v.printf("%s", b.String())
}

// wordLength is how much comes before the next space; of a word that is not
// whole yet a bit more is expected.
func wordLength(text string) int {
	word, _, whole := strings.Cut(text, " ")
	n := cells(word)
	if !whole {
		n += 4
	}
	return n
}

// event shows what is recorded of a step.
func (v *demoView) event(e *perdure.Event) {
	switch {
	case e.Kind == "attempt":
		v.say(amber, "  "+printable(e.Path)+" failed, and is tried again: "+shorten(e.Error, 100))
		return
	case e.Kind != "step":
		return
	case e.Error != "":
		v.say(red, "  "+printable(e.Path)+" failed: "+shorten(e.Error, 100))
		return
	}
	var r agent.Record
	if json.Unmarshal(e.Value, &r) != nil || r.ID == "" {
		return // it is no message: it holds other steps
	}
	switch r.Message.Role {
	case llm.RoleAssistant:
		text := r.Message.Text()
		switch shown := v.shown[e.Path]; {
		case text == shown:
		case v.last == e.Path && strings.HasPrefix(text, shown):
			v.write(text[len(shown):])
		default: // some of it was missed
			v.endLine()
			v.last, v.column = e.Path, 2
			v.printf("  ")
			v.write(text)
		}
		v.endLine()
		delete(v.shown, e.Path)
		for _, p := range r.Message.Parts {
			if p.Call != nil {
				v.say("", "    "+v.style(blue, "→ "+printable(p.Call.Name))+"  "+v.style(dim, gist(p.Call.Args)))
			}
		}
	case llm.RoleTool:
		for _, p := range r.Message.Parts {
			if p.Result != nil {
				v.say("", "    "+v.style(green, "✓ "+printable(p.Result.Name))+"  "+v.style(dim, shorten(p.Result.Text, 56)))
			}
		}
	}
}

// gist is what arguments say, in a few words.
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
			words = append(words, number(len(v), strings.TrimSuffix(key.(string), "s"), key.(string)))
		case bool: // says little without its name
		default:
			words = append(words, jsonText(v))
		}
	}
	return shorten(strings.Join(words, ", "), 60)
}

func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(data)
}

// shorten returns the first line of a text, and not too much of it.
func shorten(text string, most int) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = printable(line)
	if rest != "" && cells(line) <= most {
		return line + " …"
	}
	return cut(line, most)
}
