package bulk_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// office is flows, of which one always fails until it is mended and one waits.
type office struct{ mended atomic.Bool }

func (f *office) flows() []perdure.Flow {
	return []perdure.Flow{
		perdure.NewFlow("broken", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "work", func(context.Context) (string, error) {
				if !f.mended.Load() {
					return "", errors.New("no luck")
				}
				return "done", nil
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 1}))
		}),
		perdure.NewFlow("waiting", func(ctx context.Context, _ string) (string, error) {
			return perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: "?"})
		}),
	}
}

// fill starts so many runs of each flow, on threads broken-I of ann and waiting-I of
// bob, and waits until they stand.
func fill(k *kit.Kit, n int) {
	k.T.Helper()
	for i := range n {
		k.MustStart(perdure.StartRequest{Thread: fmt.Sprint("broken-", i), Flow: "broken", Input: "", User: "ann"})
		k.MustStart(perdure.StartRequest{Thread: fmt.Sprint("waiting-", i), Flow: "waiting", Input: "", User: "bob"})
	}
	for i := range n {
		k.WaitFor(fmt.Sprint("broken-", i), perdure.Failed)
		k.WaitFor(fmt.Sprint("waiting-", i), perdure.Suspended)
	}
	time.Sleep(time.Millisecond) // a job is for what was there before it
}

// carriedOut waits until a job is done.
func carriedOut(k *kit.Kit, id string) *perdure.Bulk {
	k.T.Helper()
	var b *perdure.Bulk
	k.Until("the job is done", func() bool {
		var err error
		b, err = k.Bulk(k.T.Context(), id)
		kit.NoErr(k.T, err)
		return b.State == perdure.BulkDone
	})
	return b
}

// tally counts the threads by their status.
func tally(k *kit.Kit) map[perdure.Status]int {
	k.T.Helper()
	n := map[perdure.Status]int{}
	for s, err := range k.List(k.T.Context(), perdure.ListOptions{}) {
		kit.NoErr(k.T, err)
		run, err := k.GetRun(k.T.Context(), s.ID, "")
		kit.NoErr(k.T, err)
		n[run.Status]++
	}
	return n
}

func counts(b *perdure.Bulk) string { return fmt.Sprint(b.Done, " ", b.Skipped, " ", b.Failed) }

// verbCase is a verb, with a filter that selects one of the flows.
type verbCase struct {
	q      perdure.BulkRequest
	status map[perdure.Status]int // of n threads of each flow, afterwards
	kind   string                 // of the event of which each selected thread has one
	of     string                 // the selected threads
}

func verbCases(n int) map[string]verbCase {
	return map[string]verbCase{
		"cancel":  {perdure.BulkRequest{Verb: perdure.BulkCancel, Filter: perdure.ListOptions{Flow: "waiting", Status: perdure.Suspended}}, map[perdure.Status]int{perdure.Failed: n, perdure.Cancelled: n}, "cancel", "waiting-"},
		"retry":   {perdure.BulkRequest{Verb: perdure.BulkRetry, Filter: perdure.ListOptions{Status: perdure.Failed}}, map[perdure.Status]int{perdure.Succeeded: n, perdure.Suspended: n}, "retried", "broken-"},
		"erase":   {perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "ann"}}, map[perdure.Status]int{perdure.Suspended: n}, "", ""},
		"archive": {perdure.BulkRequest{Verb: perdure.BulkArchive, Filter: perdure.ListOptions{Status: perdure.Failed}}, map[perdure.Status]int{perdure.Suspended: n}, "", ""},
		"export":  {perdure.BulkRequest{Verb: perdure.BulkExport, Filter: perdure.ListOptions{Flow: "broken"}}, map[perdure.Status]int{perdure.Failed: n, perdure.Suspended: n}, "", ""},
	}
}

// attic returns options with an archive in a folder.
func attic(t *testing.T, lease time.Duration) perdure.Options {
	t.Helper()
	place, err := archive.Open(t.Context(), "file:"+t.TempDir())
	kit.NoErr(t, err)
	return perdure.Options{Archive: place, Lease: lease}
}

