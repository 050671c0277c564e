package strict

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Encode returns the JSON of a value. A text that JSON would change silently is
// an error.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	raw := bytes.TrimSpace(b.Bytes())
	// Invalid UTF-8 is escaped as \ufffd; the character itself stands as it is.
	_, given := v.(json.RawMessage)
	plain := bytes.ReplaceAll(raw, []byte(`\\`), nil)
	if !given && bytes.Contains(plain, []byte(`\ufffd`)) {
		return nil, errors.New("a text in it is not valid UTF-8")
	}
	return raw, Text(raw)
}
