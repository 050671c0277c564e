package retain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// TestWhatGoesAndWhatStays has a thread of each kind.
func TestWhatGoesAndWhatStays(t *testing.T) {
	for action, rule := range map[string]perdure.Retention{"erase": {Keep: day}, "archive": {Keep: day, Archive: true}} {
		kit.Bubble(t, action, func(t *testing.T) {
			ctx := t.Context()
			o := perdure.Options{Archive: attic(t), Retention: []perdure.Retention{rule}}
			mended := &atomic.Bool{}
			k := kit.New(t, nil, o, flows(mended)...)
			k.StartOn("done", "echo", "")
			k.StartOn("suspended", "ask", "")
			k.StartOn("failed", "broken", "")
			k.StartOn("seen", "broken", "")
			run := k.StartOn("cancelled", "ask", "")
			paused := k.StartOn("paused", "ask", "")
			k.StartOn("root", "parent", "echo")
			k.StartOn("forked", "echo", "")
			kit.NoErr(t, create(ctx, k, "idle"))
			child := k.WaitFor("root", perdure.Succeeded)
			k.WaitFor("forked", perdure.Succeeded)
			k.WaitFor("cancelled", perdure.Suspended)
			kit.NoErr(t, k.Cancel(ctx, "cancelled", run.ID, perdure.Note{}))
			k.WaitFor("paused", perdure.Suspended)
			kit.NoErr(t, k.Pause(ctx, "paused", paused.ID, perdure.Note{}))
			k.MustFork(perdure.ForkRequest{Thread: "forked", As: "fork"})
			k.WaitFor("seen", perdure.Failed)
			k.WaitFor("failed", perdure.Failed)
			kit.NoErr(t, k.MarkSeen(ctx, "seen", perdure.Note{By: "ann", Reason: "known"}))
			kit.WantErr(t, "MarkSeen again", k.MarkSeen(ctx, "seen", perdure.Note{}), perdure.ErrNothingToDo)
			kit.WantErr(t, "MarkSeen of a success", k.MarkSeen(ctx, "done", perdure.Note{}), perdure.ErrNothingToDo)
			kit.WantErr(t, "SetMetadata", k.SetMetadata(ctx, "failed", nil, map[string]string{"perdure.seen": "x"}, perdure.Note{}), perdure.ErrInvalid)
			name, err := perdure.Output[string](child)
			kit.NoErr(t, err)

			time.Sleep(day / 2)
			k.StartOn("fork", "echo", "") // it is younger
			k.WaitFor("fork", perdure.Succeeded)
			all := here(t, k.Runtime)
			want(t, "a dry run too early", due(t, k.Runtime), "")
			k.Stop()
			time.Sleep(day/2 + time.Hour)
			want(t, "nobody works", here(t, k.Runtime), all)
			want(t, "a dry run", due(t, k.Runtime), strings.Join([]string{"cancelled " + action, "done " + action, "failed " + action + " unseen", "forked " + action + " pinned fork", "idle " + action, "root " + action + "   " + name, "seen " + action}, "; "))

			k = kit.New(t, k.Store, o, flows(mended)...)
			time.Sleep(25 * time.Minute)
			want(t, "then", here(t, k.Runtime), "failed fork forked paused suspended")
			st := status(t, k.Runtime)
			want(t, "skipped", skips(st), "pinned:1 unseen:1")
			if n := st.Archived + st.Erased; n != 6 || st.Begun.IsZero() || st.Ended.IsZero() || st.Went.IsZero() || len(st.Errors) > 0 || st.Total.Archived+st.Total.Erased != 6 {
				t.Errorf("the status is %+v", st)
			}
			archived := "cancelled done " + name + " idle root seen"
			if action == "erase" {
				archived = ""
			}
			if got := away(t, k.Runtime); len(got) != len(archived) {
				t.Errorf("in the archive: %q, want %q", got, archived)
			}

			// A retry that fails again is another failure.
			kit.NoErr(t, k.MarkSeen(ctx, "failed", perdure.Note{}))
			run, err = k.GetRun(ctx, "failed", "")
			kit.NoErr(t, err)
			kit.NoErr(t, k.Retry(ctx, "failed", run.ID, perdure.Note{}))
			time.Sleep(2 * day)
			want(t, "after another failure", here(t, k.Runtime), "failed paused suspended")
			kit.NoErr(t, k.MarkSeen(ctx, "failed", perdure.Note{}))
			time.Sleep(2 * day)
			want(t, "once it was seen", here(t, k.Runtime), "paused suspended")
		})
	}
}

