package journal

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "accept what the tests find into testdata")

// golden compares got with a file in testdata. With -update it writes the file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		var g, w string
		if i < len(gotLines) {
			g = gotLines[i]
		}
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if g != w {
			t.Fatalf("%s:%d (-update accepts it)\n got %s\nwant %s", file, i+1, g, w)
		}
	}
}

// writer appends entries whose ids and times depend only on their sequence.
type writer struct {
	seq   uint64
	epoch uint64
	head  Hash
	lines [][]byte
}

func (w *writer) next(kind Kind, run uint64, path, body string) Entry {
	w.seq++
	e := Entry{Seq: w.seq, Kind: kind, ID: fmt.Sprintf("i%d", w.seq), Time: int64(w.seq) * 10,
		Run: run, Path: path, Body: []byte(body)}
	if kind == Claimed {
		w.epoch++
	}
	if !kind.Open() && run != 0 {
		e.Epoch = w.epoch
	}
	return e
}

func (w *writer) add(kind Kind, run uint64, path, body string) Entry {
	return w.put(w.next(kind, run, path, body))
}

func (w *writer) put(e Entry) Entry {
	w.lines = append(w.lines, e.Encode(w.head))
	w.head = e.Hash
	return e
}

// everyKind returns a plausible journal with at least one entry of each kind.
func everyKind() *writer {
	w := &writer{}
	w.add(Created, 0, "", `{"thread":"t-1","tenant":"acme","user":"ann","title":"Refund","meta":{"a":"1"}}`)
	w.add(Queued, 0, "", `{"id":"one","flow":"triage","policy":"enqueue","key":"k","budget":{"tokens":100},"trace":"00-1-1-00","by":"ann","res":["ticket 7"]}`)
	w.add(Metadata, 0, "", `{"title":"Refund of 7","meta":{"a":"","b":"2"}}`)
	w.add(Claimed, 2, "", `{"worker":"w1","version":"v1"}`)
	w.add(Planned, 2, "/#plan", `{"plan":["find","pay"]}`)
	w.add(Attempt, 2, "/find", `{"att":1,"due":75,"fail":{"codes":["timeout"],"msg":"slow","stack":"goroutine 1"}}`)
	w.add(Step, 2, "/find", `{"res":[{"order":7,"note":"<&> \"é\" 9007199254740993"}]}`)
	w.add(Emitted, 2, "/found", `{"res":[true]}`)
	w.add(Step, 2, "/note", `{"state":[{"k":"n","add":3},{"k":"log","app":[["a"],["b"]]},{"k":"tone","set":["calm"]},{"k":"old","del":true}],"spend":{"tokens":12},"deps":{"cart":[{"items":2}]}}`)
	w.add(Intent, 2, "/pay", `{"due":200,"in":"digest"}`)
	w.add(Problem, 2, "/pay", `{"fail":{"msg":"connection reset"}}`)
	w.add(Asked, 2, "/pay", `{"ask":{"kind":"outcome","prompt":"Did it?","decisions":["done","not-done","fail"],"guards":"key"}}`)
	w.add(Progress, 2, "/pay", `{"of":"i12","res":["looking"]}`)
	w.add(Suspended, 2, "", `{"deps":{"cart":[{"items":3}]}}`)
	w.add(Queued, 0, "", `{"id":"more","flow":"triage","policy":"steer","res":["and order 8"]}`)
	w.add(Answered, 2, "/pay", `{"answer":{"decision":"done","by":"bob","value":["receipt"]},"of":"i12"}`)
	w.add(Claimed, 2, "", `{"worker":"w2","version":"v1"}`)
	w.add(Step, 2, "/pay", `{"res":["receipt"]}`)
	w.add(Took, 2, "/more", `{"ref":15,"res":["and order 8"]}`)
	w.add(Signal, 0, "", `{"key":"s1","name":"paid","res":[8]}`)
	w.add(Received, 2, "/paid", `{"name":"paid","ref":20,"res":[8]}`)
	w.add(Dumped, 2, "/long", `{"deps":{"cart":{"hash":"0000000000000000000000000000000000000000000000000000000000000000","size":70000}}}`)
	w.add(Timer, 2, "/1|a/nap", `{"due":260}`)
	w.add(Waiting, 2, "/1|b/mail", `{"due":900,"name":"mail"}`)
	w.add(Suspended, 2, "", `{}`)
	w.add(Paused, 2, "", `{"by":"ann","reason":"lunch"}`)
	w.add(Resumed, 2, "", `{"by":"ann"}`)
	w.add(Fired, 2, "/1|a/nap", `{}`)
	w.add(Signal, 2, "/1|b/mail", `{"name":"mail","res":["hi"]}`)
	w.add(Claimed, 2, "", `{"worker":"w2","version":"v2"}`)
	w.add(Blocked, 2, "", `{"version":"v2","diff":"in /:\n- step \"find\"\n+ return"}`)
	w.add(Retried, 2, "", `{"by":"ann"}`)
	w.add(Claimed, 2, "", `{"worker":"w3","version":"v1"}`)
	w.add(Quarantined, 2, "", `{"fail":{"msg":"five workers died","stack":"last events"}}`)
	w.add(Retried, 2, "", `{"by":"ann"}`)
	w.add(Claimed, 2, "", `{"worker":"w3","version":"v1"}`)
	w.add(Asked, 2, "/ok", `{"due":400,"ask":{"prompt":"Ok?","schema":{"type":"boolean"},"who":["ann"],"want":"boolean","data":[{"order":7}],"default":{"value":[false]}}}`)
	w.add(Expired, 2, "/ok", `{"answer":{"value":[false]},"of":"i37"}`)
	w.add(Released, 2, "", `{}`)
	w.add(Nudge, 0, "", `{}`)
	w.add(Cancel, 2, "", `{"by":"ann","reason":"enough"}`)
	w.add(Claimed, 2, "", `{"worker":"w4","version":"v1"}`)
	w.add(Step, 2, "/undo", `{"verb":"cleanup","fail":{"msg":"cannot"}}`)
	w.add(Ended, 2, "", `{"fail":{"codes":["cancelled"],"msg":"cancelled"},"status":"cancelled","unknown":["/pay"]}`)
	w.add(Queued, 0, "", `{"id":"two","flow":"triage","res":["again"]}`)
	w.add(Claimed, 45, "", `{"worker":"w4","version":"v1"}`)
	w.add(Spawned, 45, "/check", `{"child":"c1","flow":"check","budget":{"tokens":5},"res":[7]}`)
	w.add(Waiting, 45, "/checked", `{"name":"#child-c1"}`)
	w.add(Suspended, 45, "", `{}`)
	w.add(Forked, 0, "", `{"thread":"t-2","tenant":"acme","from":{"name":"a.b","thread":"t-1","head":"h"},"at":49,"state":[{"k":"tone","set":["brisk"]}]}`)
	w.add(Resumed, 45, "", `{"by":"ann"}`)
	w.add(Claimed, 45, "", `{"worker":"w5","version":"v1"}`)
	w.add(Waiting, 45, "/1|a/mail", `{"name":"mail"}`)
	w.add(Timer, 45, "/1|c/undo/nap", `{"due":900,"cleaning":true}`)
	w.add(Step, 45, "/1|b/pay", `{"fail":{"msg":"declined"}}`)
	w.add(Closed, 45, "/1|b", `{"fail":{"msg":"/b/pay: declined"}}`)
	w.add(Erased, 0, "", `{"by":"ann"}`)
	return w
}

