package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/llm"
	"pgregory.net/rapid"
)

func load(t *testing.T, text string) *Model {
	t.Helper()
	m, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ask(t *testing.T, m *Model, r *llm.Request) *llm.Reply {
	t.Helper()
	reply, err := llm.Collect(m.Generate(t.Context(), r))
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func user(text string) *llm.Request {
	return &llm.Request{Messages: []llm.Message{llm.User(text)}}
}

func results(list ...string) llm.Message {
	m := llm.Message{Role: llm.RoleTool}
	for i, s := range list {
		name, text, _ := strings.Cut(s, "=")
		m.Parts = append(m.Parts, llm.Part{Result: &llm.Result{Call: fmt.Sprint("c", i), Name: name, Text: text}})
	}
	return m
}

func TestTheScriptInTheDocumentationIsTheOneThatIsTested(t *testing.T) {
	want, err := os.ReadFile("testdata/desk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(strings.ReplaceAll(string(doc), "//\t", ""), "//\n", "\n")
	if !strings.Contains(plain, string(want)) {
		t.Error("the script in doc.go differs from testdata/desk.yaml")
	}
}

func TestTheFirstRuleThatFitsIsUsed(t *testing.T) {
	m := load(t, `
rules:
  - {when: {last: {equals: yes}}, text: equals}
  - {when: {last: yes}, text: contains}
  - {when: {last: {contains: a, regexp: 'b$'}}, text: both}
  - {when: {system: clerk, has: pay}, text: clerk who can pay}
  - {when: {system: {regexp: 'the (\w+)$'}}, text: 'system {{.Match 1}}'}
  - {when: {tool: lookup, turn: 1}, text: looked up}
  - {when: {role: tool, turn: 2+}, text: long}
  - {when: {role: assistant}, text: assistant}
  - {when: {replies: 1}, text: second}
default: {text: other}
`)
	a := llm.Assistant("a reply")
	for _, c := range []struct {
		want string
		r    llm.Request
	}{
		{"equals", *user("yes")},
		{"contains", *user("oh yes!")},
		{"both", *user("a b")},
		{"other", *user("a b c")},
		{"clerk who can pay", llm.Request{System: "the clerk ", Tools: []llm.Tool{{Name: "pay"}}, Messages: user("x").Messages}},
		{"system clerk", llm.Request{System: "You are the clerk", Messages: user("x").Messages}},
		{"looked up", llm.Request{Messages: []llm.Message{llm.User("x"), a, results("lookup=1")}}},
		{"looked up", llm.Request{Messages: []llm.Message{llm.User("x"), a, results("lookup=1", "other=2")}}},
		{"looked up", llm.Request{Messages: []llm.Message{llm.User("x"), a, results("lookup=1"), results("other=2")}}},
		{"looked up", llm.Request{Messages: []llm.Message{a, a, llm.User("x"), a, results("lookup=1")}}},
		{"second", llm.Request{Messages: []llm.Message{llm.User("x"), a, results("other=2")}}},
		{"long", llm.Request{Messages: []llm.Message{llm.User("x"), a, results("lookup=2"), a, results("lookup=1")}}},
		{"assistant", llm.Request{Messages: []llm.Message{llm.User("x"), a}}},
		{"second", llm.Request{Messages: []llm.Message{llm.User("x"), a, llm.User("x")}}},
		{"other", llm.Request{}},
	} {
		if got := ask(t, m, &c.r).Message.Text(); got != c.want {
			t.Errorf("%v: %q, want %q", valuesOf(&c.r), got, c.want)
		}
	}
}

func TestARepliesPartsComeInOrderAndFold(t *testing.T) {
	m := load(t, `
model: tiny
default:
  reasoning: thinking
  text: grüße
  chunks: 3
  calls:
    - {name: a, args: {z: 1, "y": [true, null, 1.50, 12345678901234567890, 2020-01-02], x: {}, w: '{{.Last}}'}}
    - {name: b}
    - {name: c, id: mine, args: 'not { json'}
`)
	var deltas []llm.Delta
	var texts []string
	for d, err := range m.Generate(t.Context(), user(`say "hi"`)) {
		if err != nil {
			t.Fatal(err)
		}
		deltas = append(deltas, d)
		if d.Text != "" {
			texts = append(texts, d.Text)
		}
	}
	if diff := cmp.Diff([]string{"gr", "üß", "e"}, texts); diff != "" {
		t.Error(diff)
	}
	if last := deltas[len(deltas)-1]; last.Stop != llm.StopCalls || last.Usage == nil {
		t.Errorf("the last delta is %+v", last)
	}
	want := &llm.Reply{
		Model: "tiny", ID: "reply-1", Stop: llm.StopCalls,
		Usage: llm.Usage{Input: 2, Output: 27, Reasoning: 2},
		Message: llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Reasoning: &llm.Reasoning{Text: "thinking"}},
			{Text: "grüße"},
			{Call: &llm.Call{ID: "call-1-0", Name: "a", Args: `{"z":1,"y":[true,null,1.50,12345678901234567890,"2020-01-02"],"x":{},"w":"say \"hi\""}`}},
			{Call: &llm.Call{ID: "call-1-1", Name: "b", Args: "{}"}},
			{Call: &llm.Call{ID: "mine", Name: "c", Args: "not { json"}},
		}},
	}
	got := ask(t, m, user(`say "hi"`))
	want.Usage.Output = got.Usage.Output
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Usage.Output < 20 {
		t.Errorf("an estimate of %d tokens for a long reply", got.Usage.Output)
	}
}

