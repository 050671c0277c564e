package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

func TestStartKeepsWhatItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("idle"))
		run := k.MustStart(perdure.StartRequest{Flow: "idle", Input: "x", Thread: "täglich/7 …", Title: "daily", User: "ann",
			Metadata: map[string]string{"a": "1", "b": "2"}, Budget: map[string]int64{"cents": 5}, By: "cron"})
		if run.Thread != "täglich/7 …" || run.Flow != "idle" || run.Status != perdure.Queued || run.Budget["cents"] != 5 {
			t.Errorf("the run is %+v", run)
		}
		// A second start does not change what belongs to the thread.
		k.MustStart(perdure.StartRequest{Flow: "idle", Input: "y", Thread: run.Thread, Title: "other", User: "eve", Metadata: map[string]string{"a": "9"}})
		thread, err := k.Get(t.Context(), run.Thread)
		if err != nil || thread.Title != "daily" || thread.User != "ann" || len(thread.Runs) != 2 {
			t.Errorf("the thread is %+v, %v", thread, err)
		}
		kit.NoDiff(t, cmp.Diff(map[string]string{"a": "1", "b": "2"}, thread.Metadata))
		title := "weekly"
		kit.WantErr(t, "metadata", k.SetMetadata(t.Context(), run.Thread, &title, map[string]string{"a": "", "c": "3"}, perdure.Note{}), nil)
		thread, err = k.Get(t.Context(), run.Thread)
		if err != nil || thread.Title != "weekly" {
			t.Errorf("the title is %q, %v", thread.Title, err)
		}
		kit.NoDiff(t, cmp.Diff(map[string]string{"b": "2", "c": "3"}, thread.Metadata))
		kit.WantErr(t, "metadata of no thread", k.SetMetadata(t.Context(), "no", &title, nil, perdure.Note{}), perdure.ErrNoThread)

		a, b := k.MustStart(perdure.StartRequest{Flow: "idle", Input: ""}), k.MustStart(perdure.StartRequest{Flow: "idle", Input: ""})
		if a.Thread == "" || a.Thread == b.Thread || a.ID == b.ID {
			t.Errorf("generated threads %q and %q, runs %q and %q", a.Thread, b.Thread, a.ID, b.ID)
		}
	})
}

func TestStartRefusesWhatMakesNoSense(t *testing.T) {
	type order struct{ Items []int }
	type chain struct{ Next *chain }
	loop := &chain{}
	loop.Next = loop
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("idle"),
			perdure.NewFlow("order", func(_ context.Context, o order) (int, error) { return len(o.Items), nil }),
			perdure.NewFlow("any", func(_ context.Context, v any) (any, error) { return v, nil }))
		for name, c := range map[string]struct {
			q    perdure.StartRequest
			want error
		}{
			"unknown flow":        {perdure.StartRequest{Flow: "nope"}, perdure.ErrNoFlow},
			"empty flow":          {perdure.StartRequest{}, perdure.ErrNoFlow},
			"number for a string": {perdure.StartRequest{Flow: "idle", Input: 5}, perdure.ErrInvalid},
			"list for a struct":   {perdure.StartRequest{Flow: "order", Input: []int{1}}, perdure.ErrInvalid},
			"wrong field":         {perdure.StartRequest{Flow: "order", Input: map[string]any{"Items": "x"}}, perdure.ErrInvalid},
			"bad JSON":            {perdure.StartRequest{Flow: "any", Input: json.RawMessage("{")}, perdure.ErrNotJSON},
			"NaN":                 {perdure.StartRequest{Flow: "any", Input: math.NaN()}, perdure.ErrNotJSON},
			"channel":             {perdure.StartRequest{Flow: "any", Input: make(chan int)}, perdure.ErrNotJSON},
			"cycle":               {perdure.StartRequest{Flow: "any", Input: loop}, perdure.ErrNotJSON},
			"half a surrogate":    {perdure.StartRequest{Flow: "any", Input: json.RawMessage(`{"a":"\ud800"}`)}, perdure.ErrNotJSON},
			"invalid UTF-8":       {perdure.StartRequest{Flow: "idle", Input: "a\xffb"}, perdure.ErrNotJSON},
			"policy":              {perdure.StartRequest{Flow: "idle", Input: "", Policy: "perhaps"}, perdure.ErrInvalid},
			"thread of newlines":  {perdure.StartRequest{Flow: "idle", Input: "", Thread: "a\nb"}, perdure.ErrInvalid},
			"thread too long":     {perdure.StartRequest{Flow: "idle", Input: "", Thread: strings.Repeat("x", 201)}, perdure.ErrInvalid},
			"thread invalid":      {perdure.StartRequest{Flow: "idle", Input: "", Thread: "\xff"}, perdure.ErrInvalid},
		} {
			_, err := k.Start(t.Context(), c.q)
			kit.WantErr(t, name, err, c.want)
		}
		for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
			t.Errorf("a refused start left thread %+v, %v", s, err)
		}
	})
}