func create(ctx context.Context, k *kit.Kit, id string) error {
	_, err := k.Create(ctx, perdure.CreateRequest{Thread: id})
	return err
}

// TestFirstRuleThatFits has rules for a tenant and a flow.
func TestFirstRuleThatFits(t *testing.T) {
	kit.Bubble(t, "rules", func(t *testing.T) {
		o := perdure.Options{Archive: attic(t), Retention: []perdure.Retention{
			{Tenant: "acme", Flow: "broken", Keep: day / 2, Unseen: true},
			{Tenant: "acme", Keep: 2 * day, Archive: true, KeepArchived: 3 * day},
			{Tenant: "calm", Forever: true},
			{Keep: day},
		}}
		k := kit.New(t, nil, o, flows(nil)...)
		tenants := map[string]*perdure.Runtime{"": k.Runtime, "acme": k.Tenant("acme"), "calm": k.Tenant("calm"), "other": k.Tenant("other")}
		for _, rt := range tenants {
			kit.Start(t, rt, perdure.StartRequest{Thread: "good", Flow: "echo", Input: ""})
			kit.Start(t, rt, perdure.StartRequest{Thread: "bad", Flow: "broken", Input: ""})
		}
		for _, step := range []struct {
			sleep time.Duration
			want  map[string]string
			away  string
		}{
			{day / 2, map[string]string{"": "bad good", "acme": "good", "calm": "bad good", "other": "bad good"}, ""},
			{day / 2, map[string]string{"": "bad", "acme": "good", "calm": "bad good", "other": "bad"}, ""},
			{day, map[string]string{"": "bad", "acme": "", "calm": "bad good", "other": "bad"}, "good"},
			{2 * day, map[string]string{"": "bad", "acme": "", "calm": "bad good", "other": "bad"}, "good"},
			{day + 2*time.Hour, map[string]string{"": "bad", "acme": "", "calm": "bad good", "other": "bad"}, ""},
		} {
			time.Sleep(step.sleep + 10*time.Minute)
			for name, rt := range tenants {
				want(t, "tenant "+name, here(t, rt), step.want[name])
			}
			want(t, "archived", away(t, tenants["acme"]), step.away)
		}
		st := status(t, tenants["acme"])
		if st.Total != (perdure.RetentionTotal{Archived: 1, Erased: 1, Expired: 1}) || len(st.Rules) != 3 {
			t.Errorf("the status is %+v", st)
		}
		for name, err := range o.Archive.List(t.Context(), "", "") {
			t.Errorf("left in the archive: %s, %v", name, err)
		}
	})
}

// TestNothingStays has a rule without any time.
func TestNothingStays(t *testing.T) {
	kit.Bubble(t, "at once", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{Retention: []perdure.Retention{{Unseen: true}}}, flows(nil)...)
		k.StartOn("good", "echo", "")
		k.StartOn("bad", "broken", "")
		k.StartOn("open", "ask", "")
		kit.NoErr(t, create(t.Context(), k, "prepared"))
		time.Sleep(5 * time.Second)
		want(t, "left", here(t, k.Runtime), "open prepared")
	})
}

// TestAPreparedThreadStays: one that has had no run yet has at least a day.
func TestAPreparedThreadStays(t *testing.T) {
	kit.Bubble(t, "prepared", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{Retention: []perdure.Retention{{Keep: 6 * time.Hour}}}, flows(nil)...)
		kit.NoErr(t, create(t.Context(), k, "prepared"))
		k.StartOn("good", "echo", "")
		time.Sleep(day - time.Hour)
		want(t, "left", here(t, k.Runtime), "prepared")
		time.Sleep(2 * time.Hour)
		want(t, "left after a day", here(t, k.Runtime), "")
	})
}

// TestARestoredThreadStays: whoever restores a thread has as long as the rule says, and at
// least a day.
func TestARestoredThreadStays(t *testing.T) {
	for _, keep := range []time.Duration{day, 6 * time.Hour} {
		restoredStays(t, keep)
	}
}

