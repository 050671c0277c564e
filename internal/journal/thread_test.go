package journal

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/blob"
)

func TestAnyPrefixIsAThread(t *testing.T) {
	lines := everyKind().lines
	whole := NewThread()
	for i, line := range lines {
		if _, err := whole.Read(uint64(i)+1, line); err != nil {
			t.Fatal(err)
		}
		prefix := mustFold(t, lines[:i+1])
		if !reflect.DeepEqual(prefix, whole) {
			t.Fatalf("the fold of %d entries depends on when it is made:\n%s\n%s", i+1, tell(prefix), tell(whole))
		}
	}
	if again := mustFold(t, lines); !reflect.DeepEqual(again, whole) {
		t.Errorf("the same bytes fold to\n%s and\n%s", tell(again), tell(whole))
	}
}

// TestFoldOfEveryKind checks what the tables do not show.
func TestFoldOfEveryKind(t *testing.T) {
	th := mustFold(t, everyKind().lines)
	run := th.RunByID("one")
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"thread", []string{th.ID, th.Tenant, th.User, th.Title}, []string{"t-2", "acme", "ann", "Refund of 7"}},
		{"metadata", th.Meta, map[string]string{"b": "2"}},
		{"created", th.Created, int64(500)},
		{"time", th.Time, int64(570)},
		{"epoch", th.Epoch, uint64(8)},
		{"run by number", th.Run(2), run},
		{"no run by number", th.Run(3), (*Run)(nil)},
		{"flow", []string{run.Flow, run.Policy, run.Key, run.Trace, run.By}, []string{"triage", "enqueue", "k", "00-1-1-00", "ann"}},
		{"budget", run.Budget, map[string]int64{"tokens": 100}},
		{"input", string(run.Input.JSON), `"ticket 7"`},
		{"start", []int64{run.Created, int64(run.Start), run.Started, run.Ended, int64(run.EndSeq)}, []int64{20, 4, 40, 440, 44}},
		{"plan", run.Plan, []string{"find", "pay"}},
		{"steps", run.Steps, 4},
		{"last", run.Last, "/undo"},
		{"claims", []int{run.Claims, run.Resumes(), run.Retries}, []int{6, 5, 2}},
		{"version", run.Version, "v1"},
		{"fail", run.Fail, &Failure{Codes: []string{"cancelled"}, Msg: "cancelled"}},
		{"unknown", run.Unknown, []string{"/pay"}},
		{"errors", len(run.Errors), 3},
		{"spent", []any{th.Spent, run.Spent}, []any{map[string]int64{"tokens": 12}, map[string]int64{"tokens": 12}}},
		{"the ask", []any{th.Ask("i12").Answer.Decision, th.Ask("i12").AnswerAt, len(th.Ask("i12").Progress)}, []any{"done", int64(160), 1}},
		{"the expired ask", []any{th.Ask("i37").Expired, string(th.Ask("i37").Answer.Value.JSON), th.Ask("i37").Due}, []any{true, "false", int64(400)}},
		{"steering that was taken", th.RunByID("more").Taken, uint64(2)},
		{"key of a signal", []bool{th.Heard("s1"), th.Heard("s2"), th.Heard("")}, []bool{true, false, false}},
		{"dep", th.Deps["cart"].Blob.Size, int64(70000)},
		{"busy", []*Run{th.Busy(), th.Active()}, []*Run{th.RunByID("two"), th.RunByID("two")}},
		{"fork", []any{th.Fork.Thread, th.Parent, th.Erased}, []any{"t-1", (*Origin)(nil), true}},
		{"what a run waits for whose branches are closed", []any{len(th.RunByID("two").Waits), th.RunByID("two").Waits["/1|c/undo/nap"].Cleaning}, []any{1, true}},
		{"the child of a fork's run", th.RunByID("two").Children[0].Stale, true},
		{"branch that failed", th.RunByID("two").Failing["/1|b"].Fail.Msg, "/b/pay: declined"},
		{"state", string(th.State["tone"].Base.JSON), `"brisk"`},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