// check waits for a job, and looks at what it has done.
func (c *verbCase) check(k *kit.Kit, o perdure.Options, n int, job string) {
	k.T.Helper()
	b := carriedOut(k, job)
	if counts(b) != fmt.Sprint(n, " 0 0") || len(b.Errors) > 0 || b.Ended.IsZero() {
		k.T.Errorf("the job ended with %+v, want %d done", b, n)
	}
	var last string
	k.Until("the threads have their statuses", func() bool {
		last = cmp.Diff(c.status, tally(k))
		return last == ""
	})
	files := map[string]int{}
	for name, err := range o.Archive.List(k.T.Context(), "", "") {
		kit.NoErr(k.T, err)
		before, _, _ := strings.Cut(name, "/")
		if files[before]++; before == "exports" {
			readExport(k.T, o.Archive, name)
		}
	}
	if c.q.Verb == perdure.BulkExport && (files["exports"] != n || !strings.HasSuffix(b.Where, "/exports/"+job+"/")) {
		k.T.Errorf("there are %v, want %d exports in %s", files, n, b.Where)
	}
	if c.q.Verb == perdure.BulkArchive {
		away := 0
		for a, err := range k.Archived(k.T.Context(), perdure.ArchivedOptions{}) {
			kit.NoErr(k.T, err)
			kit.NoErr(k.T, k.Restore(k.T.Context(), a.ID, perdure.RestoreOptions{}))
			away++
		}
		if away != n {
			k.T.Errorf("%d threads are in the archive, want %d", away, n)
		}
	}
	for i := range n {
		if c.kind == "" {
			break
		}
		if got := k.KindsOf(fmt.Sprint(c.of, i))[c.kind]; got != 1 {
			k.T.Errorf("thread %s%d has %d events %s\n%s", c.of, i, got, c.kind, k.Trace(fmt.Sprint(c.of, i)))
		}
	}
}

// readExport expects that an object is a whole export.
func readExport(t *testing.T, p archive.Place, name string) {
	t.Helper()
	rd, err := p.Get(t.Context(), name)
	kit.NoErr(t, err)
	defer rd.Close()
	zip, err := gzip.NewReader(rd)
	kit.NoErr(t, err)
	if v, err := perdure.VerifyExport(zip); err != nil || !v.OK() || v.Signer == "" {
		t.Errorf("%s: %+v, %v", name, v, err)
	}
}