func restoredStays(t *testing.T, keep time.Duration) {
	kit.Bubble(t, keep.String(), func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{Archive: attic(t), Retention: []perdure.Retention{{Keep: keep, Archive: true, KeepArchived: 30 * day}}}, flows(nil)...)
		k.StartOn("t", "echo", "")
		k.WaitFor("t", perdure.Succeeded)
		file := k.MustExport("t", perdure.ExportOptions{})
		time.Sleep(day + time.Hour)
		want(t, "archived", away(t, k.Runtime), "t")
		kit.NoErr(t, k.Restore(t.Context(), "t", perdure.RestoreOptions{}))
		if string(kit.ExportedEntries(k.MustExport("t", perdure.ExportOptions{}))[0]) != string(kit.ExportedEntries(file)[0]) {
			t.Error("it has other entries")
		}
		time.Sleep(day / 2)
		want(t, "restored", here(t, k.Runtime), "t")
		time.Sleep(day)
		want(t, "archived again", away(t, k.Runtime), "t")
	})
}

// TestFamilies: a root goes with its children, and only if all of them can go.
func TestFamilies(t *testing.T) {
	for _, archived := range []bool{false, true} {
		kit.Bubble(t, fmt.Sprint(archived), func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{Archive: attic(t), Retention: []perdure.Retention{{Keep: day, Archive: archived}}}, flows(nil)...)
			var children []string
			for _, id := range []string{"young", "forked", "failing", "old"} {
				child := "echo"
				if id == "failing" {
					child = "broken"
				}
				k.StartOn(id, "parent", child)
				name, err := perdure.Output[string](k.WaitFor(id, perdure.Succeeded))
				kit.NoErr(t, err)
				children = append(children, name)
			}
			k.MustFork(perdure.ForkRequest{Thread: children[1], As: "fork"})
			time.Sleep(day - time.Hour)
			k.StartOn(children[0], "echo", "") // it was at rest until now
			k.StartOn("fork", "echo", "")
			time.Sleep(2 * time.Hour)
			want(t, "a day later", here(t, k.Runtime), sorted("young", children[0], "forked", children[1], "fork"))
			want(t, "skipped", skips(status(t, k.Runtime)), "child:1 pinned:1")
			time.Sleep(day)
			want(t, "two days later", here(t, k.Runtime), "")
		})
	}
}

// TestCrashAtEveryWrite crashes the worker that removes threads at each of its writes.
func TestCrashAtEveryWrite(t *testing.T) {
	rules := map[string]perdure.Retention{
		"erase":   {Keep: day},
		"archive": {Keep: day, Archive: true},
		"expire":  {Keep: day, Archive: true, KeepArchived: day},
	}
	for name, rule := range rules {
		for how, fault := range map[string]faulty.Fault{"before": faulty.CrashBefore, "after": faulty.CrashAfter, "unanswered": faulty.FailAfter} {
			for _, plain := range []bool{false, true} {
				if testing.Short() && (plain || how == "before") {
					continue // what is left differs little
				}
				t.Run(fmt.Sprint(name, " ", how, " ", plain), func(t *testing.T) {
					hits := 0
					for at, more := 0, true; more && !t.Failed(); at += kit.Sized(13, 1, 1) {
						kit.Bubble(t, fmt.Sprint(at), func(t *testing.T) {
							var s store.Store = memstore.New()
							if plain {
								s = kit.Plain(s)
							}
							more = crashAt(t, s, rule, fault, at, inBubble)
						})
						if more {
							hits++
						}
					}
					if hits < kit.Sized(2, 15, 15) {
						t.Errorf("only %d writes", hits)
					}
				})
			}
		}
	}
}

