package threads_test

import (
	cmp2 "cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

var indexFlows = []perdure.Flow{
	kit.EchoFlow("echo"),
	kit.AskFlow("ask", perdure.Question{}),
	kit.AskFlow("boss", perdure.Question{Who: []string{"boss", "group:ops"}, Expires: time.Hour}),
	kit.AskFlow("crowd", perdure.Question{Who: strings.Fields("a b c d e f g h i j")}),
	perdure.NewFlow("fail", func(context.Context, string) (string, error) { return "", fmt.Errorf("no") }),
	perdure.NewFlow("sleep", func(ctx context.Context, _ string) (string, error) {
		return "", perdure.Sleep(ctx, "nap", 90*time.Second)
	}),
}

// everyThread returns what the journals of a store say about its threads: the ids
// of those that each list should have. Those that are half erased should be in none.
func everyThread(t *testing.T, rt *perdure.Runtime, s store.Store) (want map[string][]string) {
	t.Helper()
	all := threads.Behind(rt).All
	want = map[string][]string{}
	for _, key := range kit.Journals(t, s) {
		name := strings.TrimPrefix(key, threads.JournalKey(""))
		o, err := all.Read(t.Context(), name)
		if threads.IsGone(err) || err == nil && o.Thread.Seq == 0 {
			continue
		}
		kit.NoErr(t, err)
		th := o.Thread
		add := func(kind, value string) { want[kind+" "+value] = append(want[kind+" "+value], th.ID) }
		add("all", "")
		add("user", th.User)
		add("status", string(threads.StatusOf(th)))
		for k, v := range th.Meta {
			add("meta", k+"="+v)
		}
		flow := ""
		for _, r := range th.Runs {
			flow = r.Flow
		}
		if busy := th.Busy(); busy != nil {
			flow = busy.Flow
		}
		add("flow", flow)
		who := map[string]bool{}
		for a := range th.AllOpenAsks() {
			for _, w := range a.Question.Who {
				who[w] = true
			}
			if len(a.Question.Who) == 0 {
				who["anyone"] = true
			}
		}
		if len(who) > 0 {
			add("asks", "")
			add("asks and user", th.User)
			add("expiring and user", th.User)
		}
		for _, w := range []string{"boss", "group:ops", "j", "nobody"} {
			if who["anyone"] || who[w] || len(who) > 8 {
				add("asks of", w)
			}
		}
	}
	return want
}

// everyList returns what lists have, by the same names.
func everyList(t *testing.T, rt *perdure.Runtime, metas []string) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	list := func(name string, o perdure.ListOptions) {
		for s, err := range rt.List(t.Context(), o) {
			kit.NoErr(t, err)
			got[name] = append(got[name], s.ID)
		}
	}
	list("all ", perdure.ListOptions{})
	for _, user := range []string{"ann", "bob"} {
		list("user "+user, perdure.ListOptions{User: user})
		list("asks and user "+user, perdure.ListOptions{User: user, Asks: true})
		list("expiring and user "+user, perdure.ListOptions{User: user, Expiring: true})
	}
	for _, status := range []perdure.Status{perdure.Idle, perdure.Queued, perdure.Running, perdure.Suspended, perdure.Paused, perdure.Succeeded, perdure.Failed, perdure.Cancelled, perdure.Blocked} {
		list("status "+strings.TrimPrefix(string(status), "idle"), perdure.ListOptions{Status: status})
	}
	for _, f := range indexFlows {
		list("flow "+f.Name(), perdure.ListOptions{Flow: f.Name()})
	}
	for _, m := range metas {
		k, v, _ := strings.Cut(m, "=")
		list("meta "+m, perdure.ListOptions{Metadata: map[string]string{k: v}})
	}
	list("asks ", perdure.ListOptions{Asks: true})
	for _, w := range []string{"boss", "group:ops", "j", "nobody"} {
		list("asks of "+w, perdure.ListOptions{AsksOf: []string{w}})
	}
	return got
}

var indexMetas = []string{"task=1", "task=2", "kind=a"}

func checkLists(t *testing.T, at string, rt *perdure.Runtime, s store.Store) {
	t.Helper()
	want := everyThread(t, rt, s)
	got := everyList(t, rt, indexMetas)
	for _, m := range []map[string][]string{want, got} {
		for name := range m {
			slices.Sort(m[name])
		}
		maps.DeleteFunc(m, func(name string, ids []string) bool {
			return len(ids) == 0 || strings.HasSuffix(name, "user ") || name == "flow "
		})
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: lists (-journals +lists):\n%s", at, d)
	}
	counts, err := rt.Count(t.Context())
	kit.NoErr(t, err)
	for name, ids := range want {
		if status, ok := strings.CutPrefix(name, "status "); ok && counts.Statuses[cmp2.Or(perdure.Status(status), perdure.Idle)] != len(ids) {
			t.Errorf("%s: %d threads are %q, counted: %v", at, len(ids), status, counts)
		}
	}
	checkTimes(t, at, rt)
}

