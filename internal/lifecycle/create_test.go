package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// counting is a flow that reads and changes what Create may give a thread.
var counting = perdure.NewFlow("tally", func(ctx context.Context, _ string) (string, error) {
	return perdure.Step(ctx, "add", func(ctx context.Context) (string, error) {
		n := perdure.NewCounter("n")
		list := perdure.NewList[string]("list")
		if err := errors.Join(n.Add(ctx, 1), list.Append(ctx, "c")); err != nil {
			return "", err
		}
		count, err := n.Get(ctx)
		if err != nil {
			return "", err
		}
		all, err := list.Get(ctx)
		if err != nil {
			return "", err
		}
		fact, err := perdure.NewFact[string]("likes").Get(ctx)
		return fmt.Sprint(count, all, fact), err
	})
})

func TestCreateMakesAThreadWithoutARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, counting)
		ctx := t.Context()
		large := strings.Repeat("x", 300_000)
		q := perdure.CreateRequest{Thread: "t", Title: "title", User: "ann", Metadata: map[string]string{"a": "1"}, By: "bob",
			State: map[string]any{"n": 41, "list": []string{"a", "b"}, "fact/likes": "tea", "large": large}}
		made, err := k.Create(ctx, q)
		kit.NoErr(t, err)
		want := &perdure.Thread{ID: "t", Title: "title", User: "ann", Metadata: q.Metadata, Created: made.Created, Updated: made.Created, Seq: 1, Spent: made.Spent, Why: &perdure.Why{State: perdure.WhyIdle, Text: "it has no run", Since: made.Created}}
		if d := cmp.Diff(want, made); d != "" || len(made.Spent) > 0 {
			t.Error(d)
		}
		got, err := k.Get(ctx, "t")
		if d := cmp.Diff(made, got); d != "" || err != nil {
			t.Error(err, d)
		}
		for s, err := range k.List(ctx, perdure.ListOptions{User: "ann"}) {
			if err != nil || s.ID != "t" || s.Status != "" || s.Flow != "" || s.Title != "title" {
				t.Errorf("it is listed as %+v, %v", s, err)
			}
		}
		for s, err := range k.List(ctx, perdure.ListOptions{Status: perdure.Queued}) {
			t.Errorf("it counts as queued: %+v, %v", s, err)
		}
		_, err = k.Create(ctx, q)
		kit.WantErr(t, "create again", err, perdure.ErrExists)
		_, err = k.GetRun(ctx, "t", "")
		kit.WantErr(t, "its newest run", err, perdure.ErrRunNotFound)
		if e := k.EventsOf("t"); len(e) != 1 || e[0].Kind != "created" || e[0].By != "bob" {
			t.Errorf("its events are %+v", e)
		}
		at, err := k.StateAt(ctx, "t", 0)
		if err != nil || string(at.State["n"]) != "41" || string(at.Facts["likes"]) != `"tea"` || len(at.State["large"]) != len(large)+2 {
			t.Errorf("its state is %+v, %v", at, err)
		}

		run := k.StartOn("t", "tally", "")
		kit.WantOutput(t, k.WaitForRun("t", run.ID, perdure.Succeeded), "42 [a b c]tea")
		if _, err := k.Fork(ctx, perdure.ForkRequest{Thread: "t", At: 1, As: "fork"}); err != nil {
			t.Fatal(err)
		}
		k.StartOn("fork", "tally", "")
		kit.WantOutput(t, k.WaitFor("fork", perdure.Succeeded), "42 [a b c]tea")
		if _, err := k.Rewind(ctx, "t", 1, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if back, err := k.Get(ctx, "t"); err != nil || back.Status != "" || len(back.Runs) != 0 {
			t.Errorf("taken back it is %+v, %v", back, err)
		}
		k.StartOn("t", "tally", "")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "42 [a b c]tea")

		var file bytes.Buffer
		kit.WantErr(t, "export", k.Export(ctx, "t", &file, perdure.ExportOptions{}), nil)
		elsewhere := kit.New(t, nil, perdure.Options{}, counting)
		if _, err := elsewhere.Import(ctx, &file, perdure.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		there, err := elsewhere.StateAt(ctx, "t", 1)
		if d := cmp.Diff(at.State, there.State); d != "" || err != nil {
			t.Error(err, d)
		}
		kit.WantErr(t, "erase", k.Erase(ctx, "t", perdure.EraseOptions{Dependents: true}), nil)
		q.State = nil
		if again, err := k.Create(ctx, q); err != nil || again.Seq != 1 {
			t.Errorf("after an erase: %+v, %v", again, err)
		}
	})
}

func TestCreateRefusesWhatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		state := func(key string, v any) perdure.CreateRequest {
			return perdure.CreateRequest{Thread: "t", State: map[string]any{key: v}}
		}
		for name, c := range map[string]struct {
			q    perdure.CreateRequest
			want error
		}{
			"id":              {perdure.CreateRequest{Thread: "a\nb"}, perdure.ErrInvalid},
			"title":           {perdure.CreateRequest{Thread: "t", Title: strings.Repeat("x", 2000)}, perdure.ErrInvalid},
			"key":             {perdure.CreateRequest{Thread: "t", Key: "\xff"}, perdure.ErrInvalid},
			"metadata":        {perdure.CreateRequest{Thread: "t", Metadata: map[string]string{"a": strings.Repeat("x", 20<<10)}}, perdure.ErrInvalid},
			"state no key":    {state("", 1), perdure.ErrInvalid},
			"state long key":  {state(strings.Repeat("x", 501), 1), perdure.ErrInvalid},
			"state of agents": {state("agent.messages", []int{}), perdure.ErrInvalid},
			"state nothing":   {state("a", nil), perdure.ErrInvalid},
			"state no JSON":   {state("a", func() {}), perdure.ErrNotJSON},
		} {
			_, err := k.Create(t.Context(), c.q)
			kit.WantErr(t, name, err, c.want)
		}
		for cell, err := range k.Store.List(t.Context(), "thread/", "") {
			t.Errorf("what was refused left %s, %v", cell.Key, err)
		}
	})
}

func TestCreateWithAKeyIsOneThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		ctx := t.Context()
		create := func(q perdure.CreateRequest) string {
			t.Helper()
			made, err := k.Create(ctx, q)
			kit.NoErr(t, err)
			return made.ID
		}
		if a, b := create(perdure.CreateRequest{}), create(perdure.CreateRequest{}); a == b {
			t.Error("two threads without a key are one")
		}
		q := perdure.CreateRequest{Key: "k", Title: "x", State: map[string]any{"a": strings.Repeat("x", 300_000)}}
		var wg sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			wg.Go(func() {
				q := q
				q.By = fmt.Sprint(i)
				ids[i] = create(q)
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("one key made %q", ids)
			}
		}
		k.StartOn(ids[0], "echo", "x")
		k.WaitFor(ids[0], perdure.Succeeded)
		if made, err := k.Create(ctx, q); err != nil || made.ID != ids[0] || len(made.Runs) != 1 {
			t.Errorf("later it is %+v, %v", made, err)
		}
		other := q
		other.Title = "y"
		_, err := k.Create(ctx, other)
		kit.WantErr(t, "another request", err, perdure.ErrKeyReused)

		named := perdure.CreateRequest{Thread: "t", Key: "k"}
		create(named)
		create(named)
		named.Key = "k2"
		_, err = k.Create(ctx, named)
		kit.WantErr(t, "another key", err, perdure.ErrExists)
		k.StartOn("started", "echo", "x")
		_, err = k.Create(ctx, perdure.CreateRequest{Thread: "started", Key: "k"})
		kit.WantErr(t, "a thread that was started", err, perdure.ErrExists)
		if _, err := k.Fork(ctx, perdure.ForkRequest{Thread: "t", As: "fork"}); err != nil {
			t.Fatal(err)
		}
		_, err = k.Create(ctx, perdure.CreateRequest{Thread: "fork", Key: "k"})
		kit.WantErr(t, "a fork", err, perdure.ErrExists)
		if id := create(perdure.CreateRequest{Key: "k3"}); id == ids[0] {
			t.Error("two keys are one thread")
		}
		if _, err := k.Tenant("other").Get(ctx, ids[0]); !errors.Is(err, perdure.ErrNoThread) {
			t.Errorf("another tenant sees it: %v", err)
		}
	})
}

