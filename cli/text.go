package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// clock is the present.
func (a *app) clock() time.Time {
	if a.now != nil {
		return a.now()
	}
	return time.Now()
}

// when is a point in time as people read it: today's without the date.
func (a *app) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	now := a.clock()
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// length is a duration as people read it.
func length(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

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
	return escaped(out.String())
}

// brief is a value in one line: of a message who says what.
func brief(value json.RawMessage) string {
	if len(value) == 0 {
		return ""
	}
	var r agent.Record
	if value[0] == '{' && json.Unmarshal(value, &r) == nil && r.ID != "" && r.Message.Role != "" {
		return oneLine(string(r.Message.Role)) + ": " + oneLine(spoken(r.Said()))
	}
	if !json.Valid(value) {
		return oneLine(string(value))
	}
	return escaped(compact(value))
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
	return oneLine(strings.Join(parts, ", "))
}

// number is how many there are.
func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
