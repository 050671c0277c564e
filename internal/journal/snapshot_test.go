package journal

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure/internal/blob"
)

// differ returns the difference between two threads of a journal, including
// unexported fields. Empty equals missing, values left in the journal equal those
// in memory, and which runs are past and the weight do not matter.
func differ(a, b *Thread, lines [][]byte) string {
	values := gocmp.Comparer(func(a, b Value) bool { return sameValue(read(a, lines), read(b, lines)) })
	return gocmp.Diff(a, b, values, cmpopts.EquateEmpty(), asMap[*Run](), asMap[*Ask](), asMap[uint64](),
		cmpopts.IgnoreFields(Thread{}, "ended", "weight", "held"), cmpopts.IgnoreFields(Link{}, "read", "held"),
		gocmp.AllowUnexported(Thread{}, Run{}, Ask{}, Item{}, Link{}, Pending{}, Note{}, Wait{}))
}

// read returns a value with its bytes, from the journal if need be.
func read(v Value, lines [][]byte) Value {
	if !v.Elsewhere() {
		return v
	}
	e, err := Peek(v.At.Seq(), lines[v.At.Seq()-1])
	if err != nil {
		panic(err)
	}
	b, err := e.Read()
	if err != nil {
		panic(err)
	}
	if v, err = b.ValueAt(v.At); err != nil {
		panic(err)
	}
	return v
}

// whole returns a thread with the bytes of all values of the state.
func whole(th *Thread, lines [][]byte) *Thread {
	th = th.Clone()
	state := map[string]Item{}
	for key, item := range th.State {
		all := Item{Base: read(item.Base, lines), Text: item.Text}
		for _, v := range item.Values() {
			all.Tail = &Link{Value: read(v, lines), Prev: all.Tail}
		}
		state[key] = all
	}
	th.State = state
	return th
}

// asMap compares tables by their content.
func asMap[V any]() gocmp.Option {
	return gocmp.Transformer("map", func(t table[V]) map[string]V { return maps.Collect(t.all()) })
}

// everyRun returns all runs of a thread, including steering that was taken.
func everyRun(th *Thread) []*Run { return slices.Concat(th.Runs, th.Inbox, th.taken()) }

// bare clears what a snapshot leaves out of the runs with these numbers.
func bare(th *Thread, ended []uint64) *Thread {
	th.shared = false
	for _, r := range everyRun(th) {
		if slices.Contains(ended, r.N) {
			r.BaseState, r.BaseDeps, r.Dumps = nil, nil, nil
		}
	}
	return th
}

func ended(th *Thread) []uint64 {
	var all []uint64
	for _, r := range everyRun(th) {
		if r.Status.Final() {
			all = append(all, r.N)
		}
	}
	return all
}

func mustSnapshot(t testing.TB, th *Thread) []byte {
	t.Helper()
	data, err := th.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustRestore(t testing.TB, data []byte) *Thread {
	t.Helper()
	th, err := Restore(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return th
}

// rich returns a journal that ends at a boundary and sets all fields: it has ended
// runs, one that failed, one queued, steering that was taken and some that was not,
// signals, asks, notes, state and deps.
func rich() *writer {
	w := everyKind()
	w.add(Claimed, 45, "", `{"worker":"w5","version":"v1"}`)
	w.add(Ended, 45, "", `{"status":"succeeded"}`)
	w.add(Queued, 0, "", `{"id":"bad","flow":"triage","budget":{"tokens":0},"res":{"hash":"00","size":70000}}`)
	w.add(Claimed, w.seq, "", `{"worker":"w5","version":"v1"}`)
	run := w.seq - 1
	w.add(Step, run, "/a\"\\\n\x01<&>é\u2028", `{"fail":{"codes":["x"],"msg":""},"state":[{"k":"zero","set":[]},{"k":"log","app":[["<&>"],[],[1,2],[9007199254740993]]}]}`)
	w.add(Intent, run, "/once", `{}`)
	w.add(Ended, run, "", `{"status":"failed","fail":{"msg":"no"},"ref":3}`)
	w.add(Signal, 0, "", `{"key":"s2","name":"mail","res":[{"a":1}]}`)
	w.add(Signal, 0, "", `{"key":"s3","name":"mail"}`)
	w.add(Queued, 0, "", `{"id":"later","flow":"triage"}`)
	w.add(Paused, w.seq, "", `{}`)
	w.add(Queued, 0, "", `{"id":"steer","flow":"triage","policy":"steer"}`)
	w.add(Queued, 0, "", `{"id":"steer","flow":"triage"}`)
	return w
}

func TestSnapshotIsTheThread(t *testing.T) {
	lines := rich().lines
	for k := range len(lines) + 1 {
		th := mustFold(t, lines[:k])
		data, err := th.Snapshot()
		if (err == nil) != (th.Active() == nil) {
			t.Fatalf("after %d entries, %s: error %v", k, tell(th), err)
		}
		if err != nil {
			continue
		}
		got := mustRestore(t, data)
		if d := differ(bare(th, ended(th)), got, lines); d != "" {
			t.Fatalf("after %d entries it comes back changed (-was +is):\n%s", k, d)
		}
		if got.State == nil || got.Deps == nil || got.Spent == nil {
			t.Fatalf("after %d entries a map is missing that entries write to: %+v", k, got)
		}
		for _, a := range got.asks.all() {
			if a.Run != got.Run(a.Run.N) {
				t.Fatalf("after %d entries the run of ask %s is a copy", k, a.ID)
			}
		}
		if again := mustSnapshot(t, got); !bytes.Equal(again, data) {
			t.Fatalf("a second snapshot is\n%s, the first\n%s", again, data)
		}
	}
}

func TestSnapshotKeepsBytesOfValues(t *testing.T) {
	for _, v := range []Value{
		{}, {JSON: []byte(`null`)}, {JSON: []byte(`""`)}, {JSON: []byte(`{}`)}, {JSON: []byte(`[]`)}, {JSON: []byte(`1,2`)},
		{JSON: []byte("\"\xff\"")}, {JSON: []byte(`{"b":[1.0e1],"a":9007199254740993}`)}, {JSON: []byte(`"]\""`)}, {JSON: []byte(`"\u003c<&\u2028"`)}, {JSON: []byte("\"\u2028\"")},
		{JSON: []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))},
		{Blob: &blob.Ref{}}, {Blob: &blob.Ref{Hash: "h", Size: -1}},
	} {
		th := NewThread()
		th.Signals = []Pending{{Seq: 1, Value: v}}
		if d := differ(th, mustRestore(t, mustSnapshot(t, th)), nil); d != "" {
			t.Errorf("the value %s comes back changed:\n%s", v.JSON, d)
		}
	}
}