// TestCrashOnDisk crashes at some writes on stores that are files, in real time.
func TestCrashOnDisk(t *testing.T) {
	for name, open := range map[string]func(dir string) (store.Store, error){
		"filestore": func(dir string) (store.Store, error) {
			return filestore.Open(t.Context(), filepath.Join(dir, "store"), filestore.Options{NoSync: true})
		},
		"sqlitestore": func(dir string) (store.Store, error) {
			return sqlitestore.Open(t.Context(), filepath.Join(dir, "db"), sqlitestore.Options{})
		},
	} {
		for at := 1; at < 20; at += kit.Sized(9, 2, 2) {
			for action, rule := range map[string]perdure.Retention{"erase": {}, "archive": {Archive: true}} {
				t.Run(fmt.Sprint(name, " ", action, " ", at), func(t *testing.T) {
					t.Parallel()
					s, err := open(t.TempDir())
					kit.NoErr(t, err)
					t.Cleanup(func() { s.Close() })
					if !crashAt(t, s, rule, faulty.CrashAfter, at, inRealTime) {
						t.Errorf("there are fewer than %d writes", at+1)
					}
				})
			}
		}
	}
}

// pace is how a crash is waited for.
type pace struct {
	age, lease time.Duration
	until      func(t *testing.T, holds func() bool)
}

var (
	inBubble   = pace{2 * day, 10 * time.Second, func(*testing.T, func() bool) { time.Sleep(time.Hour) }}
	inRealTime = pace{0, time.Second, func(t *testing.T, holds func() bool) {
		for deadline := time.Now().Add(time.Minute); !holds() && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	}}
)

// crashAt reports whether there was such a write.
func crashAt(t *testing.T, s store.Store, rule perdure.Retention, fault faulty.Fault, at int, p pace) (hit bool) {
	o := perdure.Options{Archive: attic(t), Lease: p.lease}
	k := kit.New(t, s, o, flows(nil)...)
	files := map[string][]byte{}
	k.StartOn("t", "parent", "echo")
	child, err := perdure.Output[string](k.WaitFor("t", perdure.Succeeded))
	kit.NoErr(t, err)
	k.MustFork(perdure.ForkRequest{Thread: "t", As: "f"})
	k.StartOn("f", "echo", kit.Large)
	k.WaitFor("f", perdure.Succeeded)
	k.StartOn("young", "ask", "")
	k.WaitFor("young", perdure.Suspended)
	k.Stop()
	for _, id := range []string{"t", child, "f"} {
		files[id] = k.MustExport(id, perdure.ExportOptions{})
	}
	if rule.KeepArchived > 0 { // they are there already
		for _, id := range []string{"f", "t", child} {
			_, err := k.Archive(t.Context(), id, perdure.Note{})
			kit.NoErr(t, err)
		}
	}
	time.Sleep(p.age)

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
	o.Version, o.Retention = "test", []perdure.Retention{rule}
	rt, err := perdure.New(ctx, sick, o)
	kit.NoErr(t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = rt.Work(ctx)
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
	}
	cancel()
	<-over

	k = kit.New(t, s, o, flows(nil)...)
	p.until(t, func() bool { return here(t, k.Runtime) == "young" && !status(t, k.Runtime).Ended.IsZero() })
	want(t, "in the store", here(t, k.Runtime), "young")
	stays := rule.Archive && rule.KeepArchived == 0
	for id, file := range files {
		_, err := k.Get(t.Context(), id)
		if !stays {
			kit.WantErr(t, "Get "+id, err, perdure.ErrNoThread)
			continue
		}
		kit.WantErr(t, "Get "+id, err, perdure.ErrArchived)
		kit.NoErr(t, k.Restore(t.Context(), id, perdure.RestoreOptions{Remove: true}))
		if !bytes.Equal(bytes.Join(kit.ExportedEntries(k.MustExport(id, perdure.ExportOptions{})), nil), bytes.Join(kit.ExportedEntries(file), nil)) {
			t.Errorf("thread %s came back otherwise", id)
		}
	}
	if stays {
		return struck.Load()
	}
	k.Stop()
	kit.NoErr(t, k.Erase(t.Context(), "young", perdure.EraseOptions{}))
	for _, left := range kit.Leftovers(t, s) {
		if left != "cell perdure/retention" && !strings.HasPrefix(left, "cell retention/") {
			t.Errorf("left behind: %s", left)
		}
	}
	for name, err := range o.Archive.List(t.Context(), "", "") {
		t.Errorf("left in the archive: %s, %v", name, err)
	}
	return struck.Load()
}

