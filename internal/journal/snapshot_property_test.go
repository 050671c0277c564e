package journal

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// author draws plausible and nearly plausible next entries of a thread.
type author struct {
	*rapid.T
	w  writer
	th *Thread
}

func (a *author) of(what string, choices ...string) string {
	return rapid.SampledFrom(choices).Draw(a.T, what)
}

// maybe returns a field of a body, or nothing.
func (a *author) maybe(part string) string {
	if rapid.Bool().Draw(a.T, part) {
		return part
	}
	return ""
}

// body joins the fields that are not empty.
func body(fields ...string) string {
	return "{" + strings.Join(slices.DeleteFunc(fields, func(f string) bool { return f == "" }), ",") + "}"
}

func (a *author) value() string {
	return a.of("value", `[1]`, `[null]`, `[]`, `["<é>"]`, `[{"a":1}]`, `[9007199254740993]`, `{"hash":"ab","size":70000}`, `["`+strings.Repeat("é", 40)+`"]`, `[["`+strings.Repeat("long", 20)+`"]]`)
}

// commit draws what a step changes.
func (a *author) commit() []string {
	key := a.of("key", "x", "y", "z")
	change := a.of("change", `"res":true`, `"add":3`, `"del":true`, `"set":`+a.value(), `"edit":[{"at":0,"ins":"é"}]`, `"app":[`+a.value()+`,`+a.value()+`]`)
	return []string{
		a.maybe(`"state":[{"k":"` + key + `",` + change + `},{"k":"n","add":1}]`),
		a.maybe(`"deps":{"` + key + `":` + a.value() + `}`),
		a.maybe(`"spend":{"tokens":5}`),
	}
}

const failure = `"fail":{"codes":["c"],"msg":"m","stack":"s"}`

// write draws one entry, and keeps it if the thread accepts it.
func (a *author) write() {
	active, run := a.th.Active(), uint64(0)
	kind := Kind(a.of("kind", string(Queued), string(Queued), string(Signal), string(Metadata), string(Cancel), string(Paused), string(Resumed), string(Retried), string(Forked)))
	switch {
	case active == nil && rapid.Bool().Draw(a.T, "begin"):
		kind = Claimed
	case active != nil && len(a.th.Inbox) > 0 && rapid.Bool().Draw(a.T, "take"):
		kind = Took
	case active != nil && rapid.IntRange(0, 4).Draw(a.T, "end") == 0:
		kind = Ended
	case active != nil && rapid.IntRange(0, 3).Draw(a.T, "any") > 0:
		any := slices.DeleteFunc(slices.Sorted(maps.Values(kinds)), func(k Kind) bool { return k == Moved }) // nothing follows it
		kind = rapid.SampledFrom(append(any, Spawned, Spawned)).Draw(a.T, "any kind")                        // children are rare among the rest
	}
	if active != nil && (!kind.Open() || rapid.Bool().Draw(a.T, "of the active run")) {
		run = active.N
	} else if len(a.th.Runs) > 0 {
		run = rapid.SampledFrom(a.th.Runs).Draw(a.T, "run").N
	}
	path := a.of("path", "/a", "/a/b", "/c", "/\"\n")
	if kind == Queued || kind == Metadata || kind == Created || fences[kind] || kind == Signal && rapid.Bool().Draw(a.T, "early") {
		run, path = 0, ""
	} else if kind == Nudge {
		path = ""
	}
	before := a.w
	e := a.w.next(kind, run, path, a.body(kind))
	a.w.put(e)
	if _, err := a.th.Read(e.Seq, a.w.lines[len(a.w.lines)-1]); err != nil {
		a.w = before
	}
}

