package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// abrupt lets a worker stop without waiting for its steps: nothing is dumped
// then, as after a crash.
var abrupt = perdure.Options{Grace: time.Millisecond}

// longLeaf is a leaf that adds a line a second, and continues after what it
// finds.
func longLeaf(ctx context.Context, dep *perdure.Dep[*log], name string, seconds int) (string, error) {
	return perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
		l, err := dep.Get(ctx)
		if err != nil {
			return "", err
		}
		l.mu.Lock()
		n := len(l.Lines)
		l.mu.Unlock()
		for i := n; i < seconds; i++ {
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(time.Second):
			}
			l.add(fmt.Sprint(i))
		}
		return l.text(), nil
	})
}

// crashAt starts flow "f", stops the worker after a time, and returns a kit
// that continues.
func crashAt(t *testing.T, after time.Duration, flows ...perdure.Flow) *kit.Kit {
	k := kit.New(t, nil, abrupt, flows...)
	k.StartOn("t", "f", "")
	time.Sleep(after)
	k.Stop()
	return kit.New(t, k.Store, abrupt, flows...)
}

func TestLongLeafFindsItsProgress(t *testing.T) {
	flow := func(opts ...perdure.DepOption) perdure.Flow {
		dep := newLog(&logs{}, "log", opts...)
		return perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) { return longLeaf(ctx, dep, "leaf", 20) })
	}
	const all = "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19"
	kit.Bubble(t, "of every interval", func(t *testing.T) {
		k := crashAt(t, 17*time.Second+500*time.Millisecond, flow())
		var got struct{ Lines []string }
		if err := json.Unmarshal([]byte(dumpAt(k, "t", "log")), &got); err != nil || len(got.Lines) < 14 || len(got.Lines) > 15 {
			t.Errorf("after three intervals %s is saved (%v)", dumpAt(k, "t", "log"), err)
		}
		if n := k.KindsOf("t")["dumped"]; n != 3 {
			t.Errorf("%d dumps inside the leaf", n)
		}
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), all)
	})
	kit.Bubble(t, "not before the first interval", func(t *testing.T) {
		k := crashAt(t, 4*time.Second+500*time.Millisecond, flow())
		if got := dumpAt(k, "t", "log"); got != "" {
			t.Errorf("a short leaf has saved %s", got)
		}
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), all)
	})
	kit.Bubble(t, "not with AtSteps", func(t *testing.T) {
		k := crashAt(t, 17*time.Second, flow(perdure.AtSteps()))
		if got := dumpAt(k, "t", "log"); got != "" {
			t.Errorf("a dep that is saved at steps has %s", got)
		}
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), all)
		if got := dumpAt(k, "t", "log"); !strings.Contains(got, `"19"`) {
			t.Errorf("with the step %s is saved", got)
		}
	})
	kit.Bubble(t, "counted from its own start", func(t *testing.T) {
		dep := newLog(&logs{}, "log")
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if _, err := perdure.Step(ctx, "short", func(context.Context) (int, error) { time.Sleep(time.Second); return 0, nil }); err != nil {
				return "", err
			}
			return longLeaf(ctx, dep, "leaf", 9)
		})
		k := crashAt(t, 8500*time.Millisecond, flow) // 7.5 s inside the long one
		var got struct{ Lines []string }
		if err := json.Unmarshal([]byte(either(dumpAt(k, "t", "log"), "{}")), &got); err != nil || len(got.Lines) < 4 {
			t.Errorf("after 7.5 s of the leaf %s is saved (%v)", dumpAt(k, "t", "log"), err)
		}
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "0,1,2,3,4,5,6,7,8")
	})
	kit.Bubble(t, "and a short leaf beside it is exact", func(t *testing.T) {
		slow, quick := newLog(&logs{}, "slow"), newLog(&logs{}, "quick")
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			var out string
			g := perdure.NewGroup(ctx)
			g.Go("slow", func(ctx context.Context) error { _, err := longLeaf(ctx, slow, "leaf", 20); return err })
			g.Go("quick", func(ctx context.Context) (err error) {
				if err := perdure.Sleep(ctx, "nap", 4*time.Second); err != nil {
					return err
				}
				out, err = perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
					l, err := quick.Get(ctx)
					if err != nil {
						return "", err
					}
					l.add("x")
					select {
					case <-ctx.Done():
						return "", context.Cause(ctx)
					case <-time.After(2 * time.Second):
					}
					return l.text(), nil
				})
				return err
			})
			err := g.Wait()
			return out, err
		})
		k := crashAt(t, 5500*time.Millisecond, flow) // the quick leaf is half done
		if got := dumpAt(k, "t", "quick"); got != "" {
			t.Errorf("a leaf of 2 s has saved %s before its end", got)
		}
		if got := dumpAt(k, "t", "slow"); got == "" {
			t.Error("the long leaf has saved nothing")
		}
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "x")
	})
}