// TestJobsDoWhatTheyAreFor has two workers, and more threads than a page.
func TestJobsDoWhatTheyAreFor(t *testing.T) {
	n := kit.Sized(30, 60, 60)
	for name, c := range verbCases(n) {
		kit.Bubble(t, name, func(t *testing.T) {
			f := &office{}
			s := memstore.New()
			o := attic(t, 3*time.Second)
			k := kit.New(t, s, o, f.flows()...)
			kit.New(t, s, o, f.flows()...)
			fill(k, n)
			plan, err := k.PlanBulk(t.Context(), c.q)
			if err != nil || plan.Threads != n || len(plan.First) != 10 {
				t.Fatalf("%+v, %v", plan, err)
			}
			f.mended.Store(true)
			c.q.Key, c.q.By, c.q.Reason = "k", "eve", "spring"
			b, err := k.StartBulk(t.Context(), c.q)
			kit.NoErr(t, err)
			again, err := k.StartBulk(t.Context(), c.q)
			if err != nil || again.ID != b.ID {
				t.Errorf("the same key gave %v, %v", again, err)
			}
			c.q.Reason = "autumn"
			if _, err := k.StartBulk(t.Context(), c.q); !errors.Is(err, perdure.ErrKeyReused) {
				t.Errorf("another request with the key: %v", err)
			}
			time.Sleep(time.Millisecond)
			k.StartOn("late", "waiting", "") // it matches only after the job began
			defer func() {
				if run, err := k.GetRun(t.Context(), "late", ""); err != nil || run.Status != perdure.Suspended {
					t.Errorf("the thread that came later: %+v, %v", run, err)
				}
			}()
			c.status[perdure.Suspended]++
			c.check(k, o, n, b.ID)
			if c.kind != "" {
				for _, e := range k.EventsOf(c.of + "7") {
					if e.Kind == c.kind && (e.By != "eve" || e.Reason != "spring") {
						t.Errorf("%+v", e)
					}
				}
			}
			all, err := k.Bulks(t.Context())
			if err != nil || len(all) != 1 || all[0].ID != b.ID {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}

// TestCrashAtEveryWrite crashes the worker of a job at each of its writes.
func TestCrashAtEveryWrite(t *testing.T) {
	const n = 4
	for name, c := range verbCases(n) {
		for how, fault := range map[string]faulty.Fault{"before": faulty.CrashBefore, "after": faulty.CrashAfter, "lost": faulty.FailBefore, "unanswered": faulty.FailAfter} {
			for _, plain := range []bool{false, true} {
				if testing.Short() && (plain != (name == "erase") || how == "before" || how == "lost") {
					continue
				}
				t.Run(fmt.Sprint(name, " ", how, " ", plain), func(t *testing.T) {
					hits := 0
					for at, more := 0, true; more && at < 200; at += kit.Sized(5, 1, 1) {
						kit.Bubble(t, fmt.Sprint(at), func(t *testing.T) { more = crashAt(t, c, n, plain, fault, at) })
						if more {
							hits++
						}
					}
					if hits < kit.Sized(1, 4, 4) {
						t.Errorf("only %d writes", hits)
					}
				})
			}
		}
	}
}

// crashAt reports whether there was such a write.
func crashAt(t *testing.T, c verbCase, n int, plain bool, fault faulty.Fault, at int) (hit bool) {
	f := &office{}
	var s store.Store = memstore.New()
	if plain {
		s = kit.Plain(s)
	}
	o := attic(t, 3*time.Second)
	k := kit.New(t, s, o, f.flows()...)
	fill(k, n)
	k.Stop()
	f.mended.Store(true)
	b, err := k.StartBulk(t.Context(), c.q)
	kit.NoErr(t, err)
	var writes atomic.Int64
	var struck atomic.Bool
	sick := faulty.New(s, func(call faulty.Call) faulty.Fault {
		if call.W == 0 || strings.HasPrefix(call.Name, "worker/") { // leases are not what is tested
			return faulty.None
		}
		if writes.Add(1) == int64(at+1) {
			struck.Store(true)
			return fault
		}
		return faulty.None
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sick.OnCrash(cancel)
	over := make(chan struct{})
	o.Version = "test"
	rt, err := perdure.New(ctx, sick, o) // without flows: it only carries out the job
	kit.NoErr(t, err)
	go func() {
		defer close(over)
		_ = rt.Work(ctx)
	}()
	k.Until("it has crashed or is done", func() bool {
		b, err := k.Bulk(t.Context(), b.ID)
		return err == nil && b.State == perdure.BulkDone || ctx.Err() != nil
	})
	cancel()
	<-over
	c.check(kit.New(t, s, o, f.flows()...), o, n, b.ID)
	return struck.Load()
}

// TestADeadWorkerIsReplaced has a job that needs longer than its workers live.
func TestADeadWorkerIsReplaced(t *testing.T) {
	const n = 40
	for name, c := range verbCases(n) {
		kit.Bubble(t, name, func(t *testing.T) {
			f := &office{}
			s := memstore.New()
			o := attic(t, time.Second)
			k := kit.New(t, s, o, f.flows()...)
			fill(k, n)
			k.Stop()
			f.mended.Store(true)
			c.q.Rate = 2
			b, err := k.StartBulk(t.Context(), c.q)
			kit.NoErr(t, err)
			for range 3 {
				m := kit.NewMortal(t, s, o)
				time.Sleep(5 * time.Second)
				m.Die()
			}
			if b, err = k.Bulk(t.Context(), b.ID); err != nil || b.State != perdure.BulkRunning || b.Done == 0 || b.Done >= n {
				t.Errorf("after three deaths: %+v, %v", b, err)
			}
			c.check(kit.New(t, s, o, f.flows()...), o, n, b.ID)
		})
	}
}

// TestAJobIsStoppedAndGoesOn stops a job in the middle.
func TestAJobIsStoppedAndGoesOn(t *testing.T) {
	const n = 80
	kit.Bubble(t, "erase", func(t *testing.T) {
		f := &office{}
		k := kit.New(t, nil, perdure.Options{Lease: 3 * time.Second}, f.flows()...)
		fill(k, n)
		b, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "ann"}, Rate: 10})
		kit.NoErr(t, err)
		time.Sleep(3300 * time.Millisecond) // in the middle of a page, and between two signs of life
		_, err = k.StopBulk(t.Context(), b.ID)
		kit.NoErr(t, err)
		time.Sleep(5 * time.Second)
		left := tally(k)[perdure.Failed]
		time.Sleep(time.Hour)
		if b, err = k.Bulk(t.Context(), b.ID); err != nil || b.State != perdure.BulkStopped || left == 0 || left == n || tally(k)[perdure.Failed] != left || b.Done != n-left {
			t.Fatalf("%d are left, then %d: %+v, %v", left, tally(k)[perdure.Failed], b, err)
		}
		_, err = k.ResumeBulk(t.Context(), b.ID)
		kit.NoErr(t, err)
		if b := carriedOut(k, b.ID); counts(b) != "80 0 0" || tally(k)[perdure.Failed] != 0 {
			t.Errorf("%+v", b)
		}
		_, err = k.StopBulk(t.Context(), b.ID)
		kit.WantErr(t, "stopping a job that is done", err, perdure.ErrNothingToDo)
		_, err = k.StopBulk(t.Context(), "nope")
		kit.WantErr(t, "stopping no job", err, perdure.ErrNoBulk)
		k.Stop()
		time.Sleep(31 * 24 * time.Hour)
		k = kit.New(t, k.Store, perdure.Options{})
		time.Sleep(time.Second)
		if all, err := k.Bulks(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("a month later: %v, %v", all, err)
		}
	})
}

// TestAStoppedJobIsResumedAtOnce stops a job and resumes it before its holder notices.
func TestAStoppedJobIsResumedAtOnce(t *testing.T) {
	kit.Bubble(t, "erase", func(t *testing.T) {
		const n = 30
		f := &office{}
		k := kit.New(t, nil, perdure.Options{}, f.flows()...)
		fill(k, n)
		b, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "ann"}, Rate: 5})
		kit.NoErr(t, err)
		for range 4 {
			time.Sleep(time.Second)
			_, err = k.StopBulk(t.Context(), b.ID)
			kit.NoErr(t, err)
			_, err = k.ResumeBulk(t.Context(), b.ID)
			kit.NoErr(t, err)
		}
		if b := carriedOut(k, b.ID); counts(b) != "30 0 0" {
			t.Errorf("%+v", b)
		}
	})
}

