package render

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/terminal"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// told makes events of lines of JSON: each is a second behind the one before.
func told(t testing.TB, lines string) []perdure.Event {
	t.Helper()
	var all []perdure.Event
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		e := perdure.Event{Thread: "t", Seq: uint64(len(all) + 1), Time: noon.Add(time.Duration(len(all)) * time.Second)}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

const longStory = `
{"kind":"created"}
{"kind":"queued","run":"r1","name":"order","value":"tea"}
{"kind":"claimed","run":"r1","worker":"one"}
{"kind":"planned","run":"r1","path":"/#plan","plan":["price","ask","buy"]}
{"kind":"attempt","run":"r1","path":"/price/shop-1","attempt":1,"error":"busy"}
{"kind":"step","run":"r1","path":"/price/shop-1","value":42,"took_us":1234567}
{"kind":"claimed","run":"r1","worker":"two"}
{"kind":"step","run":"r1","path":"/price/shop-2","value":40}
{"kind":"step","run":"r1","path":"/price","value_of":8}
{"kind":"spawned","run":"r1","path":"/child","name":"audit","child":"c1"}
{"kind":"waiting","run":"r1","path":"/child-end","child":"c1"}
{"kind":"asked","run":"r1","path":"/ask","name":"Buy \u001b[31mtea\u001b[0m?","ask":"x.abcdefgh"}
{"kind":"timer","run":"r1","path":"/nap","due":"2026-03-14T13:00:00Z"}
{"kind":"suspended","run":"r1"}
{"kind":"signal","run":"r1","path":"/child-end","child":"c1","value":"fine","status":"succeeded"}
{"kind":"answered","run":"r1","path":"/ask","ask":"x.abcdefgh","decision":"approve","by":"ada","reason":"cheap"}
{"kind":"fired","run":"r1","path":"/nap"}
{"kind":"claimed","run":"r1","worker":"two"}
{"kind":"intent","run":"r1","path":"/buy"}
{"kind":"step","run":"r1","path":"/buy","error":"no \u009bmoney"}
{"kind":"ended","run":"r1","status":"failed","error":"/buy: no money"}
{"kind":"retried","run":"r1","by":"bob","reason":"paid in"}
{"kind":"claimed","run":"r1","worker":"three"}
{"kind":"paused","run":"r1","by":"bob"}
{"kind":"released","run":"r1"}
{"kind":"resumed","run":"r1","by":"bob"}
{"kind":"claimed","run":"r1","worker":"three"}
{"kind":"emitted","run":"r1","path":"/news","value":{"n":1}}
{"kind":"intent","run":"r1","path":"/send"}
`

func TestTheTreeOfALongStory(t *testing.T) {
	h := &History{}
	for _, e := range told(t, longStory) {
		h.Add(&e)
	}
	var out bytes.Buffer
	a := testTerminal(terminal.Terminal{Out: &out, Err: &out, Now: func() time.Time { return noon.Add(time.Hour) }})
	h.PrintRun(a, &perdure.Run{Thread: "t", ID: "r1", Flow: "order", Status: perdure.Running, Started: noon, Retries: 1,
		Plan: []perdure.PlanStep{{Name: "price", Done: true}, {Name: "ask", Done: true}, {Name: "buy"}}, Spent: map[string]int64{"tokens": 7, "calls": 2}})
	want, err := os.ReadFile("testdata/tree.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("testdata/tree.txt (-want +got):\n%s", diff)
	}
}

// Whatever happened up to some point, the tree can be shown.
func TestEveryBeginningOfAStoryHasATree(t *testing.T) {
	all := told(t, longStory)
	for n := range all {
		h := &History{}
		for _, e := range all[:n+1] {
			h.Add(&e)
		}
		var out bytes.Buffer
		a := testTerminal(terminal.Terminal{Out: &out, Err: &out, Now: func() time.Time { return noon }})
		if h.PrintRun(a, &perdure.Run{ID: "r1", Status: perdure.Running}) {
			if !strings.Contains(out.String(), "run r1") {
				t.Fatalf("after %d events: %s", n+1, out.String())
			}
		}
		if strings.ContainsAny(out.String(), "\x1b\u009b") {
			t.Fatalf("what was written steers the terminal: %q", out.String())
		}
	}
}

func TestALostWorkerIsTold(t *testing.T) {
	h := &History{}
	for _, e := range told(t, longStory) {
		h.Add(&e)
	}
	var how []string
	for _, p := range h.runs["r1"].passes {
		how = append(how, p.how)
	}
	if got := strings.Join(how, ","); got != "lost,suspended,ended,released," {
		t.Errorf("the passes ended %s", got)
	}
	if n := h.runs["r1"].root.find("/price/shop-2"); !n.resumed || n.worker != 1 {
		t.Errorf("the first step after the loss is %+v", n)
	}
	if n := h.runs["r1"].root.find("/price"); n.resumed {
		t.Errorf("the second step after the loss is marked too: %+v", n)
	}
}