// TestOnceInACluster has three workers, of which some die, and more threads than a
// page: each goes once.
func TestOnceInACluster(t *testing.T) {
	const n = 120
	kit.Bubble(t, "three", func(t *testing.T) {
		s := memstore.New()
		o := perdure.Options{Archive: attic(t), Lease: 3 * time.Second}
		k := kit.New(t, s, o, flows(nil)...)
		for i := range n {
			k.StartOn(fmt.Sprint("t", i), "echo", "")
		}
		time.Sleep(time.Second)
		k.Stop()
		time.Sleep(day)
		o.Retention, o.RetentionRate = []perdure.Retention{{Keep: day, Archive: true}}, 2
		var crew []*kit.Mortal
		for range 3 {
			crew = append(crew, kit.NewMortal(t, s, o))
		}
		time.Sleep(20 * time.Second)
		if left := len(strings.Fields(here(t, k.Runtime))); left < n-60 || left > n-20 {
			t.Errorf("%d of %d threads are left after 20 seconds at 2 a second", left, n)
		}
		crew[0].Die()
		time.Sleep(10 * time.Second)
		crew[1].Die()
		time.Sleep(20 * time.Minute)
		want(t, "left", here(t, k.Runtime), "")
		if got := len(strings.Fields(away(t, k.Runtime))); got != n {
			t.Errorf("%d threads are in the archive, want %d", got, n)
		}
		objects := 0
		for _, err := range o.Archive.List(t.Context(), "", "") {
			kit.NoErr(t, err)
			objects++
		}
		if objects > n+2 { // one that a worker died with may have been written twice
			t.Errorf("%d objects for %d threads", objects, n)
		}
		if st := status(t, k.Runtime); st.Total.Archived > n || st.Total.Archived < n-2*25 {
			t.Errorf("%d threads were counted, want %d but for those of pages that were cut off", st.Total.Archived, n)
		}
	})
}

// TestARunThatBeginsWins starts a run on a thread between the look and the removal.
func TestARunThatBeginsWins(t *testing.T) {
	for _, archived := range []bool{false, true} {
		kit.Bubble(t, fmt.Sprint(archived), func(t *testing.T) {
			o := perdure.Options{Archive: attic(t), Retention: []perdure.Retention{{Keep: day, Archive: archived}}, RetentionRate: 1}
			k := kit.New(t, nil, o, flows(nil)...)
			for _, id := range []string{"a", "b", "c"} {
				k.StartOn(id, "echo", "")
			}
			time.Sleep(day - time.Minute)
			k.Until("one is gone", func() bool { return len(strings.Fields(here(t, k.Runtime))) == 2 })
			left := strings.Fields(here(t, k.Runtime)) // they are on the page
			for _, id := range left {
				k.StartOn(id, "ask", "")
			}
			time.Sleep(2 * day)
			want(t, "left", here(t, k.Runtime), strings.Join(left, " "))
			for _, id := range left {
				k.WaitFor(id, perdure.Suspended)
			}
		})
	}
}

// TestTheDefaultTenantHasItsRule beside one for all others.
func TestTheDefaultTenantHasItsRule(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		rules := []perdure.Retention{{Default: true, Keep: day}, {Keep: 3 * day}}
		k := kit.New(t, nil, perdure.Options{Retention: rules}, flows(nil)...)
		other := k.Tenant("other")
		k.StartOn("mine", "echo", "")
		kit.Start(t, other, perdure.StartRequest{Thread: "theirs", Flow: "echo", Input: ""})
		time.Sleep(2 * day)
		want(t, "of the default tenant", here(t, k.Runtime), "")
		want(t, "of another", here(t, other), "theirs")
		if got := status(t, other).Rules; len(got) != 1 {
			t.Errorf("rules for another tenant: %+v", got)
		}
		time.Sleep(2 * day)
		want(t, "of another, later", here(t, other), "")
	})
}

// TestRulesThatCannotBe are refused.
func TestRulesThatCannotBe(t *testing.T) {
	for says, r := range map[string]perdure.Retention{
		"negative": {Keep: -1},
		"is none":  {Archive: true},
		"there is": {KeepArchived: time.Hour},
		"Forever":  {Forever: true, Keep: 1},
		"Default":  {Default: true, Tenant: "acme"},
	} {
		_, err := perdure.New(t.Context(), memstore.New(), perdure.Options{Retention: []perdure.Retention{r}})
		if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v does not say %q", r, err, says)
		}
	}
}