// idSpy is a store that knows which way from an id was looked for last.
type idSpy struct {
	store.Store
	last string
}

func (s *idSpy) Unwrap() store.Store { return s.Store }

func (s *idSpy) Get(ctx context.Context, key string) (store.Cell, error) {
	if strings.HasPrefix(key, "id/") {
		s.last = key
	}
	return s.Store.Get(ctx, key)
}

func TestIDsOfNewThreadsAreSeenAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := &idSpy{Store: memstore.New()}
		k := kit.New(t, ids, perdure.Options{}, kit.EchoFlow("idle"))
		k.MustStart(perdure.StartRequest{Flow: "idle", Input: "x", Thread: "good"})
		good, err := ids.Get(t.Context(), ids.last)
		kit.WantErr(t, "the way from the id", err, nil)
		var export bytes.Buffer
		kit.WantErr(t, "export", k.Export(t.Context(), "good", &export, perdure.ExportOptions{}), nil)
		for _, id := range []string{"a\u202eb", "a\u200bb", "a\u0085b", "a\u2028b", "\U000e0041", "a\ufeff", "a\ufe0f", "a\u3164", "a\uffff"} {
			_, err := k.Start(t.Context(), perdure.StartRequest{Flow: "idle", Input: "", Thread: id})
			kit.WantErr(t, "start", err, perdure.ErrInvalid)
			_, err = k.Start(t.Context(), perdure.StartRequest{Flow: "idle", Input: "", User: id})
			kit.WantErr(t, "start for a user", err, perdure.ErrInvalid)
			_, err = k.Create(t.Context(), perdure.CreateRequest{Thread: "of-a-user", User: id})
			kit.WantErr(t, "create for a user", err, perdure.ErrInvalid)
			_, err = k.Create(t.Context(), perdure.CreateRequest{Thread: id})
			kit.WantErr(t, "create", err, perdure.ErrInvalid)
			_, err = k.Fork(t.Context(), perdure.ForkRequest{Thread: "good", As: id})
			kit.WantErr(t, "fork", err, perdure.ErrInvalid)
			_, err = k.Import(t.Context(), bytes.NewReader(export.Bytes()), perdure.ImportOptions{As: id})
			kit.WantErr(t, "import", err, perdure.ErrInvalid)
			_, err = k.Get(t.Context(), id)
			kit.WantErr(t, "get", err, perdure.ErrNoThread)

			// One that existed before continues.
			_, err = ids.Put(t.Context(), ids.last, good.Value, "")
			kit.WantErr(t, "another id", err, nil)
			_, err = k.Get(t.Context(), id)
			kit.WantErr(t, "get", err, nil)
			_, err = k.Start(t.Context(), perdure.StartRequest{Flow: "idle", Input: "", Thread: id})
			kit.WantErr(t, "start", err, nil)
		}
	})
}