// fold folds lines up to the first error, and returns the sequence of the line that
// caused it, 0 if none did.
func fold(lines [][]byte) (*Thread, uint64, error) {
	t := NewThread()
	for i, line := range lines {
		if _, err := t.Read(uint64(i)+1, line); err != nil {
			return t, uint64(i) + 1, err
		}
	}
	return t, 0, nil
}

func mustFold(t testing.TB, lines [][]byte) *Thread {
	t.Helper()
	th, at, err := fold(lines)
	if err != nil {
		t.Fatalf("entry %d: %v", at, err)
	}
	return th
}

// tell describes a thread in one line.
func tell(t *Thread) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	for i, r := range t.Runs {
		if i > 0 {
			say("; ")
		}
		say("%s %s", r.ID, r.Status)
		for _, flag := range []struct {
			on   bool
			name string
		}{{r.Wake, "wake"}, {r.Cancelled, "to-cancel"}, {r.PausedAt != 0, "to-pause"}, {r.Cleaning, "cleaned"}} {
			if flag.on {
				say(" %s", flag.name)
			}
		}
		if r.Deaths > 0 {
			say(" deaths=%d", r.Deaths)
		}
		for _, p := range slices.Sorted(maps.Keys(r.Waits)) {
			say(" %s(%s", r.Waits[p].Kind, p)
			if due := r.Waits[p].Due; due != 0 {
				say(" due=%d", due)
			}
			say(")")
		}
		for _, p := range slices.Sorted(maps.Keys(r.Intents)) {
			say(" unknown(%s)", p)
		}
	}
	for _, r := range t.Inbox {
		say("; %s in the inbox", r.ID)
	}
	for _, s := range t.Signals {
		say("; signal %s", s.Name)
	}
	for _, id := range askIDs(t) {
		state := "open"
		switch a := t.Ask(id); {
		case a.Expired:
			state = "expired"
		case a.Answer != nil:
			state = "answered"
		case a.Closed:
			state = "closed"
		}
		say("; ask %s %s", id, state)
	}
	for _, k := range slices.Sorted(maps.Keys(t.State)) {
		say("; %s=%s", k, show(t.State[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(t.Spent)) {
		say("; spent %d %s", t.Spent[k], k)
	}
	if t.Worker != "" {
		say("; held by %s", t.Worker)
	}
	switch r, due := t.Next(t.Time, fitsV1); {
	case r != nil:
		say("; next %s", r.ID)
	case due != 0:
		say("; next at %d", due)
	}
	if t.Foreign != "" {
		say("; foreign: %s", t.Foreign)
	}
	return strings.TrimPrefix(b.String(), "; ")
}

// show returns the value of an item, followed by what was appended to it.
func show(i Item) string {
	parts := []string{}
	if !i.Base.IsZero() {
		parts = append(parts, string(i.Base.JSON))
	}
	for _, v := range i.Values() {
		parts = append(parts, "+"+string(v.JSON))
	}
	return strings.Join(parts, "")
}

// fitsV1 lets the code of version v1 try a blocked run once.
func fitsV1(r *Run) bool { return !r.Misfits["v1"] }

// askIDs returns the ids of a thread's asks.
func askIDs(t *Thread) []string {
	var ids []string
	for id := range t.asks.all() {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
