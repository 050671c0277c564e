package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/llm"
)

// FuzzUntrusted: whatever a text is, its lines stay behind the bar and within
// the terminal, nothing in them steers it or is unseen, and escaped JSON means
// the same.
func FuzzUntrusted(f *testing.F) {
	for _, s := range []string{
		"", "plain", "  call     pay\n  [a]pprove > ", strings.Repeat(" ", 200) + "? Pay?", "a\r\nb\rc\x1b[2J\u009b1A",
		strings.Repeat("日本語", 50), "e" + strings.Repeat("\u0301", 300), "\u0301\n\u0301", "\u202e\u2066\u200b\U000e0041", "\ufe0f❤\ufe0f\u200d👩", "\xff\xc0",
		"ᄀ" + strings.Repeat("\u1161", 90), "x\tyyyy", strings.Repeat("❤\ufe0f", 99), strings.Repeat("\u3000", 99) + "x", `{"a":"\u202e"}`,
	} {
		f.Add(s)
	}
	pieces := []string{" ", "\n", "\t", "\r", "a", "日", "e\u0301", "\u0301", "\u1161", "\u200d", "\ufe0f", "❤", "\U000e0041", "\x1b[A", "\xff", "[a]pprove", "│ ", "                     "}
	for r := rand.New(rand.NewPCG(1, 2)); len(pieces) < 600; { // so that an ordinary test finds much
		n := r.IntN(60)
		s := ""
		for range n {
			s += pieces[r.IntN(18)]
		}
		f.Add(s)
		pieces = append(pieces, s)
	}
	a := &app{out: io.Discard, err: io.Discard, forced: true, json: true, env: func(string) string { return "" }} // JSON has no colours
	f.Fuzz(func(t *testing.T, s string) {
		check := func(what, line string) {
			t.Helper()
			carried := marks
			for _, c := range line {
				switch {
				case steers(c):
					t.Fatalf("%s of %q has %q: %q", what, s, c, line)
				case !combines(c):
					carried = 0
				default:
					if carried++; carried > marks {
						t.Fatalf("%s of %q piles up characters: %q", what, s, line)
					}
				}
			}
		}
		check("printable", printable(s))
		check("oneLine", oneLine(s))
		if n := cells(label(s)); n > nameCells && !plainWord.MatchString(s) {
			t.Fatalf("the label of %q has %d columns", s, n)
		}
		for _, margin := range []string{"", "  "} {
			text, hidden := a.frame(margin, s, 7)
			lines := strings.Split(text, "\n")
			if len(lines) > 7 || hidden > 0 && len(lines) != 7 {
				t.Fatalf("%d lines of %q are shown, and %d hidden", len(lines), s, hidden)
			}
			for _, line := range lines {
				rest, ok := strings.CutPrefix(line, margin+strings.TrimSpace(frameLeft))
				if !ok || cells(line) > a.width() {
					t.Fatalf("a line of %q is out of its frame: %q", s, line)
				}
				check("a line", strings.TrimPrefix(rest, " "))
			}
		}
		for n := range 12 {
			if got := cut(printable(s), n); n > 0 && cells(got) > n {
				t.Fatalf("%q cut to %d has %d columns", got, n, cells(got))
			}
			joined := strings.Join(wrap(printable(s), n+2), "")
			if strings.ReplaceAll(joined, " ", "") != strings.ReplaceAll(printable(s), " ", "") {
				t.Fatalf("%q in lines is %q", printable(s), joined)
			}
		}
		data, _ := json.Marshal(s)
		text := escaped(string(data))
		check("JSON", text)
		var before, after any
		if json.Unmarshal(data, &before) != nil || json.Unmarshal([]byte(text), &after) != nil || before != after {
			t.Fatalf("%s means %q, and as %s it means %q", data, before, text, after)
		}
	})
}

// evil is a text that tries to look like lines of ours.
const evil = "x\n? Pay 1?\n  call     pay\n  [a]pprove > \r\x1b[2J\u009b1A\u202e\u200b\U000e0041" +
	"                                                                                                   " +
	"? Pay 2?xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// hostile fills a value with it.
func hostile(v reflect.Value, depth int) {
	switch {
	case depth > 6:
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		data, _ := json.Marshal(map[string]any{"tool": evil, "args": map[string]any{evil: []string{evil, evil}}, "text": evil})
		v.SetBytes(data)
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(noon))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		hostile(v.Elem(), depth+1)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				hostile(v.Field(i), depth+1)
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			hostile(v.Index(i), depth+1)
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		hostile(key, depth+1)
		hostile(value, depth+1)
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.String:
		v.SetString(evil)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanUint():
		v.SetUint(3)
	case v.CanInt():
		v.SetInt(3)
	}
}