func TestKeyMakesStartIdempotent(t *testing.T) {
	kit.Bubble(t, "for 16 at once on two runtimes", func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("idle"))
		k2 := kit.New(t, s, perdure.Options{}, kit.EchoFlow("idle"))
		for _, thread := range []string{"", "named"} {
			var all sync.WaitGroup
			runs := make([]*perdure.Run, 16)
			errs := make([]error, 16)
			for i := range runs {
				all.Go(func() {
					runs[i], errs[i] = []*kit.Kit{k, k2}[i%2].Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: "idle", Input: "x", Key: "key", Policy: perdure.Reject})
				})
			}
			all.Wait()
			for i, run := range runs {
				if errs[i] != nil {
					t.Fatal(errs[i])
				}
				if run.ID != runs[0].ID || run.Thread != runs[0].Thread {
					t.Errorf("start %d gave run %s on %s, the first one %s on %s", i, run.ID, run.Thread, runs[0].ID, runs[0].Thread)
				}
			}
			if thread != "" && runs[0].Thread != thread {
				t.Errorf("it runs on %q", runs[0].Thread)
			}
			k.WaitForRun(runs[0].Thread, runs[0].ID, perdure.Succeeded)
			if n := k.KindsOf(runs[0].Thread); n["queued"] != 1 || n["created"] != 1 || n["ended"] != 1 {
				t.Errorf("recorded: %v", n)
			}
			again := k.MustStart(perdure.StartRequest{Thread: thread, Flow: "idle", Input: "x", Key: "key"})
			if again.ID != runs[0].ID || again.Status != perdure.Succeeded {
				t.Errorf("after its end the key gives run %s, %s", again.ID, again.Status)
			}
		}
		n := 0
		for _, err := range k.List(t.Context(), perdure.ListOptions{}) {
			kit.WantErr(t, "list", err, nil)
			n++
		}
		if n != 2 {
			t.Errorf("there are %d threads", n)
		}
	})
	kit.Bubble(t, "and is refused for something else", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("idle"), kit.EchoFlow("other"))
		first := k.MustStart(perdure.StartRequest{Flow: "idle", Input: "x", Key: "key"})
		for name, q := range map[string]perdure.StartRequest{
			"another input": {Flow: "idle", Input: "y", Key: "key"},
			"another flow":  {Flow: "other", Input: "x", Key: "key"},
			"by its thread": {Flow: "idle", Input: "y", Key: "key", Thread: first.Thread},
		} {
			_, err := k.Start(t.Context(), q)
			kit.WantErr(t, name, err, perdure.ErrKeyReused)
		}
		other, err := k.Tenant("b").Start(t.Context(), perdure.StartRequest{Flow: "idle", Input: "y", Key: "key"})
		if err != nil || other.ID == first.ID || other.Thread == first.Thread {
			t.Errorf("another tenant's key: %+v, %v", other, err)
		}
	})
}

