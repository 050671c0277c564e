package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// pretty is JSON as people read it: a text as it is, other values over lines. It
// is for frame and data, which make it safe.
func pretty(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && len(value) > 0 && value[0] == '"' {
		return text
	}
	var out bytes.Buffer
	if json.Indent(&out, value, "", "  ") != nil {
		return string(value)
	}
	return safe.JSON(out.String())
}

// brief is a value in one line: of a message who says what.
func brief(value json.RawMessage) string {
	if len(value) == 0 {
		return ""
	}
	var r agent.Record
	if value[0] == '{' && json.Unmarshal(value, &r) == nil && r.ID != "" && r.Message.Role != "" {
		return safe.Line(string(r.Message.Role)) + ": " + safe.Line(spoken(r.Said()))
	}
	if !json.Valid(value) {
		return safe.Line(string(value))
	}
	return safe.JSON(compact(value))
}

// spoken is what a message says, and which tools it calls.
func spoken(m llm.Message) string {
	var parts []string
	for _, p := range m.Parts {
		switch {
		case p.Text != "":
			parts = append(parts, p.Text)
		case p.Call != nil:
			parts = append(parts, fmt.Sprintf("calls %s %s", p.Call.Name, p.Call.Args))
		case p.Result != nil:
			parts = append(parts, fmt.Sprintf("%s returns %s", p.Result.Name, p.Result.Text))
		case p.Media != nil:
			parts = append(parts, "(media)")
		}
	}
	return strings.Join(parts, "\n")
}

// amounts lists what was spent by unit.
func amounts(spent map[string]int64) string {
	var parts []string
	for _, unit := range slices.Sorted(maps.Keys(spent)) {
		parts = append(parts, fmt.Sprintf("%d %s", spent[unit], unit))
	}
	return safe.Line(strings.Join(parts, ", "))
}

// styleOf is the style of a status.
func styleOf(status string) string {
	switch status {
	case "succeeded", "answered":
		return terminal.Green
	case "failed", "blocked", "quarantined", "damaged":
		return terminal.Red
	case "suspended", "paused", "open":
		return terminal.Amber
	case "running", "queued":
		return terminal.Blue
	case "cancelled", "expired", "closed":
		return terminal.Dim
	}
	return ""
}
