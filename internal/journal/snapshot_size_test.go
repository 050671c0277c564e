package journal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// talk returns the journal of a conversation: runs of several steps, each with a
// result of 600 bytes and a change of the state.
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
	if err := differ(mustRestore(t, data), mustFold(t, w.lines), w.lines); err != "" {
		t.Error(err)
	}
}

// BenchmarkSnapshot compares a snapshot to the fold that it saves.
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
