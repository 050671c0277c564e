package perdure_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
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
			before := holdings(t, inner)
			_, importErr := shaky.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{})

			k := newKit(t, inner, perdure.Options{}, auditFlow(new(ran)))
			time.Sleep(time.Minute)
			info, err := k.Get(t.Context(), "t")
			switch {
			case err == nil:
				if info.Runs[0].Status != perdure.Paused {
					t.Errorf("%s: the run is %s", cut, info.Runs[0].Status)
				}
				k.verified("t")
			case importErr == nil:
				t.Errorf("%s: the import succeeded, and Get says %v", cut, err)
			default:
				wantErr(t, cut, err, perdure.ErrNoThread)
				left := 0
				marked := false
				for key := range holdings(t, inner) {
					if _, ok := before[key]; !ok {
						left++
						marked = marked || strings.HasPrefix(key, "import/")
					}
				}
				if left > 0 && !marked {
					t.Errorf("%s: %d things are left that no sweep would find", cut, left)
				}
				k.importFile(file, "")
				k.verified("t")
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
		k := newKit(t, nil, perdure.Options{}, askFlow("f", perdure.Question{}))
		k.start("t", "f", "")
		k.waitRun("t", "", perdure.Suspended)
		k.stop()
		if err := k.Cancel(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		file := k.exported("t", perdure.ExportOptions{})
		other := newKit(t, nil, perdure.Options{}, askFlow("f", perdure.Question{}))
		other.importFile(file, "u")
		time.Sleep(time.Hour)
		if run, err := other.GetRun(t.Context(), "u", ""); err != nil || run.Status != perdure.Paused {
			t.Errorf("%+v, %v", run, err)
		}
		if err := other.Resume(t.Context(), "u", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
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
		k := newKit(t, nil, perdure.Options{}, flow)
		k.start("t", "f", 100_000)
		k.waitRun("t", "", perdure.Succeeded)
		file := k.exported("t", perdure.ExportOptions{})
		k.importFile(file, "u")
		a, b := k.verified("t"), k.verified("u")
		if a.Blobs != 1 || b.Blobs != 1 || bytes.Count(file, []byte(`{"data":`)) != 4 {
			t.Errorf("%+v became %+v", a, b)
		}
		got, err := perdure.Replay(t.Context(), bytes.NewReader(file), flow)
		if err != nil || !got.OK() {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
