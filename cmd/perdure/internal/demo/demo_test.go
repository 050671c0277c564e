package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/llm"
)

// TestDeedsAreCompared puts the two records of the demo side by side: process 1
// was killed after sequence 10, process 2 went on.
func TestDeedsAreCompared(t *testing.T) {
	step := func(seq uint64, path string) perdure.Event { return perdure.Event{Kind: "step", Seq: seq, Path: path} }
	all := func(e ...perdure.Event) []perdure.Event { return e }
	for _, test := range []struct {
		name   string
		events []perdure.Event
		starts string // process:path
		want   string // path process… note
		ok     bool
	}{
		{"as it has to be", all(step(5, "/a"), step(12, "/b"), step(13, "/c")), "1:/a 1:/b 2:/b 2:/c", "/a [1] |/b [1 2] in progress at the kill, so run again|/c [2] ", true},
		{"a step that was done is done again", all(step(5, "/a"), step(12, "/b")), "1:/a 2:/a 2:/b", "/a [1 2] REPEATED|/b [2] ", false},
		{"the first process repeats itself", all(step(5, "/a")), "1:/a 1:/a", "/a [1 1] REPEATED", false},
		{"the second process repeats itself", all(step(12, "/a")), "1:/a 2:/a 2:/a", "/a [1 2 2] REPEATED", false},
		{"a third process", all(step(12, "/a")), "3:/a", "/a [3] REPEATED", false},
		{"the dead one goes on", all(step(12, "/a")), "1:/a", "/a [1] REPEATED", false},
		{"recorded twice", all(step(5, "/a"), step(12, "/a")), "1:/a", "/a [1] recorded 2 times|/a [1] recorded 2 times", false},
		{"nobody did it", all(step(5, "/a")), "", "/a [] recorded, but not run", false},
		{"nobody recorded it", all(step(5, "/a")), "1:/a 2:/b", "/a [1] |/b [2] run, but not recorded", false},
		{"what holds others is code", all(step(5, "/a/x"), step(12, "/a/y"), step(13, "/a")), "1:/a 1:/a/x 2:/a 2:/a/y 2:/a", "/a/x [1] |/a/y [2] ", true},
		{"also if it holds only an ask", all(perdure.Event{Kind: "asked", Seq: 6, Path: "/a/ask"}, step(12, "/a")), "1:/a 2:/a 2:/a", "", true},
		{"names that begin alike", all(step(5, "/a"), step(6, "/ab")), "1:/a 1:/ab", "/a [1] |/ab [1] ", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var starts []begunStep
			for _, s := range strings.Fields(test.starts) {
				var b begunStep
				if _, err := fmt.Sscanf(s, "%d:%s", &b.PID, &b.Path); err != nil {
					t.Fatal(err)
				}
				starts = append(starts, b)
			}
			deeds, ok := compareDeeds(test.events, starts, 1, 2, 10)
			var got []string
			for _, d := range deeds {
				got = append(got, fmt.Sprintf("%s %v %s", d.path, d.pids, d.note))
			}
			if ok != test.ok || strings.Join(got, "|") != test.want {
				t.Errorf("it finds %v %q, want %v %q", ok, strings.Join(got, "|"), test.ok, test.want)
			}
		})
	}
}