func either(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// TestBrokenDumpLeavesTheLastGoodOne breaks a dep's Dump in the middle of a
// run, in every way.
func TestBrokenDumpLeavesTheLastGoodOne(t *testing.T) {
	huge := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxDump) + `"`)
	for name, c := range map[string]struct {
		dump func(context.Context) (json.RawMessage, error)
		says string
	}{
		"fails":         {func(context.Context) (json.RawMessage, error) { return nil, errors.New("disk on fire") }, "disk on fire"},
		"panics":        {func(context.Context) (json.RawMessage, error) { panic("boom") }, "boom"},
		"no JSON":       {func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"a":`), nil }, "JSON"},
		"nothing":       {func(context.Context) (json.RawMessage, error) { return nil, nil }, "JSON"},
		"two values":    {func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{} {}`), nil }, "JSON"},
		"invalid UTF-8": {func(context.Context) (json.RawMessage, error) { return json.RawMessage("\"\xff\""), nil }, "JSON"},
		"over 8 MiB":    {func(context.Context) (json.RawMessage, error) { return huge, nil }, "too large"},
		"blocks":        {func(ctx context.Context) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }, "deadline"},
		"blocks for 25 s": {func(context.Context) (json.RawMessage, error) {
			time.Sleep(25 * time.Second)
			return json.RawMessage(`{}`), nil
		}, "timed out"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			on := &logs{}
			dep := newLog(on, "log")
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				if _, err := write(ctx, dep, "one"); err != nil {
					return "", err
				}
				on.breakDump(c.dump)
				begun := time.Now()
				if _, err := write(ctx, dep, "two"); err != nil {
					return "", err
				}
				if d := time.Since(begun); d > perdure.DumpTimeout+time.Second {
					t.Errorf("the step took %v", d)
				}
				if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
					return "", err
				}
				on.breakDump(nil)
				return write(ctx, dep, "three")
			})
			k := kit.New(t, nil, perdure.Options{}, flow)
			k.StartOn("t", "f", "")
			run := k.WaitFor("t", perdure.Suspended)
			if got := dumpAt(k, "t", "log"); got != `{"Lines":["one"]}` {
				t.Errorf("the last good one is gone: %.100s", got)
			}
			problems := k.ProblemsOf("t")
			if len(problems) == 0 || !strings.Contains(problems[0], `"log"`) || c.says != "deadline" && !strings.Contains(problems[0], c.says) {
				t.Errorf("the problems are %q", problems)
			}
			if len(run.Errors) != len(problems) {
				t.Errorf("Get shows %+v", run.Errors)
			}
			time.Sleep(time.Minute)
			k.AnswerAt(run, "/ask", perdure.Answer{Value: ""})
			// What was not saved is lost, and the run continues with the last
			// good state.
			kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "one,three")
			if got := dumpAt(k, "t", "log"); got != `{"Lines":["one","three"]}` {
				t.Errorf("in the end %.100s is saved", got)
			}
		})
	}
}

func TestDumpUpToTheLimitIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		dep := newLog(on, "log")
		text := strings.Repeat("x", perdure.MaxDump-2)
		on.breakDump(func(context.Context) (json.RawMessage, error) { return json.RawMessage(`"` + text + `"`), nil })
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) { return write(ctx, dep, "one") }))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		if got := dumpAt(k, "t", "log"); len(got) != perdure.MaxDump || len(k.ProblemsOf("t")) != 0 {
			t.Errorf("%d bytes are kept; problems %q", len(got), k.ProblemsOf("t"))
		}
	})
}

