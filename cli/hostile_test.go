package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/terminal/terminaltest"
	"github.com/perdure/perdure/llm"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

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
			"threads", "asks", "asks A", "asks A --full", "answer", "answer A", "answer A --approve", "show t", "show t r", "show t --messages", "postmortem t", "events t", "state t", "state t k", "diff t 1",
			"workers", "flows", "bulk list", "bulk show j", "bulk erase --all --yes --detach", "bulk erase --all --dry-run", "rules list", "token list", "token create a", "memory list", "memory get a/b", "memory put a/b 1", "pause t", "resume t", "cancel t", "retry t", "rewind t 1", "fork t", "verify t",
			"run f x", "run f x --detach", "run f x --watch", "signal t s", "erase t --yes", "export t",
		} {
			for _, columns := range screens {
				p.setUp = func(a *app) { a.term.Forced, a.term.Columns = columns > 0, columns }
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
		rows = terminaltest.Screen(t, text)
	}
	for _, row := range rows {
		begin := strings.TrimLeft(row, " ")
		for _, lie := range []string{"? Pay 1", "? Pay 2", "call     pay", "[a]pprove"} {
			if strings.HasPrefix(begin, lie) {
				t.Errorf("perdure %s prints a line that is not ours: %q", command, row)
			}
		}
		hint := strings.Contains(row, "--server") || strings.HasPrefix(begin, "perdure answer '") || strings.Contains(row, "not shown: ") // commands are not broken
		if columns > 0 && safe.Cells(row) > columns && !hint {
			t.Errorf("perdure %s prints a line of %d columns, not %d: %q", command, safe.Cells(row), columns, row)
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
	spoken, _ := json.Marshal(llm.Delta{Text: evil})
	for _, columns := range screens {
		for _, chat := range []bool{true, false} {
			var sent bytes.Buffer
			a := testApp(terminal.Terminal{Out: &sent, Err: &sent, Forced: columns > 0, Columns: columns, Now: func() time.Time { return noon }})
			v, h := render.NewView(a.term, chat), &render.History{}
			v.Todos = []agent.Todo{{Content: evil}}
			for _, kind := range strings.Fields("queued claimed planned step message attempt intent asked answered expired progress emitted spawned timer waiting fired received signal paused resumed retried cancel problem forked rewound released suspended blocked quarantined ended " + evil[:1]) {
				var e perdure.Event
				hostile(reflect.ValueOf(&e).Elem(), 0)
				if e.Kind = kind; kind == "message" {
					e.Kind, e.Value, e.Error = "step", message, ""
				}
				v.Update(client.Update{Event: &e})
				v.Update(client.Update{Delta: &perdure.DeltaEvent{Path: e.Path + kind, Attempt: 1, Data: spoken}})
				v.Draw()
				if err := a.event(&e); err != nil {
					t.Fatal(err)
				}
				h.Add(&e)
			}
			v.Screen.Clear()
			var run perdure.Run
			hostile(reflect.ValueOf(&run).Elem(), 0)
			run.ID = evil
			if !h.PrintRun(a.term, &run) {
				t.Fatal("the run is not in the history")
			}
			a.runNext(&run)
			lookAtLines(t, fmt.Sprint("view ", columns, chat), sent.String(), columns)
		}
	}
}

// What flows, models and people write comes out of every command as text.
func TestCommandsShowHostileTextsSafely(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		evil := "\x1b]0;owned\x07\u009b2J\u202eevil"
		p.run("", "run", "echo", evil, "--thread", "e", "--title", evil, "--metadata", evil+"="+evil).want(exit.OK)
		p.run("", "run", "order", evil, "--thread", "o", "--title", evil).want(exit.Waiting)
		p.run("", "run", "clerk", "pay 1 "+evil, "--thread", "c", "--watch").want(exit.Waiting)
		p.run("", "memory", "put", "a/"+url(evil), evil).want(exit.OK)
		for _, args := range [][]string{
			{"threads"}, {"show", "e"}, {"show", "o"}, {"postmortem", "o"}, {"show", "c", "--messages"}, {"events", "e"}, {"events", "o"}, {"asks"}, {"state", "o"}, {"state", "o", "note"},
			{"diff", "o", "2"}, {"memory", "list"}, {"run", "echo", evil}, {"run", "order", evil, "--watch"}, {"show", evil}, {"run", evil}, {"answer", evil, "--approve"},
			{"threads", "--json"}, {"show", "e", "--json"}, {"events", "o", "--json"}, {"asks", "--json"}, {"state", "o", "--json"}, {evil},
		} {
			r := p.run("", args...)
			for _, text := range []string{r.out, r.err} {
				if strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(text), safe.Steers) {
					t.Errorf("perdure %q prints %q", args, text)
				}
			}
			p.setUp = func(a *app) { a.term.Forced = true }
			r = p.run("s\n", args...)
			p.setUp = nil
			terminaltest.Screen(t, strings.ReplaceAll(r.out, "\t", " "))
		}
	})
}

func url(s string) string { return strings.ReplaceAll(s, "/", "%2F") }
