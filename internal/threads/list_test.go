package threads_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// TestListLeavesOutAsksThatExpired has a paused run with an ask that expires, which no
// worker records.
func TestListLeavesOutAsksThatExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("ask", perdure.Question{Expires: time.Minute}), kit.AskFlow("open", perdure.Question{}))
		for _, flow := range []string{"ask", "open"} {
			k.StartOn(flow, flow, "x")
			k.WaitFor(flow, perdure.Suspended)
			kit.NoErr(t, k.Pause(t.Context(), flow, "", perdure.Note{}))
		}
		expect := func(want int) {
			t.Helper()
			for _, o := range []perdure.ListOptions{{Asks: true}, {Expiring: true}, {AsksOf: []string{"ann"}}, {Asks: true, Flow: "ask"}, {}} {
				asks := 0
				for s, err := range k.List(t.Context(), o) {
					kit.NoErr(t, err)
					asks += s.Asks
				}
				if o.Flow == "" && asks != want || o.Flow != "" && asks != want-1 {
					t.Errorf("%+v: %d asks, want %d", o, asks, want)
				}
			}
			counts, err := k.Count(t.Context())
			kit.NoErr(t, err)
			plan, err := k.PlanBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkCancel, Filter: perdure.ListOptions{Asks: true}})
			kit.NoErr(t, err)
			if counts.Asks != want || plan.Threads != want {
				t.Errorf("%d asks are open, and a job would cancel %d threads, want %d", counts.Asks, plan.Threads, want)
			}
		}
		expect(2)
		time.Sleep(2 * time.Minute)
		expect(1)
		_, err := k.Rebuild(t.Context())
		kit.NoErr(t, err)
		expect(1)
	})
}

func TestListChoosesByChangeAndAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"), kit.AskFlow("ask", perdure.Question{}))
		list := func(o perdure.ListOptions) []string {
			t.Helper()
			var ids []string
			for s, err := range k.List(t.Context(), o) {
				kit.NoErr(t, err)
				ids = append(ids, s.ID)
			}
			return ids
		}
		expect := func(what string, o perdure.ListOptions, want ...string) {
			t.Helper()
			if d := cmp.Diff(want, list(o)); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		k.StartOn("a", "echo", "x")
		k.WaitFor("a", perdure.Succeeded)
		time.Sleep(time.Hour)
		k.StartOn("b", "ask", "x")
		open := k.AskAt(k.WaitFor("b", perdure.Suspended), "/ask")
		time.Sleep(time.Hour)
		middle := time.Now()
		if _, err := k.Create(t.Context(), perdure.CreateRequest{Thread: "c"}); err != nil {
			t.Fatal(err)
		}
		expect("all", perdure.ListOptions{}, "c", "b", "a")
		expect("since the very moment", perdure.ListOptions{Updated: middle}, "c")
		expect("since a moment later", perdure.ListOptions{Updated: middle.Add(time.Microsecond)})
		for _, early := range []time.Time{time.Unix(0, 0), time.Unix(-1, 0), time.Unix(0, 999)} {
			expect("before all", perdure.ListOptions{UpdatedBefore: early})
			expect("created before all", perdure.ListOptions{CreatedBefore: early})
			expect("before all, by status", perdure.ListOptions{UpdatedBefore: early, Status: perdure.Succeeded})
			expect("since ever", perdure.ListOptions{Updated: early, Created: early}, "c", "b", "a")
			expect("since ever, by status", perdure.ListOptions{Updated: early, Status: perdure.Succeeded}, "a")
			plan, err := k.PlanBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{UpdatedBefore: early}})
			kit.NoErr(t, err)
			if plan.Threads != 0 {
				t.Errorf("a job for what changed before %v would erase %d threads", early, plan.Threads)
			}
		}
		for _, o := range []perdure.ListOptions{{AsksOf: []string{}}, {Status: "fine"}} {
			var err error
			for _, err = range k.List(t.Context(), o) {
			}
			kit.WantErr(t, "a list that makes no sense", err, perdure.ErrInvalid)
		}
		expect("with asks", perdure.ListOptions{Asks: true}, "b")
		time.Sleep(time.Hour)
		title := "new"
		kit.WantErr(t, "metadata", k.SetMetadata(t.Context(), "a", &title, nil, perdure.Note{}), nil)
		expect("with what changed", perdure.ListOptions{Updated: middle}, "c", "a")
		expect("both", perdure.ListOptions{Updated: middle, Asks: true})
		kit.WantErr(t, "answer", k.AnswerAsk(open.ID, perdure.Answer{Value: "x"}), nil)
		k.WaitFor("b", perdure.Succeeded)
		synctest.Wait()
		expect("without asks", perdure.ListOptions{Asks: true})
		expect("all that changed", perdure.ListOptions{Updated: middle, Limit: 2}, "c", "b")
	})
}