// A process dies at each of the calls that a Create makes.
func TestCreateThatDiesLeavesNothingHalf(t *testing.T) {
	q := perdure.CreateRequest{Thread: "t", Title: "x", User: "ann", State: map[string]any{"a": strings.Repeat("x", 100_000), "n": 1}}
	for n := 1; ; n++ {
		if n > 100 {
			t.Fatal("it never ends")
		}
		finished := false
		for name, fault := range map[string]faulty.Fault{"before": faulty.CrashBefore, "after": faulty.CrashAfter} {
			kit.Bubble(t, fmt.Sprint(name, " write ", n), func(t *testing.T) {
				s := memstore.New()
				k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
				writes := 0
				dying, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
					if !c.Op.Writes() {
						return faulty.None
					}
					if writes++; writes == n {
						return fault
					}
					return faulty.None
				}), perdure.Options{})
				kit.NoErr(t, err)
				_, err = dying.Create(t.Context(), q)
				finished = finished || err == nil && writes < n
				listed := 0
				for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
					if listed++; err != nil || s.ID != "t" || s.Status != "" || s.User != "ann" {
						t.Errorf("it is listed as %+v, %v", s, err)
					}
				}
				_, getErr := k.Get(t.Context(), "t")
				if there := getErr == nil; there != (listed == 1) || !there && !errors.Is(getErr, perdure.ErrNoThread) {
					t.Errorf("there are %d threads, and Get says %v", listed, getErr)
				}
				made, err := k.Create(t.Context(), q)
				if getErr == nil {
					kit.WantErr(t, "create again", err, perdure.ErrExists)
				} else if err != nil || made.Seq != 1 {
					t.Errorf("create again: %+v, %v", made, err)
				}
				at, err := k.StateAt(t.Context(), "t", 0)
				kit.NoErr(t, err)
				var a string
				if json.Unmarshal(at.State["a"], &a) != nil || len(a) != 100_000 {
					t.Errorf("its state is %.100s", at.State["a"])
				}
				k.StartOn("t", "echo", "x")
				k.WaitFor("t", perdure.Succeeded)
			})
		}
		if finished {
			break
		}
	}
}

func TestCreateThatIsTooLargeLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		state := map[string]any{"a": strings.Repeat("x", 300_000)}
		for i := range 2000 {
			state[fmt.Sprint("key ", i)] = strings.Repeat("y", 200)
		}
		_, err := k.Create(t.Context(), perdure.CreateRequest{Thread: "t", State: state})
		kit.WantErr(t, "create", err, perdure.ErrTooLarge)
		kit.WantNothing(t, s)
		_, err = k.Create(t.Context(), perdure.CreateRequest{Thread: "t"})
		kit.WantErr(t, "create with less", err, nil)
		_, err = k.Create(t.Context(), perdure.CreateRequest{Thread: "t", State: state})
		kit.WantErr(t, "create of what is there", err, perdure.ErrExists)
	})
}

func TestRedactedExportDoesNotNameTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		_, err := k.Create(t.Context(), perdure.CreateRequest{Thread: "t", User: "ann-the-owner", State: map[string]any{"a": strings.Repeat("x", 100_000)}})
		kit.WantErr(t, "create", err, nil)
		for redact, want := range map[bool]bool{false: true, true: false} {
			file := string(k.MustExport("t", perdure.ExportOptions{Redact: redact}))
			if strings.Contains(file, "ann-the-owner") != want {
				t.Errorf("redacted %t: that the export names the owner is %t", redact, !want)
			}
		}
	})
}