// TestRunSeesTheStateAtItsStart: a run's base has neither what other runs commit
// meanwhile nor what the run itself commits.
func TestRunSeesTheStateAtItsStart(t *testing.T) {
	w := &writer{}
	w.add(Created, 0, "", `{"thread":"t"}`)
	a := w.add(Queued, 0, "", `{"id":"a"}`).Seq
	w.add(Claimed, a, "", `{}`)
	w.add(Step, a, "/1", `{"state":[{"k":"x","set":["a1"]},{"k":"l","app":[["a1"]]}],"deps":{"d":["a1"]}}`)
	w.add(Suspended, a, "", `{}`)
	b := w.add(Queued, 0, "", `{"id":"b","policy":"beside"}`).Seq
	w.add(Claimed, b, "", `{}`)
	w.add(Step, b, "/1", `{"state":[{"k":"x","set":["b1"]},{"k":"l","app":[["b1"]]}],"deps":{"d":["b1"],"e":["b1"]}}`)
	w.add(Suspended, b, "", `{}`)
	w.add(Claimed, a, "", `{}`)
	w.add(Step, a, "/2", `{"state":[{"k":"l","app":[["a2"]]}],"deps":{"d":["a2"]}}`)
	w.add(Ended, a, "", `{"status":"failed"}`)
	c := w.add(Queued, 0, "", `{"id":"c","policy":"beside"}`).Seq
	w.add(Claimed, c, "", `{}`)
	w.add(Step, c, "/1", `{"state":[{"k":"x","del":true}]}`)
	th := mustFold(t, w.lines)

	state := func(m map[string]Item) string { return show(m["x"]) + " " + show(m["l"]) }
	dep := func(m map[string]Value) string { return string(m["d"].JSON) + string(m["e"].JSON) }
	for _, tc := range []struct{ run, state, deps, seen string }{
		{"a", ` `, ``, ``}, // it failed, and cannot be retried since c has begun
		{"b", `"a1" +"a1"`, `"a1"`, `"b1""b1"`},
		{"c", `"b1" +"a1"+"b1"+"a2"`, `"a2""b1"`, `"a2""b1"`},
	} {
		r := th.RunByID(tc.run)
		if got := state(r.BaseState); got != tc.state {
			t.Errorf("run %s began with the state %s, want %s", tc.run, got, tc.state)
		}
		if got := dep(r.BaseDeps); got != tc.deps {
			t.Errorf("run %s began with the deps %s, want %s", tc.run, got, tc.deps)
		}
		if got := dep(r.DumpsAt()); got != tc.seen {
			t.Errorf("run %s sees the deps %s, want %s", tc.run, got, tc.seen)
		}
	}
	if got := state(th.State); got != ` +"a1"+"b1"+"a2"` {
		t.Errorf("the state is %s", got)
	}

	w.add(Ended, c, "", `{"status":"succeeded"}`)
	th = mustFold(t, w.lines)
	if r := th.RunByID("c"); r.BaseState != nil || r.BaseDeps != nil {
		t.Error("a run that cannot be executed again keeps its base")
	}
}

func TestOldestReceiverGetsTheSignal(t *testing.T) {
	w := &writer{}
	w.add(Created, 0, "", `{"thread":"t"}`)
	a := w.add(Queued, 0, "", `{"id":"a"}`).Seq
	w.add(Claimed, a, "", `{}`)
	w.add(Suspended, a, "", `{}`)
	b := w.add(Queued, 0, "", `{"id":"b","policy":"beside"}`).Seq
	w.add(Claimed, b, "", `{}`)
	w.add(Waiting, b, "/1|x/m", `{"name":"m"}`)
	w.add(Waiting, b, "/1|y/m", `{"name":"m"}`)
	w.add(Waiting, b, "/1|z/n", `{"name":"n"}`)
	w.add(Suspended, b, "", `{}`)
	w.add(Claimed, a, "", `{}`)
	w.add(Waiting, a, "/m", `{"name":"m"}`)
	expect := func(name, run, path string) {
		t.Helper()
		r, p := mustFold(t, w.lines).Receiver(name)
		got := ""
		if r != nil {
			got = r.ID
		}
		if got != run || p != path {
			t.Errorf("%s goes to %s %s, want %s %s", name, got, p, run, path)
		}
	}
	expect("m", "b", "/1|x/m")
	expect("n", "b", "/1|z/n")
	expect("o", "", "")
	w.add(Signal, b, "/1|x/m", `{"name":"m"}`)
	expect("m", "b", "/1|y/m")
	w.add(Fired, b, "/1|y/m", `{"fail":{"msg":"timeout"}}`)
	expect("m", "a", "/m")
	w.add(Cancel, a, "", `{}`)
	expect("m", "", "") // a cancelled run receives nothing
}