func TestPolicies(t *testing.T) {
	flows := []perdure.Flow{kit.AskFlow("ask", perdure.Question{}), kit.EchoFlow("idle")}
	// busy returns a kit whose thread "t" has a suspended run.
	busy := func(t *testing.T, o perdure.Options) (*kit.Kit, *perdure.Run) {
		k := kit.New(t, nil, o, flows...)
		k.StartOn("t", "ask", "")
		return k, k.WaitFor("t", perdure.Suspended)
	}
	kit.Bubble(t, "reject names the run", func(t *testing.T) {
		k, run := busy(t, perdure.Options{})
		before := k.Trace("t")
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "idle", Input: "", Policy: perdure.Reject})
		var who *perdure.BusyError
		if !errors.As(err, &who) || !errors.Is(err, perdure.ErrBusy) || who.Run != run.ID || who.Thread != "t" {
			t.Errorf("got %v", err)
		}
		if k.Trace("t") != before {
			t.Error("a rejected start left a trace")
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		k.WaitForRun("t", run.ID, perdure.Succeeded)
		next := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "idle", Input: "", Policy: perdure.Reject})
		k.WaitForRun("t", next.ID, perdure.Succeeded)
	})
	kit.Bubble(t, "enqueue keeps the order", func(t *testing.T) {
		k, run := busy(t, perdure.Options{})
		var ids []string
		for i := range 5 {
			ids = append(ids, k.StartOn("t", "idle", fmt.Sprint(i)).ID)
		}
		time.Sleep(time.Minute)
		if n := k.KindsOf("t")["claimed"]; n != 1 {
			t.Errorf("%d claims while the first run is suspended", n)
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		for i, id := range ids {
			kit.WantOutput(t, k.WaitForRun("t", id, perdure.Succeeded), fmt.Sprint(i))
		}
		var order []string
		for _, e := range k.EventsOf("t") {
			if e.Kind == "ended" && e.Run != run.ID {
				order = append(order, e.Run)
			}
		}
		kit.NoDiff(t, cmp.Diff(ids, order))
	})
	kit.Bubble(t, "the queue is bounded", func(t *testing.T) {
		k, run := busy(t, perdure.Options{MaxQueue: 3})
		for i := range 3 {
			k.MustStart(perdure.StartRequest{Thread: "t", Flow: "idle", Input: "", Key: fmt.Sprint("k", i),
				Policy: []perdure.Policy{perdure.Enqueue, perdure.Steer}[i%2]})
		}
		before := k.Trace("t")
		for _, p := range []perdure.Policy{perdure.Enqueue, perdure.Steer} {
			_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "idle", Input: "", Policy: p})
			kit.WantErr(t, string(p), err, perdure.ErrQueueFull)
		}
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "idle", Input: "", Key: "k0"})
		kit.WantErr(t, "a repeat needs no room", err, nil)
		if k.Trace("t") != before {
			t.Error("a full queue was written to")
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		time.Sleep(time.Second)
		k.StartOn("t", "idle", "")
		k.WaitFor("t", perdure.Succeeded)
	})
	kit.Bubble(t, "interrupt cancels and closes the asks", func(t *testing.T) {
		k, run := busy(t, perdure.Options{})
		ask := k.AskAt(run, "/ask").ID
		next := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "idle", Input: "new", Policy: perdure.Interrupt})
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "new")
		old := k.WaitForRun("t", run.ID, perdure.Cancelled)
		if len(old.Asks) != 0 || len(old.Waits) != 0 {
			t.Errorf("it still waits: %+v %+v", old.Asks, old.Waits)
		}
		kit.WantErr(t, "its ask", k.AnswerAsk(ask, perdure.Answer{Value: "x"}), perdure.ErrAskOver)
	})
	kit.Bubble(t, "beside a suspended run each is answered on its own", func(t *testing.T) {
		k, first := busy(t, perdure.Options{})
		var runs []*perdure.Run
		for range 3 {
			r := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "ask", Input: "", Policy: perdure.Beside})
			runs = append(runs, k.WaitForRun("t", r.ID, perdure.Suspended))
		}
		waits := k.StartOn("t", "idle", "queued") // not beside: waits for all
		time.Sleep(time.Minute)
		k.AnswerAt(runs[1], "/ask", perdure.Answer{Value: "one"})
		kit.WantOutput(t, k.WaitForRun("t", runs[1].ID, perdure.Succeeded), "one")
		k.AnswerAt(first, "/ask", perdure.Answer{Value: "first"})
		kit.WantOutput(t, k.WaitForRun("t", first.ID, perdure.Succeeded), "first")
		k.AnswerAt(runs[2], "/ask", perdure.Answer{Value: "two"})
		kit.WantOutput(t, k.WaitForRun("t", runs[2].ID, perdure.Succeeded), "two")
		if r, err := k.GetRun(t.Context(), "t", waits.ID); err != nil || r.Status != perdure.Queued {
			t.Errorf("the queued one is %v, %v", r.Status, err)
		}
		k.AnswerAt(runs[0], "/ask", perdure.Answer{Value: "zero"})
		kit.WantOutput(t, k.WaitForRun("t", waits.ID, perdure.Succeeded), "queued")
	})
	kit.Bubble(t, "one executes at a time", func(t *testing.T) {
		var mu sync.Mutex
		inside := 0
		slow := perdure.NewFlow("slow", func(ctx context.Context, _ string) (int, error) {
			return perdure.Step(ctx, "s", func(context.Context) (int, error) {
				mu.Lock()
				inside++
				n := inside
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				inside--
				mu.Unlock()
				return n, nil
			})
		})
		k := kit.New(t, nil, perdure.Options{}, slow)
		var runs []string
		for range 4 {
			runs = append(runs, k.MustStart(perdure.StartRequest{Thread: "t", Flow: "slow", Input: "", Policy: perdure.Beside}).ID)
		}
		for _, id := range runs {
			kit.WantOutput(t, k.WaitForRun("t", id, perdure.Succeeded), 1)
		}
	})
	kit.Bubble(t, "a plain message never answers an ask", func(t *testing.T) {
		k, run := busy(t, perdure.Options{})
		ask := k.AskAt(run, "/ask")
		for _, in := range []string{"yes", `{"ask":"` + ask.ID + `","value":"yes"}`} {
			k.StartOn("t", "idle", in)
		}
		time.Sleep(time.Minute)
		k.WaitForRun("t", run.ID, perdure.Suspended)
	})
}

func TestListIsCompleteInOrderAndByTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("ask", perdure.Question{}), kit.EchoFlow("idle"))
		var want []string
		for i := range 7 {
			id := fmt.Sprint("t", 9-i)
			want = slices.Insert(want, 0, id)
			k.MustStart(perdure.StartRequest{Thread: id, Flow: []string{"ask", "idle"}[i%2], Input: "", User: []string{"ann", "bob", "ann"}[i%3], Title: id + "!"})
			time.Sleep(time.Second)
		}
		b := k.Tenant("b")
		kit.Start(t, b, perdure.StartRequest{Thread: "t9", Flow: "idle", Input: "of b"})
		time.Sleep(time.Second)
		ids := func(r *perdure.Runtime, o perdure.ListOptions) (ids []string, last perdure.Summary) {
			for s, err := range r.List(t.Context(), o) {
				kit.NoErr(t, err)
				ids, last = append(ids, s.ID), s
			}
			return ids, last
		}
		check := func(name string, r *perdure.Runtime, o perdure.ListOptions, want ...string) perdure.Summary {
			t.Helper()
			got, last := ids(r, o)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
			return last
		}
		last := check("all", k.Runtime, perdure.ListOptions{}, want...)
		if last.Title != "t9!" || last.Flow != "ask" || last.Status != perdure.Suspended || last.Asks != 1 || last.Created.IsZero() || last.Updated.Before(last.Created) {
			t.Errorf("a summary is %+v", last)
		}
		check("of ann", k.Runtime, perdure.ListOptions{User: "ann"}, "t3", "t4", "t6", "t7", "t9")
		check("of a flow", k.Runtime, perdure.ListOptions{Flow: "idle"}, "t4", "t6", "t8")
		check("suspended", k.Runtime, perdure.ListOptions{Status: perdure.Suspended}, "t3", "t5", "t7", "t9")
		check("of ann, done", k.Runtime, perdure.ListOptions{User: "ann", Status: perdure.Succeeded}, "t4", "t6")
		check("another tenant's", b, perdure.ListOptions{}, "t9")
		check("a third's", k.Tenant("c"), perdure.ListOptions{})
		check("behind a wrong cursor", k.Runtime, perdure.ListOptions{After: "czzzz"})

		var paged []string
		after := ""
		for range 10 {
			page, last := ids(k.Runtime, perdure.ListOptions{After: after, Limit: 3})
			if len(page) == 0 {
				break
			}
			paged, after = append(paged, page...), last.Cursor
			// What begins in the meantime is newer, and changes nothing.
			k.MustStart(perdure.StartRequest{Thread: fmt.Sprint("new", len(paged)), Flow: "idle", Input: ""})
			time.Sleep(time.Second)
		}
		if d := cmp.Diff(want, paged[:7]); d != "" {
			t.Errorf("in pages: %s", d)
		}

		// The same id is another thread for another tenant.
		mine, err := b.Get(t.Context(), "t9")
		if err != nil || mine.Tenant != "b" || len(mine.Runs) != 1 || string(mine.Runs[0].Output) != `"of b"` {
			t.Errorf("b's thread is %+v, %v", mine, err)
		}
		theirs := k.WaitFor("t9", perdure.Suspended)
		_, err = b.GetRun(t.Context(), "t9", theirs.ID)
		kit.WantErr(t, "a's run through b", err, perdure.ErrRunNotFound)
		_, err = b.Get(t.Context(), "t8")
		kit.WantErr(t, "a's thread through b", err, perdure.ErrNoThread)
		kit.WantErr(t, "cancel of a's run through b", b.Cancel(t.Context(), "t8", "", perdure.Note{}), perdure.ErrNoThread)
		_, err = b.StateAt(t.Context(), "t8", 0)
		kit.WantErr(t, "state of a's thread through b", err, perdure.ErrNoThread)
		for _, err := range b.Events(t.Context(), "t8", perdure.EventOptions{}) {
			kit.WantErr(t, "events of a's thread through b", err, perdure.ErrNoThread)
		}
	})
}

