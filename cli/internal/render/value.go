// Package render writes threads, runs and messages for people: values in a line or
// over lines, the history of a thread as trees of steps, and a run while it is
// executed. It imports the kernel, packages agent, llm and client, and
// internal/terminal.
package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/llm"
)

// Value is JSON as people read it: a string as its text, other values over lines.
// Print it only in a frame or as a whole result, which make it safe.
func Value(value json.RawMessage) string {
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

// Brief is a value in one line; a message is shown as who says what.
func Brief(value json.RawMessage) string {
	if len(value) == 0 {
		return ""
	}
	var r agent.Record
	if value[0] == '{' && json.Unmarshal(value, &r) == nil && r.ID != "" && r.Message.Role != "" {
		return safe.Line(string(r.Message.Role)) + ": " + safe.Line(Message(r.Said()))
	}
	if !json.Valid(value) {
		return safe.Line(string(value))
	}
	return safe.JSON(Compact(value))
}

// Message is what a message says, and which tools it calls.
func Message(m llm.Message) string {
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

// Amounts lists what was spent, by unit.
func Amounts(spent map[string]int64) string {
	var parts []string
	for _, unit := range slices.Sorted(maps.Keys(spent)) {
		parts = append(parts, fmt.Sprintf("%d %s", spent[unit], unit))
	}
	return safe.Line(strings.Join(parts, ", "))
}

// StatusStyle is the style of a status.
func StatusStyle(status string) string { return statusStyles[status] }

var statusStyles = map[string]string{
	"succeeded": terminal.Green, "answered": terminal.Green, "running": terminal.Blue, "queued": terminal.Blue,
	"failed": terminal.Red, "blocked": terminal.Red, "quarantined": terminal.Red, "damaged": terminal.Red,
	"suspended": terminal.Amber, "paused": terminal.Amber, "open": terminal.Amber,
	"cancelled": terminal.Dim, "expired": terminal.Dim, "closed": terminal.Dim,
}

// Compact is a value without insignificant spaces.
func Compact(value json.RawMessage) string {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return string(value)
	}
	return out.String()
}

// Call returns the tool and the arguments that an ask is about, or else everything
// that it shows.
func Call(data json.RawMessage) (tool string, args json.RawMessage) {
	var call struct {
		Tool string          `json:"tool"`
		Args json.RawMessage `json:"args"`
	}
	if json.Unmarshal(data, &call) == nil && call.Tool != "" && len(call.Args) > 0 {
		return call.Tool, call.Args
	}
	return "", data
}

// AskID is an ask's id as it is shown: the part after the thread's is enough to
// find it among the open ones.
func AskID(id string) string {
	if _, own, ok := strings.Cut(id, "."); ok && own != "" && !strings.HasPrefix(own, "-") {
		id = own
	}
	return safe.Label(id)
}

// Todo is a todo in a list.
func Todo(t agent.Todo) string {
	marks := map[agent.TodoStatus]string{agent.TodoInProgress: "[>]", agent.TodoCompleted: "[x]", agent.TodoCancelled: "[-]"}
	return cmp.Or(marks[t.Status], "[ ]") + " " + safe.Line(t.Content)
}