// changing calls then once, when it has read cells of the index and before anybody sees
// them.
type changing struct {
	store.Store
	then func()
}

func (c *changing) Unwrap() store.Store { return c.Store }

func (c *changing) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		var cells []store.Cell
		for cell, err := range c.Store.List(ctx, prefix, after) {
			if err != nil {
				yield(cell, err)
				return
			}
			cells = append(cells, cell)
		}
		if then := c.then; then != nil && threads.IsIndex(prefix) && len(cells) > 0 {
			c.then = nil
			then()
		}
		for _, cell := range cells {
			if !yield(cell, nil) {
				return
			}
		}
	}
}

// TestAThreadThatMovesIsListedOnce changes a thread after a list has read the cells of the
// index, so that it has another cell in the same list.
func TestAThreadThatMovesIsListedOnce(t *testing.T) {
	two := perdure.NewFlow("two", func(ctx context.Context, _ string) (struct{}, error) {
		g := perdure.NewGroup(ctx)
		for _, name := range []string{"first", "second"} {
			g.Go(name, func(ctx context.Context) error {
				if name == "second" {
					if err := perdure.Sleep(ctx, "later", time.Second); err != nil {
						return err
					}
				}
				_, err := perdure.Ask[string](ctx, "opinion", perdure.Question{Who: []string{name, "all"}, Expires: 100 * time.Hour})
				return err
			})
		}
		return struct{}{}, g.Wait()
	})
	runOf := func(t *testing.T, k *kit.Kit) *perdure.Run {
		run, err := k.GetRun(t.Context(), "t", "")
		kit.NoErr(t, err)
		return run
	}
	answer := func(t *testing.T, k *kit.Kit) {
		kit.NoErr(t, k.AnswerAsk(k.AskAt(runOf(t, k), "/first/opinion").ID, perdure.Answer{Value: "x", By: "first"}))
		k.Until("it waits for the other", func() bool { return len(runOf(t, k).Asks) == 1 })
		synctest.Wait()
	}
	patch := func(t *testing.T, k *kit.Kit) {
		kit.NoErr(t, k.SetMetadata(t.Context(), "t", nil, map[string]string{"new": "x"}, perdure.Note{}))
	}
	for name, c := range map[string]struct {
		o      perdure.ListOptions
		change func(*testing.T, *kit.Kit)
	}{
		"asks":          {perdure.ListOptions{Asks: true}, answer},
		"asks expiring": {perdure.ListOptions{Asks: true, Expiring: true}, answer},
		"asks of all":   {perdure.ListOptions{AsksOf: []string{"all"}}, answer},
		"asks of each":  {perdure.ListOptions{AsksOf: []string{"first", "second"}}, answer},
		"metadata":      {perdure.ListOptions{Metadata: map[string]string{"old": "x"}}, patch},
		"flow":          {perdure.ListOptions{Flow: "two"}, patch},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			inner := memstore.New()
			k := kit.New(t, inner, perdure.Options{}, two)
			k.MustStart(perdure.StartRequest{Thread: "t", Flow: "two", Input: "x", Metadata: map[string]string{"old": "x"}})
			k.Until("both ask", func() bool { return len(runOf(t, k).Asks) == 2 })
			synctest.Wait()
			watched := &changing{Store: inner, then: func() { c.change(t, k) }}
			rt, err := perdure.New(t.Context(), watched, perdure.Options{}, two)
			kit.NoErr(t, err)
			n := 0
			for s, err := range rt.List(t.Context(), c.o) {
				kit.NoErr(t, err)
				if n++; s.ID != "t" {
					t.Errorf("it lists %s", s.ID)
				}
			}
			if watched.then != nil {
				t.Error("the list has not read the index")
			}
			if n != 1 {
				t.Errorf("the thread is listed %d times", n)
			}
		})
	}
}

