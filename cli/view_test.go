package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/llm"
)

// seen is what a terminal shows after it was sent bytes: it knows what the view
// uses, and nothing else.
func seen(t testing.TB, sent string) []string {
	t.Helper()
	rows, at := []string{""}, 0
	for sent != "" {
		if rest, ok := strings.CutPrefix(sent, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(c rune) bool { return c >= '@' && c <= '~' })
			if end < 0 {
				t.Fatalf("a sequence has no end: %q", sent)
			}
			switch n, _ := strconv.Atoi(rest[:end]); rest[end] {
			case 'A':
				if at -= n; at < 0 {
					t.Fatalf("the view goes up further than there are lines")
				}
			case 'J':
				rows = append(rows[:at], "")
			case 'm':
			default:
				t.Fatalf("an unknown sequence: %q", sent[:end+3])
			}
			sent = rest[end+1:]
			continue
		}
		c, size := utf8.DecodeRuneInString(sent)
		sent = sent[size:]
		switch {
		case c == '\n':
			if at++; at == len(rows) {
				rows = append(rows, "")
			}
		case c == '\r':
		case safe.Steers(c):
			t.Fatalf("a character steers the terminal: %q", c)
		default:
			rows[at] += string(c)
		}
	}
	return rows
}

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
	a := testApp(terminal.Terminal{Out: &sent, Err: &sent, Forced: true, Now: func() time.Time { return now }})
	v := a.newView(false)
	show := func(u client.Update) []string {
		v.update(u)
		v.block()
		return seen(t, sent.String())
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
	v.todos = []agent.Todo{{Content: "look", Status: agent.TodoInProgress}}
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
	v.screen.Clear()
	want := []string{"plan: first, second", "│ The whole \ufffdthought.", "✓ /first", "! the worker was lost, and another one goes on", ""}
	if diff := cmp.Diff(want, seen(t, sent.String())); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
}

func TestLinesFitTheTerminal(t *testing.T) {
	var sent bytes.Buffer
	a := testApp(terminal.Terminal{Out: &sent, Err: &sent, Forced: true})
	v := a.newView(false)
	long := strings.Repeat("word ", 200) + strings.Repeat("x", 500)
	v.update(client.Update{Event: &perdure.Event{Kind: "planned", Plan: []string{long}}})
	v.update(client.Update{Delta: delta("/"+long, 1, long)})
	for i := range 20 {
		v.todos = append(v.todos, agent.Todo{Content: fmt.Sprint(i, long)})
	}
	v.block()
	for _, row := range seen(t, sent.String()) {
		if n := safe.Cells(row); n > a.term.Width() {
			t.Errorf("a line has %d characters, and the terminal %d: %q", n, a.term.Width(), row)
		}
	}
	if v.screen.Drawn > 24 {
		t.Errorf("the block has %d lines", v.screen.Drawn)
	}
	sent.Reset()
	if err := a.term.Table([][]string{{"A", "B"}, {"x", long}, {long, "y"}}, styleOf); err != nil {
		t.Fatal(err)
	}
	for _, row := range seen(t, sent.String()) {
		if n := safe.Cells(row); n > a.term.Width() {
			t.Errorf("a row has %d characters, and the terminal %d", n, a.term.Width())
		}
	}
}
