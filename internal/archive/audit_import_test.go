package archive_test

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// TestAnInterruptedImportIsNeverSeen crashes an import at each of its writes.
func TestAnInterruptedImportIsNeverSeen(t *testing.T) {
	file := recordAudit(t, new(ran), perdure.ExportOptions{})
	cuts := 0
	for cut, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter, faulty.FailBefore, faulty.FailAfter) {
		cuts++
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New()
			if _, err := perdure.New(t.Context(), inner, perdure.Options{}); err != nil { // so that the sweep begins with the import
				t.Fatal(err)
			}
			shaky, err := perdure.New(t.Context(), faulty.New(inner, plan), perdure.Options{}, auditFlow(new(ran)))
			if err != nil {
				return // the cut is before the import
			}
			before := kit.Holdings(t, inner)
			_, importErr := shaky.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{})

			k := kit.New(t, inner, perdure.Options{}, auditFlow(new(ran)))
			time.Sleep(time.Minute)
			info, err := k.Get(t.Context(), "t")
			switch {
			case err == nil:
				if info.Runs[0].Status != perdure.Paused {
					t.Errorf("%s: the run is %s", cut, info.Runs[0].Status)
				}
				k.MustVerify("t")
			case importErr == nil:
				t.Errorf("%s: the import succeeded, and Get says %v", cut, err)
			default:
				kit.WantErr(t, cut, err, perdure.ErrNoThread)
				left := 0
				marked := false
				for key := range kit.Holdings(t, inner) {
					if _, ok := before[key]; !ok {
						left++
						marked = marked || strings.HasPrefix(key, "import/")
					}
				}
				if left > 0 && !marked {
					t.Errorf("%s: %d things are left that no sweep would find", cut, left)
				}
				k.MustImport(file, "")
				k.MustVerify("t")
			}
		})
	}
	if cuts < 20 {
		t.Errorf("only %d cuts", cuts)
	}
}

// TestACancelledRunRestsInItsImportToo: its code takes its way out only when a
// person lets it.
func TestACancelledRunRestsInItsImportToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		k.StartOn("t", "f", "")
		k.WaitForRun("t", "", perdure.Suspended)
		k.Stop()
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{}))
		file := k.MustExport("t", perdure.ExportOptions{})
		other := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		other.MustImport(file, "u")
		time.Sleep(time.Hour)
		if run, err := other.GetRun(t.Context(), "u", ""); err != nil || run.Status != perdure.Paused {
			t.Errorf("%+v, %v", run, err)
		}
		kit.NoErr(t, other.Resume(t.Context(), "u", "", perdure.Note{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		run, err := other.WaitEnd(ctx, "u", "")
		if err != nil || run.Status != perdure.Cancelled {
			t.Errorf("%+v, %v", run, err)
		}
	})
}

// TestAnImportStreams takes a thread with a value of many chunks.
func TestAnImportStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, n int) (int, error) {
			text, err := perdure.Step(ctx, "large", func(context.Context) (string, error) { return strings.Repeat("0123456789", n), nil })
			return len(text), err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", 100_000)
		k.WaitForRun("t", "", perdure.Succeeded)
		file := k.MustExport("t", perdure.ExportOptions{})
		k.MustImport(file, "u")
		a, b := k.MustVerify("t"), k.MustVerify("u")
		if a.Blobs != 1 || b.Blobs != 1 || bytes.Count(file, []byte(`{"data":`)) != 4 {
			t.Errorf("%+v became %+v", a, b)
		}
		got, err := perdure.Replay(t.Context(), bytes.NewReader(file), flow)
		if err != nil || !got.OK() {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestRebuildDropsDeadImports cuts an import at each write: what is left is
// shown whole or dropped, an hour later.
func TestRebuildDropsDeadImports(t *testing.T) {
	file := recordAudit(t, new(ran), perdure.ExportOptions{})
	var shown, dropped int
	for cut, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter) {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			k := &kit.Kit{Runtime: kit.Runtime(t, s, perdure.Options{}), T: t, Store: s}
			before := kit.Holdings(t, s)
			shaky, err := perdure.New(t.Context(), faulty.New(s, plan), perdure.Options{})
			if err != nil {
				return
			}
			if _, err := shaky.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{}); err == nil {
				return
			}
			holdings := func() map[string]string { // but cells of the index, of which Rebuild removes outdated ones
				all := kit.Holdings(t, s)
				maps.DeleteFunc(all, func(key, _ string) bool { return strings.HasPrefix(key, "index/") })
				return all
			}
			held := holdings()
			if k.MustRebuild(); !cmp.Equal(held, holdings()) {
				t.Errorf("%s: an import that may be under way was touched: %s", cut, cmp.Diff(held, holdings()))
			}
			time.Sleep(time.Hour)
			k.MustRebuild()
			if _, err := k.Get(t.Context(), "t"); err == nil {
				shown++
				k.MustVerify("t")
				for key := range kit.Holdings(t, s) {
					if strings.HasPrefix(key, "import/") {
						t.Errorf("%s: %s is left", cut, key)
					}
				}
				return
			}
			dropped++
			if diff := cmp.Diff(before, kit.Holdings(t, s)); diff != "" {
				t.Errorf("%s: what is left of the import (-before +after):\n%s", cut, diff)
			}
			k.MustImport(file, "")
			k.MustVerify("t")
		})
	}
	if shown == 0 || dropped < 5 {
		t.Errorf("%d imports were shown and %d dropped", shown, dropped)
	}
}