// TestJobsTakeTurns has more slow and large jobs, of a user and of another tenant, than
// two workers carry out at a time, and a small one after them.
func TestJobsTakeTurns(t *testing.T) {
	kit.Bubble(t, "erase", func(t *testing.T) {
		const n, each = 12, 7
		f := &office{}
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, f.flows()...)
		kit.New(t, s, perdure.Options{}, f.flows()...)
		fill(k, n)
		k.MustStart(perdure.StartRequest{Thread: "small", Flow: "waiting", Input: "", User: "eve"})
		k.WaitFor("small", perdure.Suspended)
		other := k.Tenant("other")
		for i := range n {
			kit.Start(t, other, perdure.StartRequest{Thread: fmt.Sprint(i), Flow: "waiting", Input: ""})
		}
		time.Sleep(time.Second)
		slow := map[string]*perdure.Runtime{}
		began := time.Now()
		for _, r := range []*perdure.Runtime{k.User("bob"), k.User("ann"), other} {
			for range each {
				b, err := r.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkCancel, All: true, Rate: 1})
				kit.NoErr(t, err)
				slow[b.ID] = r
			}
		}
		time.Sleep(3 * time.Second)
		small, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "eve"}})
		kit.NoErr(t, err)
		if b := carriedOut(k, small.ID); counts(b) != "1 0 0" {
			t.Errorf("%+v", b)
		}
		for id, r := range slow {
			b, err := r.Bulk(t.Context(), id)
			kit.NoErr(t, err)
			if b.State != perdure.BulkRunning {
				t.Errorf("job %s is %s before the small one", id, b.State)
			}
			if done := b.Done + b.Skipped; done > int(time.Since(began).Seconds())+1 {
				t.Errorf("job %s of one thread a second has done %d in %v", id, done, time.Since(began))
			}
		}
		for id, r := range slow {
			k.Until("all jobs are done", func() bool {
				b, err := r.Bulk(t.Context(), id)
				kit.NoErr(t, err)
				return b.State == perdure.BulkDone
			})
			if b, err := r.Bulk(t.Context(), id); err != nil || b.Done+b.Skipped != n || b.Failed > 0 {
				t.Errorf("%+v, %v", b, err)
			}
		}
	})
}