// TestStepLog is written by several handles, and read in whole.
func TestStepLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	for i := range 3 {
		l, err := newStepLog(name)
		if err != nil {
			t.Fatal(err)
		}
		_, over := l.StepStarted(t.Context(), perdure.StepInfo{Path: fmt.Sprintf("/a step %d", i), Attempt: i + 1})
		over(nil)
		l.Committed(perdure.Event{Seq: 7})
		l.Committed(perdure.Event{Seq: 5})
		if l.seq.Load() != 7 {
			t.Errorf("it is at %d, want 7", l.seq.Load())
		}
		if err := l.file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readSteps(name)
	if err != nil || len(all) != 3 || all[2].Path != "/a step 2" || all[2].Attempt != 3 || all[2].PID != os.Getpid() {
		t.Errorf("the log has %+v, %v", all, err)
	}
	if err := os.WriteFile(name, []byte("{}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSteps(name); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("of nonsense it says %v", err)
	}
}

// newTestView returns a view, and what it has shown.
func newTestView() (*view, *bytes.Buffer) {
	var out bytes.Buffer
	return &view{term: &terminal.Terminal{Out: &out, Err: io.Discard, Env: func(string) string { return "" }}, shown: map[string]string{}}, &out
}

func deltaEvent(path, text string) *perdure.DeltaEvent {
	data, _ := json.Marshal(llm.Delta{Text: text})
	return &perdure.DeltaEvent{Path: path, Data: data}
}

func replyEvent(path, text string, calls ...llm.Call) *perdure.Event {
	m := llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{{Text: text}}}
	for _, c := range calls {
		m.Parts = append(m.Parts, llm.Part{Call: &c})
	}
	value, _ := json.Marshal(agent.Record{ID: path, Message: m})
	return &perdure.Event{Kind: "step", Path: path, Value: value}
}

// TestDemoShowsEachWordOnce, whether it came live, in part or not at all.
func TestDemoShowsEachWordOnce(t *testing.T) {
	for name, deltas := range map[string][]string{
		"live":         {"one ", "two", " three"},
		"the end lost": {"one "},
		"all lost":     nil,
	} {
		v, out := newTestView()
		for _, d := range deltas {
			v.delta(deltaEvent("/r", d))
		}
		v.event(replyEvent("/r", "one two three"))
		if got := out.String(); got != "  one two three\n" {
			t.Errorf("%s: it shows %q", name, got)
		}
	}
	v, out := newTestView()
	v.delta(deltaEvent("/r", "two")) // the beginning is lost
	v.event(replyEvent("/r", "one two"))
	if got := out.String(); got != "  two\n  one two\n" {
		t.Errorf("it shows %q", got)
	}
}

// TestDemoBreaksLines at spaces, however the text is cut into pieces.
func TestDemoBreaksLines(t *testing.T) {
	text := strings.TrimSpace(strings.Repeat("word and another ", 30))
	for size := 1; size < 40; size++ {
		v, out := newTestView()
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			v.delta(deltaEvent("/r", rest[:n]))
			rest = rest[n:]
		}
		v.event(replyEvent("/r", text))
		if got := strings.Join(strings.Fields(out.String()), " "); got != text {
			t.Fatalf("in pieces of %d it shows %q", size, got)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > width+8 || strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
				t.Errorf("in pieces of %d there is the line %q", size, line)
			}
		}
	}
}

// TestDemoIsSafe: what models and tools say does not steer the terminal.
func TestDemoIsSafe(t *testing.T) {
	v, out := newTestView()
	v.delta(deltaEvent("/r", "a\x1b[2Jb"))
	v.event(replyEvent("/r", "a\x1b[2Jb", llm.Call{Name: "x\x1b]0;y", Args: `{"q":"\u001b[31m","n":[1,2],"b":true,"f":1.5,"long":"` + strings.Repeat("x", 500) + `"}`}))
	v.event(&perdure.Event{Kind: "step", Path: "/p\x1b[1m", Error: "e\x1b[1m"})
	v.event(&perdure.Event{Kind: "step", Path: "/p", Value: json.RawMessage(`{"id":"x","message":{"role":"tool","parts":[{"result":{"name":"t\u0007","text":"\u001b[5m\nmore"}}]}}`)})
	if strings.ContainsAny(out.String(), "\x1b\x07") || !strings.Contains(out.String(), "2 n, 1.5") {
		t.Errorf("it shows %q", out.String())
	}
}

// TestDemoUnderstands what people type.
func TestDemoUnderstands(t *testing.T) {
	for line, want := range map[string]string{"a": "approve", " YES ": "approve", "reject too short": "reject", "n": "reject", "": "", "perhaps": ""} {
		got, ok := parseDecision(line)
		if got.Decision != want || ok != (want != "") {
			t.Errorf("%q is understood as %+v, %v", line, got, ok)
		}
	}
	if got, _ := parseDecision("reject too short"); got.Message != "too short" {
		t.Errorf("the remark is %q", got.Message)
	}
}