func TestJSONScriptsSayTheSame(t *testing.T) {
	m := load(t, "{\n\t\"rules\": [{\"when\": {\"last\": \"\\ud83d\\ude00\"}, \"calls\": [{\"name\": \"a\", \"args\": {\"b\": [1e3, \"\\/\"], \"c\": false}}]}]\n}")
	got := ask(t, m, user("😀")).Message.Calls()
	if diff := cmp.Diff([]llm.Call{{ID: "call-1-0", Name: "a", Args: `{"b":[1e3,"/"],"c":false}`}}, got); diff != "" {
		t.Error(diff)
	}
	_, err := Parse("s.json", []byte("{\n\t\"rules\": [\n\t\t{\"when\": {\"lst\": \"a\"},\n\t\t\"text\": 1}]}"))
	if err == nil || !strings.Contains(err.Error(), `s.json:3: when has no key "lst"; is last meant?`) {
		t.Error(err)
	}
}

func TestIdsOfCallsAreUniqueInAConversation(t *testing.T) {
	m := load(t, `default: {calls: [{name: a}, {name: a}]}`)
	r := user("go")
	seen := map[string]bool{}
	for i := range 20 {
		reply := ask(t, m, r)
		r.Messages = append(r.Messages, reply.Message)
		for _, c := range reply.Message.Calls() {
			if seen[c.ID] {
				t.Fatalf("the id %s comes twice", c.ID)
			}
			seen[c.ID] = true
		}
		if i == 10 { // a history policy drops what is old
			r.Messages = r.Messages[6:]
		}
	}
}