// TestThreadsThatChangeAreLeftAlone changes threads between the start of a job and
// its work on them.
func TestThreadsThatChangeAreLeftAlone(t *testing.T) {
	kit.Bubble(t, "retry", func(t *testing.T) { // they fail again at once
		const n = 30
		f := &office{}
		k := kit.New(t, nil, perdure.Options{}, f.flows()...)
		fill(k, n)
		b, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkRetry, Filter: perdure.ListOptions{Status: perdure.Failed}})
		kit.NoErr(t, err)
		if b = carriedOut(k, b.ID); counts(b) != "30 0 0" {
			t.Errorf("%+v", b)
		}
		for i := range n {
			if got := k.KindsOf(fmt.Sprint("broken-", i))["retried"]; got != 1 {
				t.Errorf("thread %d was retried %d times", i, got)
			}
		}
	})
	kit.Bubble(t, "erase", func(t *testing.T) {
		const n = 10
		f := &office{}
		k := kit.New(t, nil, perdure.Options{}, f.flows()...)
		fill(k, n)
		b, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{Status: perdure.Failed}, Rate: 1})
		kit.NoErr(t, err)
		time.Sleep(2 * time.Second) // the page is written down, and most of it is to be done
		f.mended.Store(true)
		changed := 0
		for i := range n {
			if err := k.Retry(t.Context(), fmt.Sprint("broken-", i), "", perdure.Note{}); err == nil {
				changed++
			}
		}
		b = carriedOut(k, b.ID)
		if got := tally(k)[perdure.Succeeded]; got != changed || changed < 5 || b.Done != n-changed || b.Skipped != changed {
			t.Errorf("%d of %d threads that were retried are there, %+v", got, changed, b)
		}
	})
	kit.Bubble(t, "cancel", func(t *testing.T) { // a run that is queued later
		f := &office{}
		k := kit.New(t, nil, perdure.Options{}, f.flows()...)
		fill(k, 3)
		b, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkCancel, Filter: perdure.ListOptions{User: "bob"}, Rate: 1})
		kit.NoErr(t, err)
		time.Sleep(time.Millisecond)
		for i := range 3 {
			k.MustStart(perdure.StartRequest{Thread: fmt.Sprint("waiting-", i), Flow: "waiting", Input: ""})
		}
		b = carriedOut(k, b.ID)
		for i := range 3 {
			if th, err := k.Get(t.Context(), fmt.Sprint("waiting-", i)); err != nil || len(th.Runs) != 2 || th.Runs[0].Status != perdure.Cancelled || th.Runs[1].Status == perdure.Cancelled {
				t.Errorf("thread %d: %+v, %v", i, th.Runs, err)
			}
		}
		if counts(b) != "3 0 0" {
			t.Errorf("%+v", b)
		}
	})
}