// checkTimes compares lists with times with the threads of a list without.
func checkTimes(t *testing.T, at string, rt *perdure.Runtime) {
	t.Helper()
	var all []perdure.Summary
	for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		all = append(all, s)
	}
	for _, s := range all {
		for _, o := range []perdure.ListOptions{{Created: s.Created}, {CreatedBefore: s.Created}, {Status: cmp2.Or(s.Status, perdure.Idle), Updated: s.Updated},
			{Status: cmp2.Or(s.Status, perdure.Idle), UpdatedBefore: s.Updated}, {UpdatedBefore: s.Updated, CreatedBefore: s.Created.Add(time.Microsecond)}} {
			var want, got []string
			for _, s := range all {
				within := func(t, since, before time.Time) bool {
					return !t.Before(since) && (before.IsZero() || t.Before(before))
				}
				if within(s.Created, o.Created, o.CreatedBefore) && within(s.Updated, o.Updated, o.UpdatedBefore) && (o.Status == "" || cmp2.Or(s.Status, perdure.Idle) == o.Status) {
					want = append(want, s.ID)
				}
			}
			for s, err := range rt.List(t.Context(), o) {
				kit.NoErr(t, err)
				got = append(got, s.ID)
			}
			if !slices.Equal(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))) {
				t.Errorf("%s: %+v yields %q, want %q", at, o, got, want)
			}
		}
	}
}

// live does things to threads until one fails, because the store has died.
func live(ctx context.Context, rt *perdure.Runtime, rnd *rand.Rand, most int) {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	metadata := func() map[string]string {
		return []map[string]string{nil, {"task": "1"}, {"task": "2", "kind": "a"}}[rnd.IntN(3)]
	}
	for i := range most {
		var err error
		id := fmt.Sprint("t", rnd.IntN(6))
		switch rnd.IntN(9) {
		case 0, 1, 2:
			_, err = rt.Start(ctx, perdure.StartRequest{Thread: id, Flow: pick("echo", "ask", "boss", "crowd", "fail", "sleep"), Input: "x", User: pick("ann", "bob"), Metadata: metadata()})
		case 3:
			_, err = rt.Create(ctx, perdure.CreateRequest{Thread: id, User: pick("ann", "bob"), Metadata: metadata()})
		case 4:
			err = rt.SetMetadata(ctx, id, nil, metadata(), perdure.Note{})
		case 5:
			_, err = rt.Fork(ctx, perdure.ForkRequest{Thread: id, As: fmt.Sprint("f", i)})
		case 6:
			if t, getErr := rt.Get(ctx, id); getErr == nil && len(t.Runs) > 0 {
				for _, a := range t.Runs[len(t.Runs)-1].Asks {
					err = rt.Answer(ctx, perdure.AskAnswer{Ask: a.ID, Groups: []string{"ops"}, Answer: perdure.Answer{Value: "yes", By: pick("boss", "a")}})
				}
			}
		case 7:
			err = rt.Cancel(ctx, id, "", perdure.Note{})
		case 8:
			err = rt.Erase(ctx, id, perdure.EraseOptions{Dependents: true})
		}
		_ = err // refused, or the store has died
		time.Sleep(time.Duration(rnd.IntN(40)) * time.Second)
		if ctx.Err() != nil {
			return
		}
	}
}

func indexStores() map[string]func() store.Store {
	return map[string]func() store.Store{
		"batches":    func() store.Store { return memstore.New() },
		"no batches": func() store.Store { return kit.Plain(memstore.New()) },
	}
}

// Whatever happens to threads, lists by each facet have those that their journals say.
func TestListsAreWhatJournalsSay(t *testing.T) {
	for name, create := range indexStores() {
		for seed := range kit.Sized(6, 30, 300) {
			kit.Bubble(t, fmt.Sprint(name, " ", seed), func(t *testing.T) {
				s := create()
				k := kit.New(t, s, perdure.Options{}, indexFlows...)
				rnd := rand.New(rand.NewPCG(uint64(seed), 1))
				for range 5 {
					live(t.Context(), k.Runtime, rnd, 12)
					synctest.Wait()
					checkLists(t, "before a rebuild", k.Runtime, s)
				}
				k.MustRebuild()
				checkLists(t, "after a rebuild", k.Runtime, s)
				eraseAll(t, k.Runtime)
				k.Stop()
				kit.WantNothing(t, s)
			})
		}
	}
}