func TestGetSaysHowFarARunIs(t *testing.T) {
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		if err := perdure.Plan(ctx, "one", "two", "three"); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return "", err
		}
		tries := 0
		if _, err := perdure.Step(ctx, "two", func(context.Context) (int, error) {
			if tries++; tries == 1 {
				return 0, errors.New("not yet")
			}
			return 2, nil
		}, perdure.Retry(perdure.RetryPolicy{})); err != nil {
			return "", err
		}
		return perdure.Ask[string](ctx, "three", perdure.Question{})
	})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{Version: "v7"}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		wantPlan := []perdure.PlanStep{{Name: "one", Done: true}, {Name: "two", Done: true}, {Name: "three"}}
		kit.NoDiff(t, cmp.Diff(wantPlan, run.Plan))
		if run.Steps != 2 || run.Last != "/two" || run.Resumes != 0 || run.Version != "v7" || run.Since.IsZero() || run.Started.IsZero() || !run.Ended.IsZero() {
			t.Errorf("suspended: %+v", run)
		}
		if len(run.Errors) != 1 || run.Errors[0].Path != "/two" || run.Errors[0].Error != "not yet" {
			t.Errorf("its errors are %+v", run.Errors)
		}
		k.AnswerAt(run, "/three", perdure.Answer{Value: "x"})
		run = k.WaitForRun("t", "", perdure.Succeeded)
		if run.Resumes != 1 || run.Ended.IsZero() || len(run.Waits)+len(run.Asks) != 0 || !run.Plan[2].Done {
			t.Errorf("ended: %+v", run)
		}
		_, err := k.Get(t.Context(), "u")
		kit.WantErr(t, "unknown thread", err, perdure.ErrNoThread)
		_, err = k.GetRun(t.Context(), "t", "nope")
		kit.WantErr(t, "unknown run", err, perdure.ErrRunNotFound)
		_, err = k.Wait(t.Context(), "t", "nope")
		kit.WantErr(t, "waiting for an unknown run", err, perdure.ErrRunNotFound)
		_, err = k.Wait(t.Context(), "u", "")
		kit.WantErr(t, "waiting for an unknown thread", err, perdure.ErrNoThread)
	})
}

// TestStartThatWasCutOffLeavesNoThread ends a start between its hints and its
// first entry.
func TestStartThatWasCutOffLeavesNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cutOff func()
		f := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
			if c.Op != store.OpAppend || cutOff == nil {
				return faulty.None
			}
			cutOff()
			return faulty.FailBefore
		})
		rt := kit.Runtime(t, f, perdure.Options{Version: "test"}, kit.EchoFlow("echo"))
		ctx, cancel := context.WithCancel(t.Context())
		cutOff = cancel
		q := perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x", Key: "k"}
		if _, err := rt.Start(ctx, q); err == nil {
			t.Fatal("the start did not fail")
		}
		cutOff = nil
		for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
			t.Errorf("a thread without an entry is listed: %+v, %v", s, err)
		}
		_, err := rt.Get(t.Context(), "t")
		kit.WantErr(t, "get", err, perdure.ErrNoThread)
		kit.WantErr(t, "signal", rt.Signal(t.Context(), "t", "go", 1, perdure.SignalOptions{}), perdure.ErrNoThread)
		for _, err := range rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			kit.WantErr(t, "events", err, perdure.ErrNoThread)
		}
		// A worker meets the hint, and the start can be repeated.
		k := kit.New(t, f, perdure.Options{}, kit.EchoFlow("echo"))
		time.Sleep(time.Second)
		k.MustStart(q)
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "x")
		n := 0
		for range k.List(t.Context(), perdure.ListOptions{}) {
			n++
		}
		if n != 1 {
			t.Errorf("%d threads are listed", n)
		}
	})
}

func TestConcurrentStartsWithOneKeyAndOtherInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		var all sync.WaitGroup
		runs, errs := make([]*perdure.Run, 16), make([]error, 16)
		for i := range runs {
			all.Go(func() {
				runs[i], errs[i] = k.Start(t.Context(), perdure.StartRequest{Flow: "echo", Input: fmt.Sprint(i), Key: "key"})
			})
		}
		all.Wait()
		won := slices.Index(errs, nil)
		if won < 0 {
			t.Fatal(errs[0])
		}
		for i, err := range errs {
			if i != won {
				kit.WantErr(t, fmt.Sprint("start ", i), err, perdure.ErrKeyReused)
			}
		}
		kit.WantOutput(t, k.WaitForRun(runs[won].Thread, "", perdure.Succeeded), fmt.Sprint(won))
	})
}