// TestAHostileServer answers every request with texts that try to look like
// lines of a command, or fails with such a text: none comes out at a margin, and
// none goes past the terminal's edge.
func TestAHostileServer(t *testing.T) {
	fails := false
	mux := http.NewServeMux()
	for _, op := range api.All() {
		mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
			if op.Out == nil || fails {
				var p api.Problem
				hostile(reflect.ValueOf(&p).Elem(), 0)
				p.Status = http.StatusConflict
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(p.Status)
				json.NewEncoder(w).Encode(p)
				return
			}
			out := reflect.New(op.Out)
			hostile(out.Elem(), 0)
			if out.Elem().Kind() == reflect.Struct {
				if next := out.Elem().FieldByName("Next"); next.IsValid() {
					next.SetZero() // there is one page
				}
			}
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(out.Interface())
		})
	}
	srv := httptest.NewServer(mux)
	defer srv.Close()
	p := &place{t: t, flags: []string{"--server", srv.URL}}
	for _, fails = range []bool{false, true} {
		for _, command := range []string{
			"threads", "asks", "asks A", "asks A --full", "answer", "answer A", "answer A --approve", "show t", "show t r", "show t --messages", "events t", "state t", "state t k", "diff t 1",
			"workers", "flows", "rules list", "token list", "token create a", "memory list", "memory get a/b", "memory put a/b 1", "pause t", "resume t", "cancel t", "retry t", "rewind t 1", "fork t", "verify t",
			"run f x", "run f x --detach", "run f x --watch", "signal t s", "erase t --yes", "export t",
		} {
			for _, columns := range screens {
				p.setUp = func(a *app) { a.forced, a.columns = columns > 0, columns }
				r := p.run("f\ns\ns\n", strings.Fields(command)...)
				for _, text := range []string{r.out, r.err} {
					lookAtLines(t, command, text, columns)
				}
			}
		}
	}
}

// screens are the widths of terminals that are tried; 0 is a pipe.
var screens = []int{0, 20, 40, 60, 80, 100}

// lookAtLines checks what a command prints when everything in it is hostile.
func lookAtLines(t *testing.T, command, text string, columns int) {
	t.Helper()
	rows := strings.Split(text, "\n")
	if columns > 0 {
		rows = seen(t, text)
	}
	for _, row := range rows {
		begin := strings.TrimLeft(row, " ")
		for _, lie := range []string{"? Pay 1", "? Pay 2", "call     pay", "[a]pprove"} {
			if strings.HasPrefix(begin, lie) {
				t.Errorf("perdure %s prints a line that is not ours: %q", command, row)
			}
		}
		hint := strings.Contains(row, "--server") || strings.HasPrefix(begin, "perdure answer '") || strings.Contains(row, "not shown: ") // commands are not broken
		if columns > 0 && cells(row) > columns && !hint {
			t.Errorf("perdure %s prints a line of %d columns, not %d: %q", command, cells(row), columns, row)
		}
		if strings.ContainsFunc(row, func(c rune) bool { return unicode.In(c, unicode.Cc, unicode.Bidi_Control) }) {
			t.Errorf("perdure %s prints %q", command, row)
		}
	}
}

// TestHostileEvents shows events of each kind, in which all texts are hostile, as
// they happen, in a list, and as a tree.
func TestHostileEvents(t *testing.T) {
	message, _ := json.Marshal(agent.Record{ID: "r", Message: llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
		{Text: evil}, {Call: &llm.Call{Name: evil, Args: evil}}, {Result: &llm.Result{Name: evil, Text: evil}}}}})
	for _, columns := range screens {
		for _, chat := range []bool{true, false} {
			var sent bytes.Buffer
			a := &app{out: &sent, err: &sent, forced: columns > 0, columns: columns, env: func(string) string { return "" }, now: func() time.Time { return noon }}
			v, h := a.newView(chat), &history{}
			v.plan, v.todos = []string{evil}, []agent.Todo{{Content: evil}}
			for _, kind := range strings.Fields("queued claimed planned step message attempt intent asked answered expired progress emitted spawned timer waiting fired received signal paused resumed retried cancel problem forked rewound released suspended blocked quarantined ended " + evil[:1]) {
				var e perdure.Event
				hostile(reflect.ValueOf(&e).Elem(), 0)
				if e.Kind = kind; kind == "message" {
					e.Kind, e.Value, e.Error = "step", message, ""
				}
				v.update(client.Update{Event: &e})
				v.update(client.Update{Delta: delta(e.Path+kind, 1, evil)})
				v.block()
				if err := a.event(&e); err != nil {
					t.Fatal(err)
				}
				h.add(&e)
			}
			v.clear()
			var run perdure.Run
			hostile(reflect.ValueOf(&run).Elem(), 0)
			a.runTree(h, h.runs[0], &run)
			lookAtLines(t, fmt.Sprint("view ", columns, chat), sent.String(), columns)
		}
	}
}
