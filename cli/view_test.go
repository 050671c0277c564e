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
		case steers(c):
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
	a := &app{out: &sent, err: &sent, forced: true, env: func(string) string { return "" }, now: func() time.Time { return now }}
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
	v.clear()
	want := []string{"plan: first, second", "│ The whole \ufffdthought.", "✓ /first", "! the worker was lost, and another one goes on", ""}
	if diff := cmp.Diff(want, seen(t, sent.String())); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
}

func TestLinesFitTheTerminal(t *testing.T) {
	var sent bytes.Buffer
	a := &app{out: &sent, err: &sent, forced: true, env: func(string) string { return "" }}
	v := a.newView(false)
	long := strings.Repeat("word ", 200) + strings.Repeat("x", 500)
	v.update(client.Update{Event: &perdure.Event{Kind: "planned", Plan: []string{long}}})
	v.update(client.Update{Delta: delta("/"+long, 1, long)})
	for i := range 20 {
		v.todos = append(v.todos, agent.Todo{Content: fmt.Sprint(i, long)})
	}
	v.block()
	for _, row := range seen(t, sent.String()) {
		if n := cells(row); n > a.width() {
			t.Errorf("a line has %d characters, and the terminal %d: %q", n, a.width(), row)
		}
	}
	if v.drawn > 24 {
		t.Errorf("the block has %d lines", v.drawn)
	}
	sent.Reset()
	if err := a.table([][]string{{"A", "B"}, {"x", long}, {long, "y"}}); err != nil {
		t.Fatal(err)
	}
	for _, row := range seen(t, sent.String()) {
		if n := cells(row); n > a.width() {
			t.Errorf("a row has %d characters, and the terminal %d", n, a.width())
		}
	}
}

func TestNothingSteersTheTerminal(t *testing.T) {
	evil := "a\x1b[31mb\x07c\u009bd\u202ee\u2066f\rg\u2028h\ufeffi\x7fj\xffk\tl\nm"
	want := "a<U+001B>[31mb<U+0007>c<U+009B>d<U+202E>e<U+2066>f<U+000D>g<U+2028>h<U+FEFF>i<U+007F>j<FF>k<U+0009>l<U+000A>m"
	if got := printable(evil); got != want {
		t.Errorf("printable makes %q", got)
	}
	for text, want := range map[string]string{
		" a\n\tb\x1b ":                      "a b<U+001B>",
		"re\u200bject \U000e0061\U000e0062": "re<U+200B>ject <U+E0061><U+E0062>",
		"❤\ufe0f👩\u200d💻 1\ufe0f":           "❤👩💻 1<U+FE0F>",
		"❤\ufe0f\ufe0f\u200dx":              "❤<U+FE0F><U+200D>x",
		"می\u200cخواهم a\u200cb":            "میخواهم a<U+200C>b",
		"e\u0301\u0301\u0301\u0301\u0301":   "e\u0301\u0301\u0301\u0301<U+0301>",
		"\u0301x \u0301":                    "<U+0301>x <U+0301>",
		"a\u00a0b\u3000c\u3164\u2800":       "a b c<U+3164><U+2800>",
		"\ue000\ufdd0\uff21日本":              "<U+E000><U+FDD0>\uff21日本",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	for n, want := range map[int]string{0: "abcé", 2: "a…", 4: "abcé", 3: "ab…", 1: "…"} {
		if got := cut("abcé", n); got != want {
			t.Errorf("cut to %d is %q", n, got)
		}
	}
}

// What flows, models and people write comes out of every command as text.
func TestCommandsShowHostileTextsSafely(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		evil := "\x1b]0;owned\x07\u009b2J\u202eevil"
		p.run("", "run", "echo", evil, "--thread", "e", "--title", evil, "--metadata", evil+"="+evil).want(exitOK)
		p.run("", "run", "order", evil, "--thread", "o", "--title", evil).want(exitWaiting)
		p.run("", "run", "clerk", "pay 1 "+evil, "--thread", "c", "--watch").want(exitWaiting)
		p.run("", "memory", "put", "a/"+url(evil), evil).want(exitOK)
		for _, args := range [][]string{
			{"threads"}, {"show", "e"}, {"show", "o"}, {"show", "c", "--messages"}, {"events", "e"}, {"events", "o"}, {"asks"}, {"state", "o"}, {"state", "o", "note"},
			{"diff", "o", "2"}, {"memory", "list"}, {"run", "echo", evil}, {"run", "order", evil, "--watch"}, {"show", evil}, {"run", evil}, {"answer", evil, "--approve"},
			{"threads", "--json"}, {"show", "e", "--json"}, {"events", "o", "--json"}, {"asks", "--json"}, {"state", "o", "--json"}, {evil},
		} {
			r := p.run("", args...)
			for _, text := range []string{r.out, r.err} {
				if strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(text), steers) {
					t.Errorf("perdure %q prints %q", args, text)
				}
			}
			p.setUp = func(a *app) { a.forced = true }
			r = p.run("s\n", args...)
			p.setUp = nil
			seen(t, strings.ReplaceAll(r.out, "\t", " "))
		}
	})
}

func url(s string) string { return strings.ReplaceAll(s, "/", "%2F") }