func eraseAll(t *testing.T, rt *perdure.Runtime) {
	t.Helper()
	var ids []string
	for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		ids = append(ids, s.ID)
	}
	for i := range 24 { // those that are half made too
		ids = append(ids, fmt.Sprint("t", i), fmt.Sprint("f", i))
	}
	for _, id := range ids {
		if err := rt.Erase(t.Context(), id, perdure.EraseOptions{Dependents: true}); !threads.IsGone(err) {
			kit.NoErr(t, err)
		}
	}
}

// A process that dies at any write leaves lists as its journals say once another
// has gone on with its work, and nothing that an erase does not find.
func TestListsAfterACrashAnywhere(t *testing.T) {
	step := kit.Sized(23, 3, 1)
	for name, create := range indexStores() {
		t.Run(name, func(t *testing.T) {
			var reached atomic.Bool
			reached.Store(true)
			for n := 1; reached.Load() && !t.Failed(); n += step {
				cut := fmt.Sprint("crash at write ", n)
				fault := []faulty.Fault{faulty.CrashBefore, faulty.CrashAfter}[n%2]
				reached.Store(false)
				plan := func(c faulty.Call) faulty.Fault {
					if c.W != n {
						return faulty.None
					}
					reached.Store(true)
					return fault
				}
				synctest.Test(t, func(t *testing.T) {
					s := create()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					dying := faulty.New(s, plan)
					rt, err := perdure.New(ctx, dying, perdure.Options{}, indexFlows...)
					if err != nil {
						return
					}
					done := make(chan error, 1)
					go func() { done <- rt.Work(ctx) }()
					live(ctx, rt, rand.New(rand.NewPCG(7, 7)), 24)
					cancel()
					<-done
					k := kit.New(t, s, perdure.Options{}, indexFlows...)
					time.Sleep(30 * time.Minute)
					synctest.Wait()
					checkLists(t, cut, k.Runtime, s)
					eraseAll(t, k.Runtime)
					time.Sleep(5 * time.Minute)
					k.Stop()
					if left := kit.Leftovers(t, s); len(left) > 0 {
						t.Errorf("%s: left behind:\n%s", cut, strings.Join(left, "\n"))
					}
				})
			}
		})
	}
}

// between calls then before the first write of a cell of the index, once it is set.
type between struct {
	store.Store
	then func()
}

func (b *between) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if then := b.then; then != nil && threads.IsIndex(key) {
		b.then = nil
		then()
	}
	return b.Store.Put(ctx, key, value, prev)
}

// A writer whose summary was overtaken between its announcement and its cells removes
// these: no summary tells of them, so an erase would not find them.
func TestCellsOfAnOvertakenSummaryGo(t *testing.T) {
	inner := memstore.New()
	s := &between{Store: inner}
	slow := kit.Runtime(t, s, perdure.Options{}, indexFlows...)
	fast := kit.Runtime(t, kit.Plain(inner), perdure.Options{}, indexFlows...)
	batched := kit.Runtime(t, inner, perdure.Options{}, indexFlows...)
	_, err := slow.Create(t.Context(), perdure.CreateRequest{Thread: "t"})
	kit.NoErr(t, err)
	overtook := false
	s.then = func() {
		overtook = true
		kit.NoErr(t, fast.SetMetadata(t.Context(), "t", nil, map[string]string{"color": "red"}, perdure.Note{}))
		kit.NoErr(t, batched.SetMetadata(t.Context(), "t", nil, map[string]string{"color": "green"}, perdure.Note{}))
	}
	kit.NoErr(t, slow.SetMetadata(t.Context(), "t", nil, map[string]string{"color": "blue"}, perdure.Note{}))
	if !overtook {
		t.Fatal("nothing was written to the index")
	}
	kit.NoErr(t, fast.Erase(t.Context(), "t", perdure.EraseOptions{}))
	kit.WantNothing(t, inner)
}

// interrupted calls during before the first write of a cell of the index.
type interrupted struct {
	store.Store
	during func()
	once   sync.Once
	done   bool
}

func (s *interrupted) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if threads.IsIndex(key) {
		s.once.Do(func() {
			s.during()
			s.done = true
		})
	}
	return s.Store.Put(ctx, key, value, prev)
}