func TestAReplyFollowsFromTheRequestAlone(t *testing.T) {
	data, err := os.ReadFile("testdata/desk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), "times: 1", "when: {last: busy}", 1)
	text = strings.Replace(text, "delay: 5ms", "delay: 0s", 1)
	r := &llm.Request{System: "You are the clerk", Messages: []llm.Message{llm.User("refund order 7")}}
	first := ask(t, load(t, text), r)
	m := load(t, text)
	for range 3 {
		ask(t, m, user("something else"))
		if diff := cmp.Diff(first, ask(t, m, r)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestTimesIsCountedInTheModel(t *testing.T) {
	m := load(t, `
rules:
  - {times: 2, error: {kind: rate-limited, retry_after: 1m, status: 429, code: slow_down, message: too fast}}
default: {text: fine}
`)
	for range 2 {
		_, err := llm.Collect(m.Generate(t.Context(), user("x")))
		want := &llm.Error{Kind: llm.ErrRateLimited, Provider: "script", Status: 429, Code: "slow_down", Message: "too fast", RetryAfter: time.Minute}
		if e, ok := errors.AsType[*llm.Error](err); !ok || *e != *want {
			t.Errorf("%#v, want %#v", err, want)
		}
	}
	if got := ask(t, m, user("x")).Message.Text(); got != "fine" {
		t.Error(got)
	}
}

func TestErrorsOfEachKindStrikeAfterTheirPieces(t *testing.T) {
	for i, name := range kindNames {
		for after, want := range []string{"", "ab", "abcd", "abcd"} {
			m := load(t, fmt.Sprintf(`default: {text: [ab, cd], error: {kind: %s, after: %d}}`, name, after))
			var f llm.Fold
			var text string
			var failed error
			for d, err := range m.Generate(t.Context(), user("x")) {
				if failed != nil {
					t.Fatal("something comes after the error")
				}
				failed = err
				if err := f.Add(d); err != nil {
					t.Fatal(err)
				}
				text += d.Text
			}
			if !errors.Is(failed, kindErrors[i]) || text != want {
				t.Errorf("%s after %d: %q, %v", name, after, text, failed)
			}
		}
	}
}

func TestAReplyWithStopNoneIsCutOff(t *testing.T) {
	_, err := llm.Collect(load(t, `default: {text: half a, stop: none}`).Generate(t.Context(), user("x")))
	if !errors.Is(err, llm.ErrInterrupted) {
		t.Error(err)
	}
}

func TestDelaysAreWaitedForAndEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := load(t, `default: {text: abcd, chunks: 4, wait: 1s, delay: 10s}`)
		start := time.Now()
		var at []time.Duration
		for _, err := range m.Generate(t.Context(), user("x")) {
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, time.Since(start))
		}
		if diff := cmp.Diff([]time.Duration{1e9, 11e9, 21e9, 31e9, 31e9}, at); diff != "" {
			t.Error(diff)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		start = time.Now()
		_, err := llm.Collect(m.Generate(ctx, user("x")))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 15*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestARequestThatNoRuleFitsSaysWhatItWas(t *testing.T) {
	m := load(t, "rules:\n  - {name: greet, when: {last: hello}, text: hi}\n  - {when: {turn: 3}, text: hi}")
	_, err := llm.Collect(m.Generate(t.Context(), &llm.Request{System: "Be kind", Messages: []llm.Message{llm.User("good bye")}}))
	want := `llm: invalid request: script: test.yaml: no rule fits the request (last: "good bye", role: user, turn: 0, system: "Be kind"); the rules are: greet (line 2), line 3. Add one, or a default`
	if err == nil || err.Error() != want || !errors.Is(err, llm.ErrInvalid) {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	m = load(t, `default: {text: '{{.Result "lookup"}}'}`)
	_, err = llm.Collect(m.Generate(t.Context(), user("x")))
	want = `llm: invalid request: script: test.yaml: default: the request holds no result of the tool "lookup"`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

func TestTemplatesSeeTheRequest(t *testing.T) {
	m := load(t, `
rules:
  - when: {last: {regexp: '(a)(b)?'}}
    text: '{{.Match 0}}|{{.Match 1}}|{{if .Match 2}}b{{else}}no b{{end}}|{{.User}}|{{.System}}|{{.Turn}}|{{.Last}}|{{json .Last}}|{{.Result "t"}}|{{"{{"}}'
`)
	r := &llm.Request{System: "sys", Messages: []llm.Message{llm.User("q"), llm.Assistant("x"), results("t=old"), llm.Assistant("x"), results("t=<a>", "u=2")}}
	want := "a|a|no b|q|sys|2|<a>\n2|\"<a>\\n2\"|<a>|{{"
	if got := ask(t, m, r).Message.Text(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNewGivesRepliesInTurnAndThoseWithAWhenBetween(t *testing.T) {
	m := New(
		Say("first"),
		Reply{When: LastContains("help"), Text: "helping"},
		Reply{When: SystemContains("clerk"), Text: "clerk", Times: 1},
		Say("{{second}}"),
		Fail(llm.ErrTooLong),
	)
	r := user("a")
	say := func(want string) {
		t.Helper()
		if got := ask(t, m, r).Message.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	say("first")
	r.Messages = append(r.Messages, llm.Assistant("first"), llm.User("help"))
	say("helping")
	r.Messages[2] = llm.User("b")
	r.System = "clerk"
	say("clerk")
	say("{{second}}")
	r.Messages = append(r.Messages, llm.Assistant("x"))
	if _, err := llm.Collect(m.Generate(t.Context(), r)); !errors.Is(err, llm.ErrTooLong) {
		t.Error(err)
	}
	r.Messages = append(r.Messages, llm.Assistant("x"))
	if _, err := llm.Collect(m.Generate(t.Context(), r)); !errors.Is(err, llm.ErrInvalid) {
		t.Error(err)
	}
	if Turn(r) != 2 || Last(r) != "x" {
		t.Errorf("turn %d, last %q", Turn(r), Last(r))
	}
}

func TestRequestsAreRememberedAsTheyWere(t *testing.T) {
	m := New(Reply{When: func(*llm.Request) bool { return true }, Text: "x"})
	r := user("one")
	ask(t, m, r)
	r.Messages[0].Parts[0].Text = "changed"
	r.Messages[0] = llm.User("two")
	ask(t, m, r)
	var got []string
	for _, r := range m.Requests() {
		got = append(got, Last(&r))
	}
	if diff := cmp.Diff([]string{"one", "two"}, got); diff != "" {
		t.Error(diff)
	}
	m.Requests()[0].Messages[0].Parts[0].Text = "mine"
	if first := m.Requests()[0]; Last(&first) != "one" {
		t.Error("whoever lists requests changes them")
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range kept {
				if _, err := llm.Collect(m.Generate(t.Context(), r)); err != nil {
					t.Error(err)
				}
				if i%32 == 0 {
					m.Requests()
				}
			}
		})
	}
	wg.Wait()
	if m.Count() != 2+4*kept || len(m.Requests()) != kept {
		t.Errorf("%d requests, %d kept", m.Count(), len(m.Requests()))
	}
}

func TestWhatAScriptSaysAboutUsageAndStopIsGiven(t *testing.T) {
	for _, stop := range []llm.Stop{llm.StopEnd, llm.StopCalls, llm.StopLength, llm.StopRefused, llm.StopOther} {
		m := load(t, fmt.Sprintf("default: {stop: %s, usage: {input: 9, output: 8, cache_read: 3, cache_write: 2, reasoning: 1}}", stop))
		want := &llm.Reply{
			Message: llm.Message{Role: llm.RoleAssistant}, Model: "script", ID: "reply-1", Stop: stop,
			Usage: llm.Usage{Input: 9, Output: 8, CacheRead: 3, CacheWrite: 2, Reasoning: 1},
		}
		if diff := cmp.Diff(want, ask(t, m, user("x"))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestTextsAreCutIntoPiecesOfAboutTheSameLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n := rapid.String().Draw(t, "s"), rapid.IntRange(0, 20).Draw(t, "n")
		pieces := cut(s, n)
		if strings.Join(pieces, "") != s {
			t.Fatalf("%q becomes %q", s, pieces)
		}
		runes := utf8.RuneCountInString(s)
		if want := max(1, min(n, runes)); len(pieces) != want {
			t.Fatalf("%d pieces, want %d", len(pieces), want)
		}
		for _, p := range pieces {
			if c := utf8.RuneCountInString(p); c < runes/len(pieces) || c > runes/len(pieces)+1 || !utf8.ValidString(p) {
				t.Fatalf("the piece %q of %q", p, pieces)
			}
		}
	})
}
