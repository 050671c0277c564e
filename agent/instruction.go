package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/perdure/perdure"
)

var placeholder = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_.:/-]*)(\??)\}`)

// fillIn replaces the placeholders of an instruction. Braces around anything
// else stay as they are.
func fillIn(text string, get func(key string) (string, bool, error)) (string, error) {
	var first error
	out := placeholder.ReplaceAllStringFunc(text, func(m string) string {
		parts := placeholder.FindStringSubmatch(m)
		v, ok, err := get(parts[1])
		switch {
		case err != nil && first == nil:
			first = err
		case !ok && parts[2] == "" && first == nil:
			first = fmt.Errorf("%w: the instruction needs the state %q, which is not there; write {%s?} if it may be missing", ErrOption, parts[1], parts[1])
		}
		return v
	})
	return out, first
}

// instruction returns the instruction with the state filled in.
func (a *modelAgent) instruction(ctx context.Context) (string, error) {
	if !strings.Contains(a.Instruction, "{") {
		return a.Instruction, nil
	}
	return fillIn(a.Instruction, func(key string) (string, bool, error) {
		raw, ok, err := perdure.NewState[json.RawMessage](key).Lookup(ctx)
		if err != nil || !ok {
			return "", false, err
		}
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return text, true, nil
		}
		return string(raw), true, nil
	})
}
