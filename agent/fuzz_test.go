package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure/llm"
	"pgregory.net/rapid"
)

type fuzzArgs struct {
	ID    string            `json:"id" schema:"minlen=1,maxlen=100"`
	Count int               `json:"count,omitempty" schema:"min=0,max=10"`
	Tags  []string          `json:"tags,omitempty" schema:"maxlen=3"`
	More  map[string]string `json:"more,omitempty"`
	Deep  *fuzzArgs         `json:"-"`
}

// FuzzToolArguments: nothing panics, what does not fit never reaches the
// function, and what the function gets is what an ask shows.
func FuzzToolArguments(f *testing.F) {
	for _, s := range []string{`{"id":"1"}`, `{"id":"1","id":"2"}`, `{"ID":"1"}`, ``, ` `, `null`, `[]`, `{"id":"1"}}`, `{"id":"1","count":1e0}`,
		`{"id":"1","count":99999999999999999999}`, `{"id":"\ud800"}`, "{\"id\":\"\xff\"}", `{"id":"1","more":{"a":"b","a":"c"}}`, `{"id":"1","tags":null}`, strings.Repeat(`{"id":`, 200)} {
		f.Add(s)
	}
	var got *fuzzArgs
	tool := NewTool("t", "T.", func(_ context.Context, a fuzzArgs) (string, error) { got = &a; return "", nil })
	if err := tool.check(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got = nil
		raw, _, err := tool.arguments(text)
		if err != nil {
			return
		}
		if again, _, err := tool.arguments(string(raw)); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%q becomes %s, and that %s (%v)", text, raw, again, err)
		}
		// The person sees the arguments inside the data of an ask.
		data, err := json.Marshal(map[string]any{"args": raw})
		if err != nil {
			t.Fatalf("%q cannot be shown: %v", text, err)
		}
		var shown struct{ Args fuzzArgs }
		if err := json.Unmarshal(data, &shown); err != nil {
			t.Fatalf("%q is shown as %s: %v", text, data, err)
		}
		if _, err := tool.call(t.Context(), raw); err != nil {
			// The schema takes what Go's decoder does not; then nothing runs.
			if got != nil {
				t.Errorf("%q failed with %v and ran", text, err)
			}
			return
		}
		if want, is := fmt.Sprintf("%+v", shown.Args), fmt.Sprintf("%+v", *got); want != is {
			t.Errorf("of %q the person sees %s and the function gets %s", text, want, is)
		}
		if n := utf8.RuneCountInString(got.ID); n < 1 || n > 100 || got.Count < 0 || got.Count > 10 || len(got.Tags) > 3 {
			t.Errorf("%q reaches the function as %+v", text, got)
		}
	})
}