// TestCompletedWhileItIsErased: whoever writes cells that are missing in the index leaves
// none of a thread that is erased or changed meanwhile.
func TestCompletedWhileItIsErased(t *testing.T) {
	for what, do := range map[string]func(t *testing.T, rt *perdure.Runtime){
		"erased": func(t *testing.T, rt *perdure.Runtime) {},
		"changed": func(t *testing.T, rt *perdure.Runtime) {
			kit.NoErr(t, rt.SetMetadata(t.Context(), "t", nil, map[string]string{"k": "other"}, perdure.Note{}))
		},
	} {
		kit.Bubble(t, what, func(t *testing.T) {
			k := kit.New(t, memstore.New(), perdure.Options{}, indexFlows...)
			k.WaitForRun("t", k.MustStart(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x", User: "ann", Metadata: map[string]string{"k": "v"}}).ID, perdure.Succeeded)
			synctest.Wait()
			k.Stop()
			lost := 0
			for key := range kit.Holdings(t, k.Store) {
				if threads.IsIndex(key) {
					cell, err := k.Store.Get(t.Context(), key)
					kit.NoErr(t, err)
					kit.NoErr(t, k.Store.Delete(t.Context(), key, cell.Version))
					lost++
				}
			}
			erase := func() { kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{})) }
			s := &interrupted{Store: k.Store}
			rt := kit.Runtime(t, s, perdure.Options{}, indexFlows...)
			s.during = func() {
				if do(t, k.Runtime); what == "erased" {
					erase()
				}
			}
			name := strings.TrimPrefix(kit.Journals(t, k.Store)[0], threads.JournalKey(""))
			if _, err := threads.Behind(rt).All.CompleteIndexed(t.Context(), name); err != nil || !s.done || lost < 5 {
				t.Fatalf("%d cells were lost, and it wrote some: %t, %v", lost, s.done, err)
			}
			if what == "changed" {
				erase()
			}
			kit.WantNothing(t, k.Store)
		})
	}
}

// hesitant waits a little before each write.
type hesitant struct{ store.Store }

func (h hesitant) wait() { time.Sleep(rand.N(20 * time.Millisecond)) }

func (h hesitant) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	h.wait()
	return h.Store.Put(ctx, key, value, prev)
}

func (h hesitant) Delete(ctx context.Context, key string, prev store.Version) error {
	h.wait()
	return h.Store.Delete(ctx, key, prev)
}

// TestWritersOfOneSummary: several writers of a thread's summary at once, on a store that
// has no batches, leave lists as the journal says, and no cell that an erase does not find.
func TestWritersOfOneSummary(t *testing.T) {
	for seed := range kit.Sized(10, 100, 1000) {
		kit.Bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			s := kit.Plain(memstore.New())
			k := kit.New(t, hesitant{s}, perdure.Options{}, indexFlows...)
			var all sync.WaitGroup
			for i := range 8 {
				id := fmt.Sprint("t", i)
				k.MustStart(perdure.StartRequest{Thread: id, Flow: "echo", Input: "x", User: "ann", Metadata: map[string]string{"kind": "a"}})
				for n := range 6 {
					all.Go(func() {
						time.Sleep(rand.N(100 * time.Millisecond))
						kit.NoErr(t, k.SetMetadata(t.Context(), id, nil, map[string]string{"task": fmt.Sprint(1 + n%2)}, perdure.Note{}))
					})
				}
			}
			all.Wait()
			synctest.Wait()
			checkLists(t, "after all writers", k.Runtime, s)
			eraseAll(t, k.Runtime)
			k.Stop()
			kit.WantNothing(t, s)
		})
	}
}

// TestASummaryStaysSmall: what a summary says of the index does not grow with the changes.
func TestASummaryStaysSmall(t *testing.T) {
	s := kit.Plain(memstore.New())
	rt := kit.Runtime(t, s, perdure.Options{}, indexFlows...)
	_, err := rt.Create(t.Context(), perdure.CreateRequest{Thread: "t"})
	kit.NoErr(t, err)
	size := func(changes int) int {
		for range changes {
			kit.NoErr(t, rt.SetMetadata(t.Context(), "t", nil, map[string]string{"a": fmt.Sprint(100 + rand.IntN(900))}, perdure.Note{}))
		}
		var sizes []int
		for cell, err := range s.List(t.Context(), threads.JournalKey(""), "") {
			kit.NoErr(t, err)
			sizes = append(sizes, len(cell.Value))
		}
		if len(sizes) != 1 {
			t.Fatalf("there are %d summaries", len(sizes))
		}
		return sizes[0]
	}
	if few, many := size(10), size(90); many > few+20 {
		t.Errorf("the summary has %d bytes after 10 changes, and %d after 100", few, many)
	}
}