func (a *author) body(kind Kind) string {
	due := a.maybe(fmt.Sprintf(`"due":%d`, a.w.seq*10+50))
	res := a.maybe(`"res":` + a.value())
	asks := []string{"none"}
	for _, id := range askIDs(a.th) {
		asks = append(asks, id, id)
	}
	switch kind {
	case Queued:
		id := fmt.Sprintf("r%d", a.w.seq)
		if len(a.th.Runs) > 0 && rapid.IntRange(0, 4).Draw(a.T, "id twice") == 0 {
			id = rapid.SampledFrom(everyRun(a.th)).Draw(a.T, "run with the id").ID
		}
		return body(`"id":"`+id+`"`, a.maybe(`"flow":"f"`), a.maybe(`"key":"k"`), a.maybe(`"budget":{"tokens":0}`), a.maybe(`"by":"ann"`),
			`"policy":"`+a.of("policy", PolicyEnqueue, PolicySteer, PolicySteer, PolicyBeside)+`"`, res)
	case Created, Metadata:
		return a.of("meta", `{"thread":"t","title":"T"}`, `{"meta":{"a":"1","b":"2"}}`, `{"meta":{"a":""}}`, `{"title":""}`)
	case Claimed:
		return a.of("claim", `{"worker":"w","version":"v1"}`, `{"worker":"v","version":"v2"}`)
	case Nudge:
		return a.of("nudge", `{}`, `{"name":"rests"}`, `{"name":"acts"}`)
	case Blocked:
		return a.of("block", `{"version":"v1","diff":"d"}`, `{"version":"v2","diff":"d"}`)
	case Step, Dumped, Suspended:
		return body(append(a.commit(), a.maybe(failure), a.maybe(`"verb":"cleanup"`), a.maybe(`"notdone":true`), res)...)
	case Attempt, Problem, Quarantined:
		return body(failure, due, a.maybe(`"timer":true`))
	case Asked:
		return body(`"ask":{"prompt":"?","schema":{},"decisions":["a"],"who":["b"],"data":`+a.value()+`,"default":{}}`, due)
	case Answered, Expired, Progress:
		return body(`"of":"`+a.of("ask", asks...)+`"`, `"answer":{`+a.maybe(`"by":"ann"`)+`}`, res)
	case Waiting, Signal:
		return body(`"name":"`+a.of("name", "m", "n", ChildSignal("c"))+`"`, `"key":"`+a.of("signal key", "", "s1", "s2", "s3")+`"`, due, a.maybe(failure), a.maybe(`"spend":{"tokens":2}`), res)
	case Received:
		if len(a.th.Signals) > 0 {
			signal := rapid.SampledFrom(a.th.Signals).Draw(a.T, "signal")
			return fmt.Sprintf(`{"ref":%d,"name":%q}`, signal.Seq, signal.Name)
		}
	case Took:
		if len(a.th.Inbox) > 0 {
			return fmt.Sprintf(`{"ref":%d}`, rapid.SampledFrom(a.th.Inbox).Draw(a.T, "input").N)
		}
	case Timer:
		return body(due)
	case Spawned:
		return body(`"child":"c"`, `"flow":"f"`, a.maybe(`"budget":{"tokens":1}`), res)
	case Forked:
		return body(`"from":{"name":"n","thread":"t","head":"h"}`, `"thread":"f"`, a.maybe(`"state":[{"k":"x","add":1},{"k":"y","set":`+a.value()+`}]`))
	case Planned:
		return `{"plan":["a","b"]}`
	case Ended:
		status := a.of("status", string(StatusSucceeded), string(StatusFailed), string(StatusCancelled))
		return body(append(a.commit(), `"status":"`+status+`"`, a.maybe(failure), a.maybe(`"unknown":["/a"]`), res)...)
	}
	return `{}`
}

// journals calls check with random journals.
func journals(t *testing.T, check func(rt *rapid.T, lines [][]byte)) {
	// The seed is fixed, so that every required case occurs. Flags on the command
	// line override it.
	checks := "100"
	if testing.Short() {
		checks = "250" // rapid runs a fifth of them with -short
	}
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.nofailfile": "true", "rapid.checks": checks} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { flag.Set(name, f.DefValue) })
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		a := &author{T: rt, th: NewThread()}
		for range rapid.IntRange(1, 45).Draw(rt, "entries") {
			a.write()
		}
		check(rt, a.w.lines)
	})
}

// TestClonesGoOnByThemselves: for any journal, a clone of a thread folds the rest as
// the thread does, and neither changes the other. That also holds for clones of a
// thread after Rest, which share its past.
func TestClonesGoOnByThemselves(t *testing.T) {
	journals(t, func(rt *rapid.T, lines [][]byte) {
		end := mustFold(t, lines)
		for range 3 {
			k := rapid.IntRange(0, len(lines)).Draw(rt, "at")
			th := mustFold(t, lines[:k])
			first := th.Clone()
			over := ended(th)
			resting := th.Clone()
			resting.Rest()
			clones := []*Thread{first, resting.Clone(), resting.Clone(), first.Clone(), resting.Clone().Clone()}
			clones[len(clones)-1].Rest()
			for n, c := range clones {
				for i, line := range lines[k:] {
					if _, err := c.Read(uint64(k+i)+1, line); err != nil {
						rt.Fatalf("clone %d at %d: %v", n, k, err)
					}
				}
				bases := over
				if n == 0 || n == 3 {
					bases = nil
				}
				if d := differ(bare(end.Clone(), bases), bare(c, bases), lines); d != "" {
					rt.Fatalf("clone %d at %d, at the end (-want +got):\n%s", n, k, d)
				}
				if d := differ(mustFold(t, lines[:k]), th, lines); d != "" {
					rt.Fatalf("clone %d at %d has changed the thread (-want +got):\n%s", n, k, d)
				}
				if d := differ(bare(mustFold(t, lines[:k]), over), bare(resting.Clone(), over), lines); d != "" {
					rt.Fatalf("clone %d at %d has changed the past (-want +got):\n%s", n, k, d)
				}
			}
		}
	})
}