func TestNoSnapshotOfWhatIsNotUnderstood(t *testing.T) {
	w := rich()
	w.add("from-the-future", 0, "", `{}`)
	if data, err := mustFold(t, w.lines).Snapshot(); err == nil {
		t.Errorf("a newer binary would miss an entry in %s", data)
	}
}

func TestDamagedSnapshotIsAnError(t *testing.T) {
	data := mustSnapshot(t, mustFold(t, rich().lines))
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			if _, err := Restore(data); err == nil {
				t.Fatalf("a flip of bit %d of byte %d is not found: %s", bit, i, data)
			}
			data[i] ^= 1 << bit
		}
		if _, err := Restore(data[:i]); err == nil {
			t.Fatalf("the first %d bytes are taken for a snapshot", i)
		}
	}
	if _, err := Restore(append(bytes.Clone(data), ' ')); err == nil {
		t.Fatal("a space after a snapshot is taken for a part of it")
	}
	mustRestore(t, data)
	sum := Hash(sha256.Sum256(data[hashSize:]))
	if _, err := Restore(append([]byte(sum.String()), data[hashSize:]...)); err == nil {
		t.Fatal("a snapshot of a binary with another shape is taken for one of this")
	}
}

// TestSnapshotKeepsEveryField finds fields that a snapshot leaves out by accident.
func TestSnapshotKeepsEveryField(t *testing.T) {
	without := map[string]string{
		"Thread.Runs": "in snapshot.Runs", "Thread.Inbox": "in snapshot.Inbox", "Thread.asks": "in snapshot.Asks", "Thread.heard": "in snapshot.Heard", "Thread.State": "in snapshot.State", "Thread.byID": "made by Restore", "Thread.open": "made by Restore", "Run.asks": "made by Restore", "Ask.Run": "made by Restore",
		"Thread.ended": "those of Restore are past", "Thread.weight": "made by Restore", "Thread.held": "nothing is read yet", "Link.read": "nothing is read yet", "Link.held": "made by Restore",
		"Thread.Foreign": "no snapshot", "Thread.Archived": "an erased thread has no snapshot", "Thread.shared": "no base, nothing shared",
		"Run.BaseState": "for a retry", "Run.BaseDeps": "for a retry",
	}
	eachField(reflect.TypeFor[snapshot](), map[reflect.Type]bool{}, func(of reflect.Type, f reflect.StructField) {
		name := of.Name() + "." + f.Name
		if strings.HasPrefix(name, "table[") {
			return // its field in the thread is listed
		}
		if _, known := without[name]; !known && (!f.IsExported() || f.Tag.Get("json") == "-") {
			t.Errorf("a snapshot does not keep %s: export it, or say here why", name)
		}
		delete(without, name)
	})
	for name := range without {
		t.Errorf("there is no field %s; remove it from the list", name)
	}
}