// TestWhatNobodyWaitsForShows: lists know of a signal and of a new state, though they do
// not change the status of the thread.
func TestWhatNobodyWaitsForShows(t *testing.T) {
	for name, open := range map[string]func() store.Store{
		"batches": func() store.Store { return memstore.New() },
		"plain":   func() store.Store { return kit.Plain(memstore.New()) },
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, open(), perdure.Options{}, kit.EchoFlow("echo"), kit.AskFlow("ask", perdure.Question{}))
			k.StartOn("ended", "echo", "x")
			k.WaitFor("ended", perdure.Succeeded)
			k.StartOn("waiting", "ask", "x")
			k.WaitFor("waiting", perdure.Suspended)
			_, err := k.Create(t.Context(), perdure.CreateRequest{Thread: "idle"})
			kit.NoErr(t, err)
			k.Stop() // no worker comes by
			k.StartOn("queued", "echo", "x")
			time.Sleep(time.Hour)
			for id, status := range map[string]perdure.Status{"ended": perdure.Succeeded, "waiting": perdure.Suspended, "idle": perdure.Idle, "queued": perdure.Queued} {
				began := time.Now()
				kit.NoErr(t, k.Signal(t.Context(), id, "news", strings.Repeat("x", 100_000), perdure.SignalOptions{}))
				var found []string
				for s, err := range k.List(t.Context(), perdure.ListOptions{Updated: began, Status: status}) {
					kit.NoErr(t, err)
					found = append(found, s.ID)
				}
				if d := cmp.Diff([]string{id}, found); d != "" {
					t.Errorf("changed since: %s", d)
				}
				for s, err := range k.List(t.Context(), perdure.ListOptions{UpdatedBefore: began}) {
					kit.NoErr(t, err)
					if s.ID == id {
						t.Errorf("%s is listed as unchanged: %+v", id, s)
					}
				}
				bytes := int64(0)
				for s, err := range threads.Behind(k.Runtime).Select(t.Context(), threads.Query{}, "") {
					kit.NoErr(t, err)
					if s.ID == id {
						bytes = s.Bytes
					}
				}
				if bytes < 100_000 {
					t.Errorf("%s has %d bytes", id, bytes)
				}
				time.Sleep(time.Hour)
			}
		})
	}
}

func TestWatchTellsWhenToLookAtTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		ctx, cancel := context.WithCancel(t.Context())
		told, others := 0, 0
		done := make(chan bool)
		go func() {
			for range k.Watch(ctx) {
				told++
			}
			done <- true
		}()
		go func() {
			for range k.Tenant("other").Watch(ctx) {
				others++
			}
			done <- true
		}()
		synctest.Wait()
		if told != 1 || others != 1 {
			t.Errorf("at once they were told %d and %d times", told, others)
		}
		title := "new"
		for what, do := range []func() error{
			func() error { _, err := k.Create(ctx, perdure.CreateRequest{Thread: "t"}); return err },
			func() error { return k.SetMetadata(ctx, "t", &title, nil, perdure.Note{}) },
			func() error { k.StartOn("t", "echo", "x"); k.WaitFor("t", perdure.Succeeded); return nil },
			func() error { return k.Erase(ctx, "t", perdure.EraseOptions{}) },
		} {
			before := told
			kit.WantErr(t, "the change", do(), nil)
			synctest.Wait()
			if told == before {
				t.Errorf("nothing was told of change %d", what)
			}
		}
		if others != 1 {
			t.Errorf("another tenant was told %d times", others)
		}
		cancel()
		<-done
		<-done
		for range k.Watch(t.Context()) {
			break // a reader may stop early
		}
	})
}

// TestAPageHasTheRunsThatHaveNotEnded: a page includes all runs that have not ended,
// however old they are, unless it is a page of earlier runs.
func TestAPageHasTheRunsThatHaveNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"), kit.AskFlow("ask", perdure.Question{}))
		expect := func(what string, p perdure.RunPage, earlier, runs, asks int) {
			t.Helper()
			page, err := k.GetPage(t.Context(), "t", p)
			kit.NoErr(t, err)
			open := 0
			for _, run := range page.Runs {
				open += len(run.Asks)
			}
			if page.Earlier != earlier || len(page.Runs) != runs || open != asks {
				t.Errorf("%s: %d runs with %d asks after %d, want %d with %d after %d", what, len(page.Runs), open, page.Earlier, runs, asks, earlier)
			}
		}
		for range 3 {
			k.StartOn("t", "echo", "x")
			k.WaitFor("t", perdure.Succeeded)
		}
		ask := k.StartOn("t", "ask", "")
		k.WaitFor("t", perdure.Suspended)
		for range 4 {
			run := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x", Policy: perdure.Beside})
			k.WaitForRun("t", run.ID, perdure.Succeeded)
		}
		expect("the newest", perdure.RunPage{Limit: 2}, 3, 5, 1)
		expect("more than are open", perdure.RunPage{Limit: 6}, 2, 6, 1)
		expect("all", perdure.RunPage{}, 0, 8, 1)
		expect("those before", perdure.RunPage{Before: ask.Seq, Limit: 2}, 1, 2, 0)
		expect("among those before", perdure.RunPage{Before: ask.Seq + 1, Limit: 1}, 3, 1, 1)
		k.AnswerAt(k.WaitForRun("t", ask.ID, perdure.Suspended), "/ask", perdure.Answer{Value: "x"})
		k.WaitForRun("t", ask.ID, perdure.Succeeded)
		expect("when all have ended", perdure.RunPage{Limit: 2}, 6, 2, 0)
	})
}