// TestForksAndTheirPast erases threads that depend on each other.
func TestForksAndTheirPast(t *testing.T) {
	kit.Bubble(t, "all of them", func(t *testing.T) {
		f := &office{}
		k := kit.New(t, nil, perdure.Options{}, f.flows()...)
		fill(k, 1)
		for i := range 6 {
			_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: []string{"broken-0", fmt.Sprint("fork-", i-1)}[min(i, 1)], As: fmt.Sprint("fork-", i)})
			kit.NoErr(t, err)
		}
		time.Sleep(time.Second)
		b, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "ann"}})
		kit.NoErr(t, err)
		if b = carriedOut(k, b.ID); counts(b) != "7 0 0" {
			t.Errorf("%+v", b)
		}
	})
	kit.Bubble(t, "one that stays", func(t *testing.T) {
		f := &office{}
		k := kit.New(t, nil, perdure.Options{}, f.flows()...)
		fill(k, 2)
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "waiting-0", As: "fork"})
		kit.NoErr(t, err)
		time.Sleep(time.Second)
		q := perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{Status: perdure.Suspended}}
		b, err := k.StartBulk(t.Context(), q)
		kit.NoErr(t, err)
		if b = carriedOut(k, b.ID); counts(b) != "1 0 1" || len(b.Errors) != 1 || b.Errors[0].Thread != "waiting-0" || !strings.Contains(b.Errors[0].Error, "fork") {
			t.Errorf("%+v", b)
		}
		q.Dependents = true
		b, err = k.StartBulk(t.Context(), q)
		kit.NoErr(t, err)
		if b = carriedOut(k, b.ID); counts(b) != "1 0 0" || len(tally(k)) != 1 {
			t.Errorf("%+v", b)
		}
	})
}

// TestWhoReachesWhat limits jobs to tenants and users.
func TestWhoReachesWhat(t *testing.T) {
	kit.Bubble(t, "users", func(t *testing.T) {
		f := &office{}
		k := kit.New(t, nil, perdure.Options{}, f.flows()...)
		fill(k, 3)
		kit.Start(t, k.Tenant("other"), perdure.StartRequest{Thread: "theirs", Flow: "waiting", Input: "", User: "ann"})
		kit.NoErr(t, func() error { _, err := k.Tenant("other").Wait(t.Context(), "theirs", ""); return err }())
		time.Sleep(time.Second)
		ann := k.User("ann")
		b, err := ann.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkErase, All: true})
		kit.NoErr(t, err)
		for name, rt := range map[string]*perdure.Runtime{"another user": k.User("bob"), "another tenant": k.Tenant("other")} {
			_, err := rt.Bulk(t.Context(), b.ID)
			kit.WantErr(t, name, err, perdure.ErrNoBulk)
			_, err = rt.StopBulk(t.Context(), b.ID)
			kit.WantErr(t, name, err, perdure.ErrNoBulk)
			if all, err := rt.Bulks(t.Context()); err != nil || len(all) > 0 {
				t.Errorf("%s has %v, %v", name, all, err)
			}
		}
		if b = carriedOut(k, b.ID); counts(b) != "3 0 0" {
			t.Errorf("%+v", b)
		}
		kit.NoDiff(t, cmp.Diff(map[perdure.Status]int{perdure.Suspended: 3}, tally(k)))
		if _, err := k.Tenant("other").Get(t.Context(), "theirs"); err != nil {
			t.Error(err)
		}
	})
}

// TestRunningJobsAreBounded starts as many jobs as a tenant and its users may have,
// without a worker.
func TestRunningJobsAreBounded(t *testing.T) {
	rt := kit.Runtime(t, memstore.New(), perdure.Options{})
	one := perdure.BulkRequest{Verb: perdure.BulkCancel, All: true}
	starters := map[string]*perdure.Runtime{"ann": rt.User("ann"), "bob": rt.User("bob"), "the tenant": rt, "another": rt.Tenant("another")}
	for name, r := range starters {
		var last *perdure.Bulk
		for i := range 20 {
			q := one
			q.Key = fmt.Sprint(name, i)
			var err error
			last, err = r.StartBulk(t.Context(), q)
			kit.NoErr(t, err)
		}
		_, err := r.StartBulk(t.Context(), one)
		kit.WantErr(t, "one more of "+name, err, perdure.ErrQuota)
		again := one
		again.Key = name + "19"
		_, err = r.StartBulk(t.Context(), again)
		kit.WantErr(t, "the same of "+name, err, nil)
		_, err = r.StopBulk(t.Context(), last.ID)
		kit.NoErr(t, err)
		_, err = r.StartBulk(t.Context(), one)
		kit.WantErr(t, "after a stop of "+name, err, nil)
		_, err = r.ResumeBulk(t.Context(), last.ID)
		kit.WantErr(t, "a resume of "+name, err, perdure.ErrQuota)
	}
}