func TestTimeNeverGoesBack(t *testing.T) {
	w := &writer{}
	for _, at := range []int64{50, 20, 60, -5} {
		e := w.next(Nudge, 0, "", "{}")
		e.Time = at
		w.put(e)
	}
	var got []int64
	for i := range w.lines {
		got = append(got, mustFold(t, w.lines[:i+1]).Time)
	}
	if want := []int64{50, 50, 60, 60}; !slices.Equal(got, want) {
		t.Errorf("times %v, want %v", got, want)
	}
}

func TestSumSaturates(t *testing.T) {
	const most, least = 1<<63 - 1, -1 << 63
	for _, c := range []struct{ a, b, want int64 }{
		{1, 2, 3}, {-1, 1, 0}, {most, 0, most}, {most, 1, most}, {1, most, most}, {most, most, most},
		{least, 0, least}, {least, -1, least}, {-1, least, least}, {least, least, least}, {most, least, -1}, {least, most, -1},
	} {
		if got := Sum(c.a, c.b); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestItemsAreShared: a view that holds an item does not see what is appended
// to it later.
func TestItemsAreShared(t *testing.T) {
	value := func(n int) Value { return Value{JSON: fmt.Appendf(nil, "%d", n)} }
	base, _ := Change{Append: []Value{value(1)}}.Next(Item{})
	left, _ := Change{Append: []Value{value(2), value(3)}}.Next(base)
	right, _ := Change{Append: []Value{value(4)}}.Next(base)
	if show(base) != "+1" || show(left) != "+1+2+3" || show(right) != "+1+4" {
		t.Errorf("items %s, %s, %s", show(base), show(left), show(right))
	}
}

func TestValueForms(t *testing.T) {
	for _, c := range []struct {
		in, out string
		fails   bool
	}{
		{in: `[1]`, out: `[1]`},
		{in: `[null]`, out: `[null]`},
		{in: `[]`, out: `[]`},
		{in: `null`, out: `[]`},
		{in: ` [ [ 1 , 2 ] ] `, out: `[[1,2]]`},
		{in: `[9007199254740993]`, out: `[9007199254740993]`},
		{in: `["<&>\u2028"]`, out: `["<&>\u2028"]`},
		{in: `{"hash":"ab","size":3}`, out: `{"hash":"ab","size":3}`},
		{in: `{"hash":"ab","size":3,"new":1}`, out: `{"hash":"ab","size":3}`},
		{in: `"x"`, fails: true},
		{in: `1`, fails: true},
		{in: `true`, fails: true},
	} {
		b, err := (&Entry{Body: []byte(`{"name":"n","res":` + c.in + `}`)}).Read()
		if c.fails {
			if err == nil {
				t.Errorf("%s is read as %+v", c.in, b.Value)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		out, err := b.Encode()
		want := `{"name":"n","res":` + c.out + `}`
		if b.Value.IsZero() {
			want = `{"name":"n"}`
		}
		if err != nil || string(out) != want {
			t.Errorf("%s is written as %s, %v; want %s", c.in, out, err, want)
		}
	}
	for want, b := range map[string]Body{
		`{}`:                                  {},
		`{"res":{"hash":"ab","size":3}}`:      {Value: Value{Blob: &blob.Ref{Hash: "ab", Size: 3}}},
		`{"ref":7,"res":[1]}`:                 {Ref: 7, Value: Value{JSON: []byte("1")}},
		`{"due":5,"name":"n","plan":["<a>"]}`: {Due: 5, Name: "n", Plan: []string{"<a>"}},
	} {
		if out, err := b.Encode(); err != nil || string(out) != want {
			t.Errorf("a body is written as %s, %v; want %s", out, err, want)
		}
	}
	bad := Body{Value: Value{JSON: []byte(`{"half`)}, Name: "n"}
	if out, err := bad.Encode(); err == nil {
		t.Errorf("invalid JSON is written as %s", out)
	}
}

func TestErrNewerNamesTheFormats(t *testing.T) {
	_, err := Decode(Hash{}, 1, []byte(`{"v":3,`))
	if !errors.Is(err, ErrNewer) || err.Error() != "written by a newer version: format 3, this one reads up to 1" {
		t.Errorf("error %v", err)
	}
}