// FuzzContent: what is taken is what a caller may say, and stays the same.
func FuzzContent(f *testing.F) {
	for _, s := range []string{`"text"`, `""`, `null`, `[]`, `{}`, `[{"text":"a"}]`, `{"role":"user","parts":[{"text":"a"}]}`, `[{"role":"user"}]`,
		`[{"role":"tool","parts":[{"result":{"call":"c","name":"n","text":"t"}}]}]`, `[{"role":"assistant","parts":[{"call":{"id":"c","name":"n"}}]}]`,
		`[{"media":{"url":"u"}}]`, `[{"Role":"user"}]`, `{"role":"user","parts":[{"text":"a"}],"x":1}`, `"\ud800"`, `7`, `[{"role":null}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Content
		if json.Unmarshal(data, &c) != nil {
			return
		}
		if err := c.check(); err != nil {
			t.Errorf("%q was taken: %v", data, err)
		}
		one, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var d Content
		if err := json.Unmarshal(one, &d); err != nil {
			t.Fatalf("%q becomes %s, which is not taken: %v", data, one, err)
		}
		if two, err := json.Marshal(d); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%q becomes %s and then %s (%v)", data, one, two, err)
		}
		_ = c.Text()
	})
}

// FuzzPlaceholders: values are filled in as they are, once, and all that is no
// placeholder stays.
func FuzzPlaceholders(f *testing.F) {
	f.Add("Hello {name}, {title?}{", "{name}")
	f.Add("{{a}}{b?}", "{a}")
	f.Add("{a\xff}{ü}", "\x00")
	f.Fuzz(func(t *testing.T, text, value string) {
		var keys []string
		same, err := fillIn(text, func(key string) (string, bool, error) {
			keys = append(keys, key)
			return "\x00" + key + "\x00", true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if strings.ContainsAny(k, "{}? \x00") {
				t.Errorf("the key %q", k)
			}
		}
		if len(keys) == 0 && same != text {
			t.Errorf("%q without placeholders becomes %q", text, same)
		}
		out, err := fillIn(text, func(string) (string, bool, error) { return value, true, nil })
		if err != nil {
			t.Fatal(err)
		}
		if plain := placeholder.ReplaceAllLiteralString(text, ""); len(out) != len(plain)+len(keys)*len(value) {
			t.Errorf("%q with %q becomes %q", text, value, out)
		}
		if _, err := fillIn(text, func(string) (string, bool, error) { return "", false, nil }); (err == nil) != !strings.Contains(placeholder.ReplaceAllStringFunc(text, func(m string) string {
			if strings.HasSuffix(m, "?}") {
				return ""
			}
			return "\x00missing\x00"
		}), "\x00missing\x00") && !strings.Contains(text, "\x00") {
			t.Errorf("%q with nothing in the state: %v", text, err)
		}
	})
}

// FuzzUnfence never panics and gives back what is inside.
func FuzzUnfence(f *testing.F) {
	f.Add("```json\n{}\n```")
	f.Add("``````")
	f.Add("```\n```")
	f.Fuzz(func(t *testing.T, text string) {
		if got := unfence(text); !strings.Contains(text, got) {
			t.Errorf("%q becomes %q", text, got)
		}
		if got := unfence("```\n" + "1" + "\n```"); got != "1" {
			t.Errorf("a fence: %q", got)
		}
	})
}

// TestAnyRecordsGiveAWellFormedConversation: whatever is in a transcript, after
// any crash, cancel, compaction or hand-over, and whoever looks at it.
func TestAnyRecordsGiveAWellFormedConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agents := rapid.SampledFrom([]string{"me", "other"})
		ids := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		var records []Record
		for i := range rapid.IntRange(0, 25).Draw(t, "records") {
			r := Record{ID: fmt.Sprint(i), Agent: agents.Draw(t, "agent")}
			switch rapid.SampledFrom([]string{"user", "text", "calls", "calls", "result", "result", "results", "nothing", "summary"}).Draw(t, "kind") {
			case "user":
				r.Message = llm.User(fmt.Sprint("u", i))
			case "text":
				r.Message = llm.Assistant(fmt.Sprint("t", i))
			case "nothing":
				r.Message = llm.Message{Role: llm.RoleAssistant}
			case "calls":
				r.Message = llm.Message{Role: llm.RoleAssistant}
				for _, id := range rapid.SliceOfNDistinct(ids, 1, 4, func(s string) string { return s }).Draw(t, "calls") {
					r.Message.Parts = append(r.Message.Parts, llm.Part{Call: &llm.Call{ID: id, Name: "t"}})
				}
			case "result":
				r.Message = llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: ids.Draw(t, "id"), Text: fmt.Sprint("r", i)}}}}
			case "results":
				r.Message = llm.Message{Role: llm.RoleTool}
				for _, id := range rapid.SliceOfN(ids, 0, 3).Draw(t, "ids") {
					r.Message.Parts = append(r.Message.Parts, llm.Part{Result: &llm.Result{Call: id, Text: fmt.Sprint("r", i)}})
				}
			case "summary":
				r.Message = llm.User("sum")
				r.Summary = &Summary{}
				if i > 0 && rapid.Bool().Draw(t, "some") {
					r.Summary.Before = records[rapid.IntRange(0, i-1).Draw(t, "before")].ID
				}
			}
			records = append(records, r)
		}
		got := conversation(records, "me")
		open := map[string]bool{}
		for i, m := range got {
			if len(m.Parts) == 0 {
				t.Fatalf("message %d is empty", i)
			}
			if (m.Role == llm.RoleTool) != (len(open) > 0) {
				t.Fatalf("message %d has the role %s while %d calls are open\n%s", i, m.Role, len(open), show(got))
			}
			for _, p := range m.Parts {
				if p.Result != nil && !open[p.Result.Call] {
					t.Fatalf("message %d has a result of %q, which is not open\n%s", i, p.Result.Call, show(got))
				}
				if p.Result != nil {
					delete(open, p.Result.Call)
				}
			}
			if m.Role == llm.RoleTool && len(open) > 0 {
				t.Fatalf("message %d leaves calls open\n%s", i, show(got))
			}
			for _, c := range m.Calls() {
				open[c.ID] = true
			}
		}
		if len(open) > 0 {
			t.Fatalf("it ends with open calls\n%s", show(got))
		}
		// A result that came, right behind its call, is never replaced.
		for i := 1; i < len(records); i++ {
			c := records[i-1].Message.Calls()
			p := records[i].Message.Parts
			if records[i-1].Agent != "me" || records[i].Agent != "me" || len(c) == 0 || len(p) == 0 || p[0].Result == nil || p[0].Result.Call != c[0].ID {
				continue
			}
			if len(afterSummary(records, "me")) == len(records) && !strings.Contains(show(got), fmt.Sprintf("%q", p[0].Result.Text)) {
				t.Fatalf("the result %s is lost\n%s", p[0].Result.Text, show(got))
			}
		}
	})
}

func show(v any) string {
	raw, _ := json.MarshalIndent(v, "", " ")
	return string(raw)
}

// TestCallsOfAReplyGetIdsOfTheirOwn, whatever the model gave them.
func TestCallsOfAReplyGetIdsOfTheirOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m llm.Message
		given := rapid.SliceOf(rapid.SampledFrom([]string{"", "call_1", "call_2", "x"})).Draw(t, "ids")
		for _, id := range given {
			m.Parts = append(m.Parts, llm.Part{Call: &llm.Call{ID: id}}, llm.Text("between"))
		}
		ownCalls(&m)
		seen := map[string]bool{}
		for i, c := range m.Calls() {
			if c.ID == "" || seen[c.ID] {
				t.Fatalf("call %d has the id %q", i, c.ID)
			}
			seen[c.ID] = true
		}
	})
}
