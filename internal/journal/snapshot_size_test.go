package journal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// FuzzRestore: any bytes, also with a hash that fits, are an error, or a thread
// that is written as the same bytes and takes any question.
func FuzzRestore(f *testing.F) {
	lines := rich().lines
	for k := range len(lines) + 1 {
		th, _, err := fold(lines[:k])
		if err != nil {
			f.Fatal(err)
		}
		if data, err := th.Snapshot(); err == nil {
			f.Add(data)
			f.Add([]byte(inner(data)))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, resum(string(data))} {
			th, err := Restore(data)
			if err != nil {
				continue
			}
			again, err := th.Snapshot()
			if err != nil || !bytes.Equal(again, data) {
				t.Errorf("read:    %s\nwritten: %s, %v", data, again, err)
			}
			ask(th)
			for _, line := range []string{`{"id":"a","policy":"steer"}`, `{"id":"b"}`} {
				e := Entry{Seq: th.Seq + 1, Kind: Queued, ID: "i", Body: []byte(line)}
				if _, err := th.Read(e.Seq, e.Encode(th.Head)); err != nil {
					t.Errorf("it does not go on: %v", err)
				}
			}
			ask(th)
		}
	})
}

// TestSnapshotFitsItsJournalOnly: the entry that follows proves it.
func TestSnapshotFitsItsJournalOnly(t *testing.T) {
	w, other := rich(), &writer{}
	for range w.lines {
		other.add(Nudge, 0, "", `{}`)
	}
	data := mustSnapshot(t, mustFold(t, other.lines))
	next := w.add(Nudge, 0, "", `{}`)
	if _, err := mustRestore(t, data).Read(next.Seq, w.lines[next.Seq-1]); err == nil {
		t.Error("a snapshot of another journal goes on with this one")
	}
	mine := mustSnapshot(t, mustFold(t, w.lines[:next.Seq-1]))
	if _, err := mustRestore(t, mine).Read(next.Seq, w.lines[next.Seq-1]); err != nil {
		t.Errorf("a snapshot of this journal does not go on with it: %v", err)
	}
}

// talk returns the journal of a conversation: runs of a number of steps, each
// with a result of 600 bytes and a change of the state.
func talk(runs, steps int) *writer {
	w := &writer{}
	w.add(Created, 0, "", `{"thread":"t","tenant":"acme","user":"ann","title":"A long talk"}`)
	for i := range runs {
		n := w.add(Queued, 0, "", fmt.Sprintf(`{"id":"run-%020d","flow":"clerk","policy":"enqueue","budget":{"tokens":100000},"by":"ann","res":["input %d: %s"]}`, i, i, strings.Repeat("x", 100))).Seq
		w.add(Claimed, n, "", `{"worker":"w1","version":"0123456789abcdef"}`)
		for k := range steps {
			w.add(Step, n, fmt.Sprintf("/clerk/turn-%d/model", k), fmt.Sprintf(`{"state":[{"k":"turns","add":1}],"spend":{"tokens":%d},"res":["%s"]}`, k, strings.Repeat("y", 600)))
		}
		w.add(Ended, n, "", fmt.Sprintf(`{"status":"succeeded","ref":%d}`, w.seq))
	}
	return w
}

func TestSnapshotIsSmall(t *testing.T) {
	w := talk(50, 20)
	whole := len(bytes.Join(w.lines, nil))
	data := mustSnapshot(t, mustFold(t, w.lines))
	t.Logf("50 runs of 20 steps: journal %d bytes, snapshot %d bytes (%.1f%%), %d a run", whole, len(data), 100*float64(len(data))/float64(whole), len(data)/50)
	if len(data)*10 > whole {
		t.Errorf("the snapshot has %d of %d bytes", len(data), whole)
	}
	for _, constant := range []string{`"clerk"`, `"enqueue"`, `"0123456789abcdef"`, `"succeeded"`, `100000`} {
		if n := bytes.Count(data, []byte(constant)); n != 1 {
			t.Errorf("%s, which all runs have in common, is there %d times", constant, n)
		}
	}
	if err := differ(mustRestore(t, data), mustFold(t, w.lines)); err != "" {
		t.Error(err)
	}
}

// BenchmarkSnapshot compares with the fold that a snapshot saves.
func BenchmarkSnapshot(b *testing.B) {
	w := talk(50, 20)
	th := mustFold(b, w.lines)
	data := mustSnapshot(b, th)
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"fold", func() error { _, _, err := fold(w.lines); return err }},
		{"snapshot", func() error { _, err := th.Snapshot(); return err }},
		{"restore", func() error { _, err := Restore(data); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
