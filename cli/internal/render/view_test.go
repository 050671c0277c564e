package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/terminal/terminaltest"
	"github.com/perdure/perdure/llm"
)

func record(path string, m llm.Message) *perdure.Event {
	value, _ := json.Marshal(agent.Record{ID: "r" + path, Agent: "clerk", Message: m})
	return &perdure.Event{Kind: "step", Path: path, Value: value}
}

func delta(path string, attempt int, text string) *perdure.DeltaEvent {
	data, _ := json.Marshal(llm.Delta{Text: text})
	return &perdure.DeltaEvent{Path: path, Attempt: attempt, Data: data}
}

func TestTheViewShowsWhatIsWrittenUntilItIsRecorded(t *testing.T) {
	var sent bytes.Buffer
	now := noon
	a := testTerminal(terminal.Terminal{Out: &sent, Err: &sent, Forced: true, Now: func() time.Time { return now }})
	v := NewView(a, false)
	show := func(u client.Update) []string {
		v.Update(u)
		v.Draw()
		return terminaltest.Screen(t, sent.String())
	}
	has := func(rows []string, text string) bool { return strings.Contains(strings.Join(rows, "\n"), text) }
	show(client.Update{Event: &perdure.Event{Kind: "claimed", Worker: "one"}})
	show(client.Update{Event: &perdure.Event{Kind: "planned", Path: "/#plan", Plan: []string{"first", "second"}}})
	now = now.Add(5 * time.Second)
	if rows := show(client.Update{Delta: delta("/first/reply", 1, "Half a \x1b[2Jthou")}); !has(rows, "thou") || !has(rows, "step 1 of 2: first · /first/reply  5s") {
		t.Errorf("what is written is not shown: %q", rows)
	}
	if rows := show(client.Update{Delta: delta("/first/reply", 2, "Another")}); has(rows, "thou") || !has(rows, "Another") {
		t.Errorf("a new attempt does not void the old: %q", rows)
	}
	if rows := show(client.Update{Delta: delta("/first/reply", 1, "late")}); has(rows, "late") {
		t.Errorf("a piece of an old attempt is shown: %q", rows)
	}
	taken := delta("/first/reply", 1, "Taken over") // by another worker
	taken.Pass = 1
	if rows := show(client.Update{Delta: taken}); has(rows, "Another") || !has(rows, "Taken over") {
		t.Errorf("a new pass does not void the old: %q", rows)
	}
	taken.Offset = 2
	if rows := show(client.Update{Delta: taken}); has(rows, "overTaken") {
		t.Errorf("a piece is shown behind one that is missing: %q", rows)
	}
	v.Todos = []agent.Todo{{Content: "look", Status: agent.TodoInProgress}}
	if rows := show(client.Update{Event: record("/first/reply", llm.Assistant("The whole \x9bthought."))}); has(rows, "Another") || !has(rows, "thought.") || !has(rows, "[>] look") {
		t.Errorf("what is recorded does not stand for what was written: %q", rows)
	}
	if rows := show(client.Update{Delta: delta("/first/reply", 2, "too late")}); has(rows, "too late") {
		t.Errorf("a piece of a recorded reply is shown: %q", rows)
	}
	show(client.Update{Event: &perdure.Event{Kind: "step", Path: "/first", ValueOf: 3}})
	if rows := show(client.Update{Event: &perdure.Event{Kind: "claimed", Worker: "two"}}); !has(rows, "the worker was lost") || !has(rows, "step 2 of 2: second") {
		t.Errorf("a lost worker is not told: %q", rows)
	}
	v.Screen.Clear()
	want := []string{"plan: first, second", "│ The whole \ufffdthought.", "✓ /first", "! the worker was lost, and another one goes on", ""}
	if diff := cmp.Diff(want, terminaltest.Screen(t, sent.String())); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
}

func TestLinesFitTheTerminal(t *testing.T) {
	var sent bytes.Buffer
	a := testTerminal(terminal.Terminal{Out: &sent, Err: &sent, Forced: true})
	v := NewView(a, false)
	long := strings.Repeat("word ", 200) + strings.Repeat("x", 500)
	v.Update(client.Update{Event: &perdure.Event{Kind: "planned", Plan: []string{long}}})
	v.Update(client.Update{Delta: delta("/"+long, 1, long)})
	for i := range 20 {
		v.Todos = append(v.Todos, agent.Todo{Content: fmt.Sprint(i, long)})
	}
	v.Draw()
	for _, row := range terminaltest.Screen(t, sent.String()) {
		if n := safe.Cells(row); n > a.Width() {
			t.Errorf("a line has %d characters, and the terminal %d: %q", n, a.Width(), row)
		}
	}
	if v.Screen.Drawn > 24 {
		t.Errorf("the block has %d lines", v.Screen.Drawn)
	}
	sent.Reset()
	if err := a.Table([][]string{{"A", "B"}, {"x", long}, {long, "y"}}, StatusStyle); err != nil {
		t.Fatal(err)
	}
	for _, row := range terminaltest.Screen(t, sent.String()) {
		if n := safe.Cells(row); n > a.Width() {
			t.Errorf("a row has %d characters, and the terminal %d", n, a.Width())
		}
	}
}

func TestTheViewTellsOfFailedAttempts(t *testing.T) {
	var out bytes.Buffer
	a := testTerminal(terminal.Terminal{Out: &out, Err: &out, Forced: true, Now: func() time.Time { return noon }})
	v := NewView(a, false)
	for _, e := range []perdure.Event{{Kind: "claimed"}, {Kind: "attempt", Path: "/call", Attempt: 2, Attempts: 5, Due: noon.Add(time.Minute), Error: "connection refused"}, {Kind: "suspended"}} {
		v.Update(client.Update{Event: &e})
	}
	v.Draw()
	if rows := strings.Join(terminaltest.Screen(t, out.String()), "\n"); !strings.Contains(rows, "attempt 3 of 5 at 12:01:00: connection refused ·") || strings.Contains(rows, "for a worker") {
		t.Errorf("it says:\n%s", rows)
	}
	out.Reset()
	v.Update(client.Update{Event: &perdure.Event{Kind: "fired", Path: "/call"}})
	if v.Draw(); !strings.Contains(out.String(), "waiting for a worker") {
		t.Errorf("it says:\n%s", out.String())
	}
}

// testTerminal is a terminal with an empty environment.
func testTerminal(t terminal.Terminal) *terminal.Terminal {
	t.Env = func(string) string { return "" }
	return &t
}
