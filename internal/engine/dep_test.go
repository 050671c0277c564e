package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// log is a resumable dep: a list of lines.
type log struct {
	mu     sync.Mutex
	Lines  []string
	loaded string
	name   string
	on     *logs
}

// logs is what the values of a log dep did.
type logs struct {
	mu     sync.Mutex
	made   int
	did    []string // made, loaded, closed, in order
	dumps  int
	broken func(context.Context) (json.RawMessage, error) // instead of Dump
}

func (l *logs) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did = append(l.did, fmt.Sprintf(format, args...))
}

func (l *logs) breakDump(f func(context.Context) (json.RawMessage, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = f
}

func (l *log) Dump(ctx context.Context) (json.RawMessage, error) {
	l.on.mu.Lock()
	broken := l.on.broken
	l.on.dumps++
	l.on.mu.Unlock()
	if broken != nil {
		return broken(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return json.Marshal(map[string]any{"Lines": l.Lines})
}

func (l *log) Load(_ context.Context, state json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = string(state)
	l.on.note("load %s", l.name)
	return json.Unmarshal(state, &struct{ Lines *[]string }{&l.Lines})
}

func (l *log) Close() error {
	l.on.note("close %s", l.name)
	return nil
}

func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Lines = append(l.Lines, line)
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.Lines, ",")
}

// newLog makes a dep of a log.
func newLog(on *logs, key string, opts ...perdure.DepOption) *perdure.Dep[*log] {
	return perdure.NewDep(key, func(context.Context) (*log, error) {
		on.mu.Lock()
		on.made++
		on.mu.Unlock()
		on.note("make %s", key)
		return &log{on: on, name: key}, nil
	}, opts...)
}

// write is a leaf that adds a line to a dep.
func write(ctx context.Context, dep *perdure.Dep[*log], name string) (string, error) {
	return perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
		l, err := dep.Get(ctx)
		if err != nil {
			return "", err
		}
		l.add(name)
		return l.text(), nil
	})
}

// dumpAt returns the newest dump of a dep.
func dumpAt(k *kit.Kit, thread, id string) string {
	k.T.Helper()
	c, err := k.StateAt(k.T.Context(), thread, 0)
	kit.NoErr(k.T, err)
	return string(c.Deps[id])
}

func TestDepLivesAsLongAsAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		inner := newLog(on, "inner")
		outer := perdure.NewDep("outer", func(ctx context.Context) (*log, error) {
			if _, err := inner.Get(ctx); err != nil {
				return nil, err
			}
			on.note("make outer")
			return &log{on: on, name: "outer"}, nil
		})
		unused := newLog(on, "unused")
		_ = unused
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			a, err := outer.Get(ctx)
			if err != nil {
				return "", err
			}
			on.note("flow sees %q", a.loaded)
			if _, err := write(ctx, outer, "one"); err != nil {
				return "", err
			}
			if b, err := outer.Get(ctx); err != nil || a != b {
				t.Errorf("a second Get gives another value: %v", err)
			}
			if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
				return "", err
			}
			return write(ctx, outer, "two")
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		if got := dumpAt(k, "t", "outer"); got != `{"Lines":["one"]}` {
			t.Errorf("the dump is %s", got)
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: ""})
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "one,two")
		synctest.Wait()
		k.Stop()
		want := []string{
			"make inner", "make outer", `flow sees ""`, "close outer", "close inner",
			"make inner", "load inner", "make outer", "load outer", `flow sees "{\"Lines\":[\"one\"]}"`, "close outer", "close inner",
		}
		kit.NoDiff(t, cmp.Diff(want, on.did))
		_, err := outer.Get(t.Context())
		kit.WantErr(t, "outside a run", err, perdure.ErrNoRun)
	})
}

func TestDepIsSavedWithTheLeafThatChangedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		dep := newLog(on, "log")
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if _, err := write(ctx, dep, "one"); err != nil {
				return "", err
			}
			if _, err := perdure.Step(ctx, "nothing", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			_, err := perdure.Step(ctx, "fails", func(ctx context.Context) (int, error) {
				l, err := dep.Get(ctx)
				if err == nil {
					l.add("of a failure")
				}
				return 0, errors.Join(err, errors.New("no"))
			})
			if err == nil {
				return "", errors.New("it did not fail")
			}
			return write(ctx, dep, "two")
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		at := map[string]string{}
		var before string
		for _, e := range k.EventsOf("t") {
			c, err := k.StateAt(t.Context(), "t", e.Seq)
			kit.NoErr(t, err)
			if now := string(c.Deps["log"]); now != before {
				at[e.Kind+" "+e.Path], before = now, now
			}
		}
		// A step's result and what it changed are one entry; what did not
		// change is not written.
		want := map[string]string{"step /one": `{"Lines":["one"]}`, "step /two": `{"Lines":["one","of a failure","two"]}`}
		kit.NoDiff(t, cmp.Diff(want, at))
		if n := k.KindsOf("t")["dumped"]; n != 0 {
			t.Errorf("%d dumps outside of steps", n)
		}
	})
}

func TestDepStateLivesOnFromRunToRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		dep := newLog(on, "log")
		moved := newLog(on, "moved", perdure.WasKey("log"))
		cold := newLog(on, "cold")
		flow := func(name string, dep *perdure.Dep[*log]) perdure.Flow {
			return perdure.NewFlow(name, func(ctx context.Context, in string) (string, error) { return write(ctx, dep, in) })
		}
		k := kit.New(t, nil, perdure.Options{}, flow("log", dep), flow("moved", moved), flow("cold", cold), kit.EchoFlow("idle"))
		for i, c := range []struct{ flow, in, want string }{
			{"log", "one", "one"},
			{"log", "two", "one,two"},
			{"idle", "", ""}, // a dep that is not used keeps its state
			{"log", "three", "one,two,three"},
			{"moved", "four", "one,two,three,four"},
			{"moved", "five", "one,two,three,four,five"},
			{"cold", "six", "six"}, // a renamed key starts cold
		} {
			k.StartOn("t", c.flow, c.in)
			run := k.WaitFor("t", perdure.Succeeded)
			if out, err := perdure.Output[string](run); out != c.want || err != nil {
				t.Errorf("run %d: %q, %v; want %q", i, out, err, c.want)
			}
		}
		// The old key's state is still there for all to see.
		if got := dumpAt(k, "t", "log"); got != `{"Lines":["one","two","three"]}` {
			t.Errorf("the old key has %s", got)
		}
		// Another thread starts cold.
		k.StartOn("u", "log", "x")
		kit.WantOutput(t, k.WaitFor("u", perdure.Succeeded), "x")
	})
}

func TestPerNodeGivesEachPlaceItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		dep := newLog(on, "log", perdure.PerNode())
		flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			var got [2]string
			g := perdure.NewGroup(ctx)
			for i := range got {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) (err error) {
					l, err := dep.Get(ctx)
					if err != nil {
						return err
					}
					got[i], err = perdure.Step(ctx, "s", func(context.Context) (string, error) {
						l.add(fmt.Sprint(in, i))
						return l.text(), nil
					})
					return err
				})
			}
			err := g.Wait()
			return strings.Join(got[:], " "), err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "x")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "x0 x1")
		k.StartOn("t", "f", "y") // paths carry no run id
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "x0,y0 x1,y1")
		c, err := k.StateAt(t.Context(), "t", 0)
		if err != nil || len(c.Deps) != 2 || string(c.Deps["log@/b1"]) != `{"Lines":["x1","y1"]}` {
			t.Errorf("the dumps are %s, %v", c.Deps, err)
		}
	})
}

