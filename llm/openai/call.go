package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/llm"
)

// call is a tool call that is being read.
type call struct {
	part   int
	id     string // as the server calls it
	told   bool   // its id was emitted
	name   string
	args   pieces
	opaque bool
}

// call handles a piece of a tool call. Pieces of one call have the same index; a
// server that gives all calls the same index tells them apart by id or name.
func (r *reply) call(p gjson.Result) error {
	var index, function, extra gjson.Result
	var id string
	for name, value := range members(p) {
		switch name {
		case "index":
			index = value
		case "id":
			id = value.String()
		case "function":
			function = value
		case "extra_content":
			extra = value
		}
	}
	var toolName, arguments string
	for name, value := range members(function) {
		switch name {
		case "name":
			toolName = value.String()
		case "arguments":
			arguments = value.Raw
		}
	}
	c := r.calls[index.Int()]
	if c == nil || id != "" && c.id != "" && id != c.id ||
		(index.Type == gjson.Null || index.Type == gjson.JSON) && id == "" && toolName != "" && c.name != "" {
		c = &call{part: r.part()}
		r.calls[index.Int()] = c
		r.inOrder = append(r.inOrder, c)
	}
	var out llm.Call
	if id != "" && c.id == "" {
		c.id = id
		out.ID = r.unique(id)
		c.told = true
	}
	if toolName != "" && c.name == "" { // some servers repeat it
		c.name = toolName
		out.Name = c.name
	}
	args, err := c.args.next(arguments)
	if err != nil {
		return nonsense("the arguments of a tool call in the stream are not a string")
	}
	out.Args = args
	d := llm.Delta{Part: c.part, Call: &out}
	// Gemini, behind a server that translates, puts the signature of its thought
	// here.
	if extra.Type != gjson.Null && !c.opaque {
		c.opaque = true
		d.Opaque = &llm.Opaque{Provider: provider, Data: extra.Raw}
	}
	if out == (llm.Call{}) && d.Opaque == nil && (c.told || c.name != "") {
		return nil
	}
	return r.emit(d)
}

// finishCall emits what is missing, such as the id of a call that has none.
func (r *reply) finishCall(c *call) error {
	if c.name == "" {
		return nonsense("the reply has a tool call without a name")
	}
	out := llm.Call{Args: c.args.rest()}
	if !c.told {
		out.ID = r.unique(fmt.Sprintf("call_%d", c.part))
	}
	if out == (llm.Call{}) {
		return nil
	}
	return r.emit(llm.Delta{Part: c.part, Call: &out})
}

// unique returns the id, changed if another call of the reply has it.
func (r *reply) unique(id string) string {
	try := id
	for n := 2; r.ids[try]; n++ {
		try = fmt.Sprintf("%s_%d", id, n)
	}
	r.ids[try] = true
	return try
}

// pieces reads a text that comes as several JSON strings. Servers that cut it by
// UTF-16 units can cut a character in two: its first half waits for the second.
type pieces struct {
	half string // `\ud83d`
}

// next returns the text of a string, null or nothing.
func (p *pieces) next(raw string) (string, error) {
	if raw == "" || raw == "null" || raw == `""` {
		return "", nil
	}
	if len(raw) < 2 || raw[0] != '"' {
		return "", errors.New("not a string")
	}
	if p.half == "" && strings.IndexByte(raw, '\\') < 0 && utf8.ValidString(raw) {
		return raw[1 : len(raw)-1], nil // as nearly all are
	}
	inner := p.half + raw[1:len(raw)-1]
	p.half = ""
	if n := len(inner) - 6; n >= 0 && highHalf(inner[n:]) {
		if escapes := n - len(strings.TrimRight(inner[:n], `\`)); escapes%2 == 0 {
			inner, p.half = inner[:n], inner[n:]
		}
	}
	var text string
	err := json.Unmarshal([]byte(`"`+inner+`"`), &text)
	return text, err
}

// rest returns what stands for a half without a second one.
func (p *pieces) rest() string {
	if p.half == "" {
		return ""
	}
	p.half = ""
	return "\uFFFD"
}

// highHalf reports whether an escape is the first half of a character.
func highHalf(escape string) bool {
	if escape[:2] != `\u` {
		return false
	}
	n, err := strconv.ParseUint(escape[2:], 16, 16)
	return err == nil && n >= 0xD800 && n < 0xDC00
}
