package openai

import (
	"encoding/json"
	"errors"
	"strconv"
)

// pieces reads a text that comes as several JSON strings. Servers that cut it
// by UTF-16 cut a character in two: its first half waits for the second one.
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
	inner := p.half + raw[1:len(raw)-1]
	p.half = ""
	if n := len(inner) - 6; n >= 0 && highHalf(inner[n:]) && backslashes(inner[:n])%2 == 0 {
		inner, p.half = inner[:n], inner[n:]
	}
	var text string
	err := json.Unmarshal([]byte(`"`+inner+`"`), &text)
	return text, err
}

// rest returns the half that waits in vain.
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

// backslashes counts those at the end.
func backslashes(s string) int {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n
}