func TestTwoBranchesSayWhatTheyMean(t *testing.T) {
	use := func(opts ...perdure.DepOption) perdure.Flow {
		dep := newLog(&logs{}, "log", opts...)
		return perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			g := perdure.NewGroup(ctx)
			for i := range 2 {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) error {
					_, err := write(ctx, dep, fmt.Sprint("s", i))
					return err
				})
			}
			if err := g.Wait(); err != nil {
				return 0, err
			}
			n := 0
			_, err := perdure.Step(ctx, "count", func(ctx context.Context) (int, error) {
				l, err := dep.Get(ctx)
				if err == nil {
					n = len(l.Lines)
				}
				return n, err
			})
			return n, err
		})
	}
	kit.Bubble(t, "neither", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, use())
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Failed)
		if !errors.Is(run.Err, perdure.ErrDep) || !strings.Contains(run.Error, "PerNode") || !strings.Contains(run.Error, "Shared") || !strings.Contains(run.Error, "dep_test.go:") {
			t.Errorf("it failed with %v", run.Error)
		}
	})
	kit.Bubble(t, "Shared", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, use(perdure.Shared()))
		k.StartOn("t", "f", "")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), 2)
		var got struct{ Lines []string }
		if err := json.Unmarshal([]byte(dumpAt(k, "t", "log")), &got); err != nil || len(got.Lines) != 2 {
			t.Errorf("the dump is %s", dumpAt(k, "t", "log"))
		}
	})
	kit.Bubble(t, "one after the other is no conflict", func(t *testing.T) {
		dep := newLog(&logs{}, "log")
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			out := ""
			for i := range 2 {
				g := perdure.NewGroup(ctx)
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) (err error) {
					out, err = write(ctx, dep, fmt.Sprint("s", i))
					return err
				})
				if err := g.Wait(); err != nil {
					return "", err
				}
			}
			return out, nil
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "s0,s1")
	})
}

func TestDepsThatCannotBe(t *testing.T) {
	on := &logs{}
	one, two := newLog(on, "same"), perdure.NewDep("same", func(context.Context) (int, error) { return 1, nil })
	var circle *perdure.Dep[int]
	circle = perdure.NewDep("circle", func(ctx context.Context) (int, error) { return circle.Get(ctx) })
	cases := map[string]struct {
		get  func(context.Context) error
		want []string
	}{
		"two with one key": {func(ctx context.Context) error {
			if _, err := one.Get(ctx); err != nil {
				return fmt.Errorf("the first: %w", err)
			}
			_, err := two.Get(ctx)
			return err
		}, []string{`"same"`, "made at dep_test.go:", "one at dep_test.go:"}},
		"a circle":      {func(ctx context.Context) error { _, err := circle.Get(ctx); return err }, []string{`"circle"`, "itself"}},
		"an empty key":  {func(ctx context.Context) error { _, err := newLog(on, "").Get(ctx); return err }, []string{"empty"}},
		"a factory's @": {func(ctx context.Context) error { _, err := newLog(on, "a@b").Get(ctx); return err }, []string{"@"}},
		"a factory that fails": {func(ctx context.Context) error {
			_, err := perdure.NewDep("bad", func(context.Context) (int, error) { return 0, errors.New("no socket") }).Get(ctx)
			return err
		}, []string{`"bad"`, "no socket"}},
		"a factory that panics": {func(ctx context.Context) error {
			_, err := perdure.NewDep("worse", func(context.Context) (int, error) { panic("boom") }).Get(ctx)
			return err
		}, []string{`"worse"`, "boom"}},
	}
	for name, c := range cases {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) { return true, c.get(ctx) }))
			k.StartOn("t", "f", "")
			run := k.WaitFor("t", perdure.Failed)
			for _, want := range c.want {
				if !errors.Is(run.Err, perdure.ErrDep) || !strings.Contains(run.Error, want) {
					t.Errorf("it failed with %q, which does not say %q", run.Error, want)
				}
			}
		})
	}
}

func TestLoadThatFailsBlocksTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		dep := newLog(on, "log")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) { return write(ctx, dep, in) }))
		k.StartOn("t", "f", "one")
		k.WaitFor("t", perdure.Succeeded)
		bad := perdure.NewDep("log", func(context.Context) (*refuser, error) { return &refuser{on: on}, nil })
		k.Stop()
		k = kit.New(t, k.Store, perdure.Options{}, perdure.NewFlow("g", func(ctx context.Context, _ string) (bool, error) {
			_, err := bad.Get(ctx)
			return true, err
		}))
		k.StartOn("t", "g", "")
		if run := k.WaitFor("t", perdure.Blocked); !strings.Contains(run.Diff, "cannot read that") {
			t.Errorf("it is blocked by %q", run.Diff)
		}
		k.Stop()
		if !slices.Contains(on.did, "close refuser") {
			t.Error("what could not be loaded was not closed")
		}
		if got := dumpAt(k, "t", "log"); got != `{"Lines":["one"]}` {
			t.Errorf("the state is %s now", got)
		}
	})
}

// refuser is a dep that takes no state back.
type refuser struct{ on *logs }

func (*refuser) Dump(context.Context) (json.RawMessage, error) { return json.RawMessage(`{}`), nil }

func (*refuser) Load(context.Context, json.RawMessage) error { return errors.New("cannot read that") }

func (r *refuser) Close() error {
	r.on.note("close refuser")
	return nil
}

// versioned is a log that says when it changed.
type versioned struct{ *log }

func (v *versioned) StateVersion() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return uint64(len(v.Lines))
}

func TestUnchangedDepIsNotDumped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		dep := perdure.NewDep("log", func(context.Context) (*versioned, error) { return &versioned{&log{on: on}}, nil })
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			for i := range 10 {
				if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (int, error) {
					l, err := dep.Get(ctx)
					if err == nil && i == 4 {
						l.add("x")
					}
					time.Sleep(time.Millisecond)
					return i, err
				}); err != nil {
					return 0, err
				}
			}
			return 0, nil
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		if on.dumps != 2 { // when it was new, and when it had changed
			t.Errorf("Dump was called %d times", on.dumps)
		}
		if got := dumpAt(k, "t", "log"); got != `{"Lines":["x"]}` {
			t.Errorf("the state is %s", got)
		}
	})
}

// TestRenamedDepIsAdoptedOrStartsColdVisibly follows a key through versions of
// the code.
func TestRenamedDepIsAdoptedOrStartsColdVisibly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		var logged syncBuffer
		flow := func(name string, dep *perdure.Dep[*log]) perdure.Flow {
			return perdure.NewFlow(name, func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
					l, err := dep.Get(ctx)
					if err != nil {
						return "", err
					}
					if in != "" {
						l.add(in)
					}
					return l.text(), nil
				})
			})
		}
		k := kit.New(t, nil, perdure.Options{Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))},
			flow("v1", newLog(on, "old")), flow("v2", newLog(on, "new", perdure.WasKey("old"))), flow("v3", newLog(on, "new")), flow("cold", newLog(on, "newest")))
		for _, c := range []struct{ flow, in, want string }{
			{"v1", "one", "one"},
			{"v2", "", "one"}, // adopted, and not changed
			{"v3", "two", "one,two"},
			{"cold", "", ""},
		} {
			k.StartOn("t", c.flow, c.in)
			out, err := perdure.Output[string](k.WaitFor("t", perdure.Succeeded))
			if out != c.want || err != nil {
				t.Errorf("%s: %q, %v; want %q", c.flow, out, err, c.want)
			}
		}
		k.Stop()
		if text := logged.String(); !strings.Contains(text, "cold") || !strings.Contains(text, "newest") {
			t.Errorf("nobody was told of the cold start:\n%s", text)
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func TestSharedDepIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		slow := perdure.NewDep("slow", func(context.Context) (*log, error) {
			time.Sleep(time.Second)
			on.note("make")
			return &log{on: on, name: "slow"}, nil
		}, perdure.Shared())
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			g := perdure.NewGroup(ctx)
			for i := range 8 {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) error { _, err := slow.Get(ctx); return err })
			}
			return true, g.Wait()
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		if !slices.Equal(on.did, []string{"make", "close slow"}) {
			t.Errorf("it was %q", on.did)
		}
	})
}

// shy is a dep whose every method goes wrong.
type shy struct{ *log }

func (s *shy) Close() error { panic("cannot close") }

func (s *shy) StateVersion() uint64 { panic("cannot count") }