// TestPlanOfAnEraseCountsArchivedThreads that match its filter: they stay.
func TestPlanOfAnEraseCountsArchivedThreads(t *testing.T) {
	kit.Bubble(t, "archived", func(t *testing.T) {
		k := kit.New(t, memstore.New(), attic(t, 0), kit.EchoFlow("echo"))
		for id, user := range map[string]string{"a": "ann", "b": "ann", "c": "bob"} {
			run := k.MustStart(perdure.StartRequest{Thread: id, Flow: "echo", User: user, Metadata: map[string]string{"of": user}})
			k.WaitForRun(id, run.ID, perdure.Succeeded)
			if id != "b" {
				_, err := k.Archive(t.Context(), id, perdure.Note{})
				kit.NoErr(t, err)
			}
		}
		for _, c := range []struct {
			q             perdure.BulkRequest
			here, archive int
		}{
			{perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "ann"}}, 1, 1},
			{perdure.BulkRequest{Verb: perdure.BulkErase, All: true}, 1, 2},
			{perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{Metadata: map[string]string{"of": "bob"}}}, 0, 1},
			{perdure.BulkRequest{Verb: perdure.BulkErase, Filter: perdure.ListOptions{Status: perdure.Failed}}, 0, 0},
			{perdure.BulkRequest{Verb: perdure.BulkExport, All: true}, 1, 0},
		} {
			if p, err := k.PlanBulk(t.Context(), c.q); err != nil || p.Threads != c.here || p.Archived != c.archive {
				t.Errorf("the plan of %+v is %+v, %v; want %d and %d", c.q, p, err, c.here, c.archive)
			}
		}
	})
}

// TestRequestsThatMakeNoSense are refused.
func TestRequestsThatMakeNoSense(t *testing.T) {
	rt := kit.Runtime(t, memstore.New(), perdure.Options{})
	one := perdure.ListOptions{User: "ann"}
	for name, q := range map[string]perdure.BulkRequest{
		"no verb":                    {Filter: one},
		"all threads":                {Verb: perdure.BulkErase},
		"all threads, in JSON":       {Verb: perdure.BulkErase, Filter: perdure.ListOptions{Metadata: map[string]string{}}},
		"metadata that is too long":  {Verb: perdure.BulkErase, Filter: perdure.ListOptions{Metadata: map[string]string{"a": strings.Repeat("x", 300)}}},
		"a status that is none":      {Verb: perdure.BulkErase, Filter: perdure.ListOptions{Status: "fine"}},
		"asks of nobody":             {Verb: perdure.BulkErase, Filter: perdure.ListOptions{AsksOf: []string{}}},
		"asks of nobody, of a user":  {Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "ann", AsksOf: []string{}}},
		"text that JSON changes":     {Verb: perdure.BulkErase, Filter: perdure.ListOptions{Flow: "a\xff"}},
		"a time that JSON has not":   {Verb: perdure.BulkErase, Filter: perdure.ListOptions{UpdatedBefore: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"a page":                     {Verb: perdure.BulkErase, Filter: perdure.ListOptions{User: "ann", Limit: 3}},
		"no archive":                 {Verb: perdure.BulkArchive, Filter: one},
		"a rate":                     {Verb: perdure.BulkErase, Filter: one, Rate: -1},
		"dependents of a cancel":     {Verb: perdure.BulkCancel, Filter: one, Dependents: true},
		"a reason that is too long":  {Verb: perdure.BulkCancel, Filter: one, Reason: strings.Repeat("x", 20_000)},
		"a filter that is too large": {Verb: perdure.BulkCancel, Filter: perdure.ListOptions{User: strings.Repeat("x", 200_000)}},
	} {
		_, err := rt.StartBulk(t.Context(), q)
		kit.WantErr(t, name, err, perdure.ErrInvalid)
		if name != "no archive" && name != "a filter that is too large" {
			_, err = rt.PlanBulk(t.Context(), q)
			kit.WantErr(t, "plan of "+name, err, perdure.ErrInvalid)
		}
	}
	if !slices.Contains(perdure.BulkVerbs, perdure.BulkErase) {
		t.Error("no erase")
	}
}
