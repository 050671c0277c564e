package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure/internal/blob"
)

// differ says in what two threads differ, unexported fields included. What is
// empty is equal to what is not there.
func differ(a, b *Thread) string {
	return gocmp.Diff(a, b, cmpopts.EquateEmpty(), gocmp.AllowUnexported(Thread{}, Run{}, Ask{}, Item{}, Link{}, Pending{}, Note{}, Wait{}))
}

// bare takes from the runs with these numbers what a snapshot leaves out.
func bare(th *Thread, ended []uint64) *Thread {
	for _, r := range th.placed() {
		if slices.Contains(ended, r.run.N) {
			r.run.BaseState, r.run.BaseDeps, r.run.Dumps = nil, nil, nil
		}
	}
	return th
}

func ended(th *Thread) []uint64 {
	var all []uint64
	for _, r := range th.placed() {
		if r.run.Status.Final() {
			all = append(all, r.run.N)
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

// resum makes the thread of a snapshot fit its head and hash.
func resum(thread string) []byte {
	rest := threadMark + thread + threadEnd
	sum := Hash(sha256.Sum256([]byte(rest)))
	return []byte(snapshotHead() + sum.String() + rest)
}

// inner returns the thread of a snapshot.
func inner(data []byte) string {
	return string(data[len(snapshotHead())+hashSize+len(threadMark) : len(data)-len(threadEnd)])
}

// rich returns a journal that ends at a boundary and leaves something in all
// fields: ended runs, one that failed, one queued, steering that was taken and
// some that was not, signals, asks, notes, state and deps.
func rich() *writer {
	w := everyKind()
	w.add(Claimed, 45, "", `{"worker":"w5","version":"v1"}`)
	w.add(Ended, 45, "", `{"status":"succeeded"}`)
	w.add(Queued, 0, "", `{"id":"bad","flow":"triage","budget":{"tokens":0},"res":{"hash":"00","size":70000}}`)
	w.add(Claimed, w.seq, "", `{"worker":"w5","version":"v1"}`)
	run := w.seq - 1
	w.add(Step, run, "/a\"\\\n\x01<&>é\u2028", `{"fail":{"codes":["x"],"msg":""},"state":[{"k":"zero","set":[]},{"k":"log","app":[["<&>"],[],[ 1 , 2 ],[9007199254740993]]}]}`)
	w.add(Intent, run, "/once", `{}`)
	w.add(Ended, run, "", `{"status":"failed","fail":{"msg":"no"},"ref":3}`)
	w.add(Signal, 0, "", `{"key":"s2","name":"mail","res":[{ "a" : 1 }]}`)
	w.add(Signal, 0, "", `{"key":"s3","name":"mail"}`)
	w.add(Queued, 0, "", `{"id":"later","flow":"triage"}`)
	w.add(Paused, w.seq, "", `{}`)
	w.add(Queued, 0, "", `{"id":"steer","flow":"triage","policy":"steer"}`)
	return w
}

func TestSnapshotIsTheThread(t *testing.T) {
	lines := rich().lines
	for k := range len(lines) + 1 {
		th := mustFold(t, lines[:k])
		data, err := th.Snapshot()
		if (err == nil) != (th.Active() == nil) {
			t.Fatalf("behind %d entries, %s: error %v", k, tell(th), err)
		}
		if err != nil {
			continue
		}
		if !json.Valid(data) {
			t.Fatalf("it is no JSON: %s", data)
		}
		got := mustRestore(t, data)
		if d := differ(bare(th, ended(th)), got); d != "" {
			t.Fatalf("behind %d entries it comes back changed (-was +is):\n%s", k, d)
		}
		if got.State == nil || got.Deps == nil || got.Spent == nil || got.Asks == nil || got.byID == nil {
			t.Fatalf("behind %d entries a map is missing that entries write to: %+v", k, got)
		}
		for _, a := range got.Asks {
			if a.Run != got.Run(a.Run.N) {
				t.Fatalf("behind %d entries ask %s has a run of its own", k, a.ID)
			}
		}
		if again := mustSnapshot(t, got); !bytes.Equal(again, data) {
			t.Fatalf("a second snapshot is\n%s, the first\n%s", again, data)
		}
	}
}

// TestSnapshotKeepsBytes: names and values that are odd come back as they were,
// or there is no snapshot.
func TestSnapshotKeepsBytes(t *testing.T) {
	signal := func(v Value) *Thread {
		th := NewThread()
		th.Signals = []Pending{{Seq: 1, Value: v}}
		return th
	}
	for _, v := range []Value{
		{}, {JSON: []byte(`null`)}, {JSON: []byte(`""`)}, {JSON: []byte(`{}`)}, {JSON: []byte(`[]`)}, {JSON: []byte(`1,2`)},
		{JSON: []byte("\"\xff\"")}, {JSON: []byte("{ \"a\" :\t[ 1.0e1 ] }")}, {JSON: []byte(`"]\""`)}, {JSON: []byte(`"\u003c<"`)},
		{JSON: []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))},
		{Blob: &blob.Ref{}}, {Blob: &blob.Ref{Hash: "h", Size: -1}},
	} {
		th := signal(v)
		if d := differ(th, mustRestore(t, mustSnapshot(t, th))); d != "" {
			t.Errorf("the value %s comes back changed:\n%s", v.JSON, d)
		}
	}
	for _, bad := range []string{` `, ` 1`, `1 `, `1 2`, `1]`, `[`, `"`, `1],"x":[2`, `{"a"}`, `nul`} {
		if data, err := signal(Value{JSON: []byte(bad)}).Snapshot(); err == nil {
			t.Errorf("the value %q is in the snapshot %s", bad, data)
		}
	}
	var all []byte
	for ch := range 256 {
		all = append(all, byte(ch))
	}
	for _, s := range []string{string(all), `\`, `\\`, `\"`, `"`, `\u0001`, "\u2028", "\x7f\x00", "\xff", `u0041`} {
		th := NewThread()
		th.Title, th.Meta, th.keys = s, map[string]string{s: s, "": ""}, map[string]bool{s: true, "": true}
		if d := differ(th, mustRestore(t, mustSnapshot(t, th))); d != "" {
			t.Errorf("the text %q comes back changed:\n%s", s, d)
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

func TestNoSnapshotOfAnInconsistentThread(t *testing.T) {
	for name, spoil := range map[string]func(th *Thread){
		"runs out of order":      func(th *Thread) { slices.Reverse(th.Runs) },
		"a run twice":            func(th *Thread) { th.Runs = append(th.Runs, th.Runs[0]) },
		"a wait for nothing":     func(th *Thread) { th.Runs[0].Waits = map[string]*Wait{"/a": nil} },
		"steering twice":         func(th *Thread) { th.Inbox = append(th.Inbox, th.Inbox[0]) },
		"a run without its id":   func(th *Thread) { delete(th.byID, th.Runs[0].ID) },
		"a run under another id": func(th *Thread) { th.byID["other"] = th.Runs[0] },
		"a run of the future":    func(th *Thread) { th.Runs[len(th.Runs)-1].N = th.Seq + 1 },
		"an ask of a stray run":  func(th *Thread) { th.Asks["i12"].Run = &Run{N: 2} },
		"an ask of no such run":  func(th *Thread) { th.Asks["i12"].Run = &Run{N: 3} },
		"an ask under another id": func(th *Thread) {
			th.Asks["other"] = th.Asks["i12"]
			delete(th.Asks, "i12")
		},
		"an ask of the future": func(th *Thread) { th.Asks["i12"].Seq = th.Seq + 1 },
		"two asks at one time": func(th *Thread) { th.Asks["i12"].Seq = th.Asks["i37"].Seq },
	} {
		th := mustFold(t, rich().lines)
		spoil(th)
		if data, err := th.Snapshot(); err == nil {
			t.Errorf("%s: %s", name, data)
		}
	}
}

func TestEveryFlippedBitIsAnError(t *testing.T) {
	data := mustSnapshot(t, mustFold(t, rich().lines))
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			if _, err := Restore(data); err == nil {
				t.Fatalf("bit %d of byte %d can be another one: %s", bit, i, data)
			}
			data[i] ^= 1 << bit
		}
	}
	for n := range data {
		if _, err := Restore(data[:n]); err == nil {
			t.Fatalf("the first %d bytes are taken for a snapshot", n)
		}
		if _, err := Restore(data[n+1:]); err == nil {
			t.Fatalf("a snapshot without its first %d bytes is taken for one", n+1)
		}
	}
	for _, more := range []string{" ", "\n", "}", "\x00"} {
		if _, err := Restore(append(bytes.Clone(data), more...)); err == nil {
			t.Fatalf("%q behind a snapshot is taken for a part of it", more)
		}
	}
	mustRestore(t, data)
}

// TestOnlyOneFormIsRead: also a snapshot whose hash fits is refused, unless it
// is exactly what the thread in it would be written as.
func TestOnlyOneFormIsRead(t *testing.T) {
	whole := inner(mustSnapshot(t, mustFold(t, rich().lines)))
	check := func(thread string) {
		t.Helper()
		data := resum(thread)
		if th, err := Restore(data); err == nil {
			if again, err := th.Snapshot(); err != nil || !bytes.Equal(again, data) {
				t.Fatalf("read:    %s\nwritten: %s, %v", data, again, err)
			}
		}
	}
	const odd = `01-"\,:]{ na`
	for i := range whole {
		check(whole[:i])
		check(whole[:i] + whole[i+1:])
		for k := range 2 {
			ch := odd[(i+4*k)%len(odd) : (i+4*k)%len(odd)+1]
			check(whole[:i] + ch + whole[i+1:])
			check(whole[:i] + ch + whole[i:])
		}
	}
	for _, bad := range []string{``, `{`, `null`, `[]`, `{}}`, ` {}`, `{"seq":0}`, `{"seq":01}`, `{"seq":-1}`, `{"seq":1.0}`, `{"seq":}`, `{"seq":18446744073709551616}`,
		`{"time":9223372036854775808}`, `{"seq":1,"seq":1}`, `{"time":1,"seq":1}`, `{"seq":1,}`, `{,"seq":1}`, `{"new":1}`,
		`{"id":""}`, `{"id":"\u0041"}`, `{"id":"\n"}`, `{"id":"\/"}`, `{"id":"\u000A"}`, `{"head":"AA"}`, `{"head":"` + strings.Repeat("A", 43) + `"}`, `{"head":"` + strings.Repeat("A", 42) + `B"}`,
		`{"meta":{}}`, `{"meta":{"b":"","a":""}}`, `{"meta":{"a":"","a":""}}`, `{"meta":{"a":1}}`, `{"keys":["b","a"]}`, `{"keys":["a","a"]}`, `{"keys":["a",]}`, `{"shared":false}`,
		`{"state":{"k":[]}}`, `{"state":{"k":[[ 1]]}}`, `{"state":{"k":[[1 2]]}}`, `{"state":{"k":[[1]}]}`, `{"state":{"k":[[]`, `{"deps":{"k":null}}`, `{"deps":{"k":{"size":0}}}`,
		`{"seq":9,"runs":[{}]}`, `{"seq":9,"runs":[{"n":2},{"n":2}]}`, `{"seq":9,"runs":[{"n":2},{"n":1}]}`, `{"seq":9,"runs":[{"n":10}]}`, `{"seq":9,"runs":[{"n":1,"in":"x"}]}`,
		`{"seq":9,"runs":[{"n":1,"waits":{"/a":null}}]}`, `{"seq":9,"runs":[{"n":1,"children":[null]}]}`,
		`{"seq":9,"runs":[{"n":1,"start":2}]}`, `{"seq":9,"runs":[{"n":1,"flow":"a"},{"n":2,"flow":"a"}]}`, `{"seq":9,"runs":[{"n":1,"id":"a","in":"taken"},{"n":2,"id":"a"}]}`,
		`{"seq":9,"runs":[{"n":1}],"asks":[{"id":"a","run":2,"seq":3}]}`, `{"seq":9,"runs":[{"n":1}],"asks":[{"id":"a","run":1,"seq":10}]}`,
		`{"seq":9,"runs":[{"n":1}],"asks":[{"id":"a","run":1,"seq":2},{"id":"a","run":1,"seq":3}]}`, `{"seq":9,"runs":[{"n":1}],"asks":[{"id":"a","run":1,"seq":3},{"id":"b","run":1,"seq":3}]}`,
	} {
		if th, err := Restore(resum(bad)); err == nil {
			t.Errorf("%s is read as %s", bad, tell(th))
		}
	}
	for _, good := range []string{`{}`, `{"seq":9,"runs":[{"n":1,"id":"a","flow":"f"},{"n":2,"id":"a","flow":""}],"asks":[{"id":"a","run":1,"seq":3}]}`} {
		if got := mustSnapshot(t, mustRestore(t, resum(good))); inner(got) != good {
			t.Errorf("%s is written as %s", good, inner(got))
		}
	}
}

// TestSnapshotKnowsEveryField: a field that is added to what a thread is made
// of has to be added to the codec too.
func TestSnapshotKnowsEveryField(t *testing.T) {
	f := &filler{skip: map[string]bool{
		"Thread.Runs": true, "Thread.Inbox": true, "Thread.Asks": true, "Thread.byID": true, // below
		"Thread.Foreign": true,                                          // no snapshot then
		"Run.BaseState":  true, "Run.BaseDeps": true, "Run.Dumps": true, // not needed any more, see below
		"Ask.Run": true, "Link.Prev": true,
	}}
	th := &Thread{byID: map[string]*Run{}, Asks: map[string]*Ask{}}
	f.fill(reflect.ValueOf(th).Elem())
	th.Seq = 1 << 20
	run := func(status Status) *Run {
		r := &Run{}
		f.fill(reflect.ValueOf(r).Elem())
		if r.Status = status; !status.Final() {
			r.Start, r.Dumps = 0, map[string]Value{"0": {JSON: []byte("1")}}
		}
		th.byID[r.ID] = r
		return r
	}
	th.Runs = []*Run{run(StatusSucceeded), run(StatusFailed), run(StatusQueued)}
	th.Inbox = []*Run{run(StatusQueued), run(StatusQueued)}
	run(StatusQueued) // taken
	for _, r := range th.Runs[:2] {
		a := &Ask{}
		f.fill(reflect.ValueOf(a).Elem())
		a.Run, th.Asks[a.ID] = r, a
	}
	data := mustSnapshot(t, th)
	if d := differ(th, mustRestore(t, data)); d != "" {
		t.Errorf("the snapshot loses fields (-was +is); give them a line in snapshot.go:\n%s", d)
	}
	for at := range f.skip {
		if !f.met[at] {
			t.Errorf("there is no field %s to leave out any more", at)
		}
	}
	// The shape, which tells apart what binaries know, has them all too.
	sample := codec{mode: naming}
	if NewThread().code(&sample); sample.err != nil || !json.Valid(sample.data) {
		t.Fatalf("the sample is %s, %v", sample.data, sample.err)
	}
	for _, key := range regexp.MustCompile(`"[a-z]+":`).FindAll(data, -1) {
		if name := string(key); !bytes.Contains(sample.data, key) && !strings.Contains(snapshotHead()+threadMark, name) {
			t.Errorf("the field %s is not in the sample %s", name, sample.data)
		}
	}
}

// filler gives each field below a value another value that is not empty.
type filler struct {
	n    int
	skip map[string]bool
	met  map[string]bool
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch to := v.Addr().Interface().(type) {
	case *Value:
		if f.n%2 == 0 {
			to.Blob = &blob.Ref{Hash: fmt.Sprint(f.n), Size: int64(f.n)}
			return
		}
		to.JSON = fmt.Appendf(nil, "%d", f.n)
		return
	case *json.RawMessage:
		*to = fmt.Appendf(nil, "%d", f.n)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", f.n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint64:
		v.SetUint(uint64(f.n))
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 256))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, item := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(item)
			v.SetMapIndex(key, item)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if at := v.Type().Name() + "." + v.Type().Field(i).Name; f.skip[at] {
				if f.met == nil {
					f.met = map[string]bool{}
				}
				f.met[at] = true
				continue
			}
			// Also what is not exported.
			f.fill(reflect.NewAt(v.Field(i).Type(), unsafe.Pointer(v.Field(i).UnsafeAddr())).Elem())
		}
	default:
		panic(fmt.Sprintf("a field of kind %s: teach the filler", v.Kind()))
	}
}