func (s *shy) Dump(context.Context) (json.RawMessage, error) { panic("cannot dump") }

func TestDepThatPanicsHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dep := perdure.NewDep("shy", func(context.Context) (*shy, error) { return &shy{&log{on: &logs{}}}, nil })
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			return perdure.Step(ctx, "s", func(ctx context.Context) (bool, error) {
				_, err := dep.Get(ctx)
				time.Sleep(12 * time.Second) // dumps are tried inside it too
				return true, err
			})
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), true)
		if p := k.ProblemsOf("t"); len(p) == 0 {
			t.Error("nobody was told")
		}
	})
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestADepIsNotSavedBeforeTheStepThatChangedIt has a step of one branch change a dep that
// the branch around it uses too, while another branch records a step: the entry of that
// one has nothing of the change, since the step that made it would make it again after a
// crash.
func TestADepIsNotSavedBeforeTheStepThatChangedIt(t *testing.T) {
	type scene struct {
		on      *logs
		dumping chan struct{} // closed when the other step is about to be recorded
	}
	for name, c := range map[string]struct {
		begins func(sc *scene, outer *log) // when the step that changes the dep does
		here   bool                        // it gets the dep itself
		dump   bool                        // it runs while the dep is dumped for the other one
	}{
		// The append of a third step holds up the two, and lets the other one be first.
		"it has returned":                     {func(*scene, *log) { time.Sleep(1200 * time.Millisecond) }, true, false},
		"it has returned, with a dep of all":  {func(*scene, *log) { time.Sleep(1200 * time.Millisecond) }, false, false},
		"it begins in a dump":                 {func(sc *scene, _ *log) { <-sc.dumping }, true, true},
		"it begins in a dump of a dep of all": {func(sc *scene, _ *log) { <-sc.dumping }, false, true},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			sc := &scene{on: &logs{}, dumping: make(chan struct{})}
			dep := newLog(sc.on, "log")
			sleeping := func(name string, d time.Duration) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := perdure.Step(ctx, name, func(context.Context) (int, error) { time.Sleep(d); return 1, nil })
					return err
				}
			}
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				if _, err := write(ctx, dep, "one"); err != nil {
					return "", err
				}
				outer, err := dep.Get(ctx)
				if err != nil {
					return "", err
				}
				if c.dump {
					var once sync.Once
					sc.on.breakDump(func(context.Context) (json.RawMessage, error) {
						once.Do(func() { close(sc.dumping); time.Sleep(time.Second) })
						return json.Marshal(map[string]any{"Lines": strings.Split(outer.text(), ",")})
					})
				}
				g := perdure.NewGroup(ctx)
				if !c.dump {
					g.Go("slow", sleeping("slow", time.Second))
				}
				g.Go("other", sleeping("other", 1100*time.Millisecond))
				g.Go("changing", func(ctx context.Context) error {
					c.begins(sc, outer)
					_, err := perdure.Step(ctx, "two", func(ctx context.Context) (_ int, err error) {
						l := outer
						if c.here {
							l, err = dep.Get(ctx)
						}
						if err == nil {
							l.add("two")
						}
						return 1, err
					})
					return err
				})
				return "", g.Wait()
			})
			k := kit.New(t, &kit.AppendHook{Store: memstore.New(), Before: func(_, lines string) {
				if strings.Contains(lines, `slow"`) && strings.Contains(lines, `"k":"step"`) {
					time.Sleep(time.Second)
				}
			}}, perdure.Options{}, flow)
			k.StartOn("t", "f", "")
			k.WaitFor("t", perdure.Succeeded)
			for _, e := range k.EventsOf("t") {
				c, err := k.StateAt(t.Context(), "t", e.Seq)
				kit.NoErr(t, err)
				if strings.Contains(string(c.Deps["log"]), "two") {
					if !strings.HasSuffix(e.Path, "/two") {
						t.Errorf("the change is saved with %s %s", e.Kind, e.Path)
					}
					return
				}
			}
			t.Error("the change is not saved")
		})
	}
}