// TestManyDepsFitIntoOneEntry has deps that are small each and large together.
func TestManyDepsFitIntoOneEntry(t *testing.T) {
	on := &logs{}
	var deps []*perdure.Dep[*log]
	for i := range 8 {
		deps = append(deps, newLog(on, fmt.Sprint("log", i)))
	}
	line := strings.Repeat("y", 60<<10)
	fill := func(ctx context.Context) (int, error) {
		for _, d := range deps {
			l, err := d.Get(ctx)
			if err != nil {
				return 0, err
			}
			l.add(line)
		}
		return len(deps), nil
	}
	for name, body := range map[string]func(context.Context) (int, error){
		"of a step": func(ctx context.Context) (int, error) { return perdure.Step(ctx, "s", fill) },
		"of an end": fill, // outside a leaf, as flows do that are careless
		"of a suspension": func(ctx context.Context) (int, error) {
			n, err := fill(ctx)
			if err == nil {
				_, err = perdure.Ask[string](ctx, "ask", perdure.Question{Expires: time.Second, Default: &perdure.Answer{Value: ""}})
			}
			return n, err
		},
		"of a suspended group": func(ctx context.Context) (int, error) {
			n, err := fill(ctx)
			if err != nil {
				return 0, err
			}
			g := perdure.NewGroup(ctx)
			for i := range 2 {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) error { return perdure.Sleep(ctx, "nap", time.Second) })
			}
			return n, g.Wait()
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) { return body(ctx) }))
			k.StartOn("t", "f", "")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			time.Sleep(10 * time.Second)
			run, err := k.Wait(ctx, "t", "")
			if err != nil {
				t.Fatalf("%v\n%.2000s", err, k.Trace("t"))
			}
			kit.WantOutput(t, run, 8)
			for i := range deps {
				if got := dumpAt(k, "t", fmt.Sprint("log", i)); !strings.Contains(got, line) {
					t.Errorf("of dep %d %d bytes are saved", i, len(got))
				}
			}
		})
	}
}

func TestDevelopmentReportsChangesOutsideLeaves(t *testing.T) {
	type place struct {
		name string
		flow func(ctx context.Context, dep *perdure.Dep[*log]) error
		bad  bool
	}
	touch := func(ctx context.Context, dep *perdure.Dep[*log]) error {
		l, err := dep.Get(ctx)
		if err == nil {
			l.add("outside")
		}
		return err
	}
	nothing := func(ctx context.Context, name string) error {
		_, err := perdure.Step(ctx, name, func(context.Context) (int, error) { return 0, nil })
		return err
	}
	inLeaf := func(ctx context.Context, dep *perdure.Dep[*log], name string) error {
		_, err := write(ctx, dep, name)
		return err
	}
	for _, c := range []place{
		{"in leaves only", func(ctx context.Context, dep *perdure.Dep[*log]) error {
			return errors.Join(inLeaf(ctx, dep, "a"), nothing(ctx, "b"), inLeaf(ctx, dep, "c"))
		}, false},
		{"between two leaves", func(ctx context.Context, dep *perdure.Dep[*log]) error {
			return errors.Join(inLeaf(ctx, dep, "a"), touch(ctx, dep), nothing(ctx, "b"))
		}, true},
		{"when it is new", func(ctx context.Context, dep *perdure.Dep[*log]) error {
			return errors.Join(touch(ctx, dep), nothing(ctx, "a"))
		}, true},
		{"in a composite", func(ctx context.Context, dep *perdure.Dep[*log]) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				return 0, errors.Join(inLeaf(ctx, dep, "a"), touch(ctx, dep), nothing(ctx, "b"))
			})
			return err
		}, true},
		{"before the end", func(ctx context.Context, dep *perdure.Dep[*log]) error {
			return errors.Join(inLeaf(ctx, dep, "a"), touch(ctx, dep))
		}, true},
		{"before an ask", func(ctx context.Context, dep *perdure.Dep[*log]) error {
			err := errors.Join(inLeaf(ctx, dep, "a"), touch(ctx, dep))
			if err != nil {
				return err
			}
			_, err = perdure.Ask[string](ctx, "ask", perdure.Question{Expires: time.Second, Default: &perdure.Answer{Value: ""}})
			return err
		}, true},
	} {
		kit.Bubble(t, c.name, func(t *testing.T) {
			dep := newLog(&logs{}, "log")
			k := kit.New(t, nil, perdure.Options{Development: true}, perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) { return true, c.flow(ctx, dep) }))
			k.StartOn("t", "f", "")
			time.Sleep(10 * time.Second)
			k.WaitForRun("t", "", perdure.Succeeded)
			problems := strings.Join(k.ProblemsOf("t"), "\n")
			if c.bad != strings.Contains(problems, "outside a leaf") || c.bad != strings.Contains(problems, `"log"`) {
				t.Errorf("reported: %q", problems)
			}
		})
	}
}

func TestDepIsCalledWhileInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dep := newLog(&logs{}, "log", perdure.Shared())
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			g := perdure.NewGroup(ctx)
			for b := range 4 {
				g.Go(fmt.Sprint("b", b), func(ctx context.Context) error {
					for i := range 10 {
						if _, err := write(ctx, dep, fmt.Sprint("s", i)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return 40, g.Wait()
		})
		k := kit.New(t, nil, perdure.Options{DumpInterval: time.Millisecond}, flow)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		var got struct{ Lines []string }
		if err := json.NewDecoder(bytes.NewReader([]byte(dumpAt(k, "t", "log")))).Decode(&got); err != nil || len(got.Lines) != 40 {
			t.Errorf("%d lines are saved, %v", len(got.Lines), err)
		}
	})
}