// TestSnapshotsGoOnLikeTheirThreads: for any journal, a thread that is restored at
// any boundary and folds the rest equals one that folded everything.
func TestSnapshotsGoOnLikeTheirThreads(t *testing.T) {
	met := map[string]int{}
	journals(t, func(rt *rapid.T, lines [][]byte) {
		for k := range len(lines) + 1 {
			th := mustFold(t, lines[:k])
			data, err := th.Snapshot()
			if (err == nil) != (th.Active() == nil) {
				rt.Fatalf("after %d entries, %s: error %v", k, tell(th), err)
			}
			if err != nil {
				continue
			}
			over := ended(th)
			look(met, th, lines[k:])
			got, err := Restore(data)
			if err != nil {
				rt.Fatalf("after %d entries: %v\n%s", k, err, data)
			}
			for i, line := range lines[k:] {
				seq := uint64(k+i) + 1
				if _, err := th.Read(seq, line); err != nil {
					rt.Fatalf("entry %d: %v", seq, err)
				}
				if _, err := got.Read(seq, line); err != nil {
					rt.Fatalf("restored at %d, entry %d: %v", k, seq, err)
				}
				if a, b := answers(th), answers(whole(got, lines)); a != b {
					rt.Fatalf("restored at %d, after entry %d\n got %s\nwant %s\nsnapshot %s", k, seq, b, a, data)
				}
			}
			a, errA := th.Snapshot()
			b, errB := got.Snapshot()
			if !bytes.Equal(a, b) || (errA == nil) != (errB == nil) {
				rt.Fatalf("restored at %d, snapshot at the end\n got %s, %v\nwant %s, %v", k, b, errB, a, errA)
			}
			if d := differ(bare(th, over), bare(got, over), lines); d != "" {
				rt.Fatalf("restored at %d, at the end (-want +got):\n%s", k, d)
			}
		}
	})
	for _, what := range []string{"queued", "inbox", "taken", "signals", "asks", "failed", "retried", "shared", "id twice", "tail", "text", "left in the journal", "paused", "children", "forks", "rest"} {
		if met[what] < 10 {
			t.Errorf("%q occurred only %d times: the journals are not varied enough", what, met[what])
		}
	}
	t.Log(met)
}

// answers returns the results of a thread's queries.
func answers(th *Thread) string {
	var b strings.Builder
	b.WriteString(tell(th))
	for _, name := range []string{"m", "n"} {
		r, path := th.Receiver(name)
		fmt.Fprint(&b, "; ", name, " goes to ", id(r), path)
	}
	fmt.Fprint(&b, "; ", id(th.Active()), id(th.Busy()), th.HeardAt("s1"), th.HeardAt("s2"), th.HeardAt("s3"), th.Seq, th.Time, th.Epoch, th.Head)
	for _, r := range everyRun(th) {
		fmt.Fprint(&b, "; ", r.N, id(th.RunByID(r.ID)), id(th.Run(r.N)), r.Taken, r.Due(), r.Resumes(), r.Lost())
	}
	return b.String()
}

func id(r *Run) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%s@%d", r.ID, r.N)
}

// look counts the features of a thread that a snapshot is taken of.
func look(met map[string]int, th *Thread, rest [][]byte) {
	count := func(what string, is bool) {
		if is {
			met[what]++
		}
	}
	tail, text, left := false, false, 0
	for _, item := range th.State {
		for _, v := range append(item.Values(), item.Base) {
			if v.At != 0 && len(v.JSON) > shortValue {
				left++
			}
		}
		tail, text = tail || item.Tail != nil, text || item.Text
	}
	failed, paused, twice, children := false, false, false, false
	for _, r := range everyRun(th) {
		failed = failed || r.Status == StatusFailed && r.BaseState != nil
		paused = paused || r.Status == StatusPaused
		twice = twice || th.RunByID(r.ID) != r
		children = children || len(r.Children) > 0
	}
	retried := slices.ContainsFunc(rest, func(line []byte) bool { return bytes.Contains(line, []byte(`"k":"retried"`)) })
	count("queued", th.Busy() != nil)
	count("inbox", len(th.Inbox) > 0)
	count("taken", len(th.taken()) > 0)
	count("signals", len(th.Signals) > 0)
	count("asks", len(askIDs(th)) > 0)
	count("failed", failed)
	count("retried", failed && retried)
	count("shared", th.shared)
	count("id twice", twice)
	count("tail", tail)
	count("text", text)
	count("left in the journal", left > 0)
	count("paused", paused)
	count("children", children)
	count("forks", th.Fork != nil)
	count("rest", len(rest) > 10)
}

// TestSnapshotFitsItsJournalOnly: only an entry of the same journal can follow a
// snapshot.
func TestSnapshotFitsItsJournalOnly(t *testing.T) {
	w, other := rich(), &writer{}
	for range w.lines {
		other.add(Nudge, 0, "", `{}`)
	}
	data := mustSnapshot(t, mustFold(t, other.lines))
	next := w.add(Nudge, 0, "", `{}`)
	if _, err := mustRestore(t, data).Read(next.Seq, w.lines[next.Seq-1]); err == nil {
		t.Error("a snapshot of another journal continues with this one")
	}
	mine := mustSnapshot(t, mustFold(t, w.lines[:next.Seq-1]))
	if _, err := mustRestore(t, mine).Read(next.Seq, w.lines[next.Seq-1]); err != nil {
		t.Errorf("a snapshot of this journal does not continue with it: %v", err)
	}
}
