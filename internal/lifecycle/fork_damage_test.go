package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
)

// TestAForkOfWhatIsGoodGoesOn damages each entry of a thread in turn, in the
// files of real stores, whose reads fail there. A fork of the part that Verify
// calls good is a thread like any other, and so is a fork of that fork.
func TestAForkOfWhatIsGoodGoesOn(t *testing.T) {
	flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
		for _, name := range []string{"one", "two", "three"} {
			if err := kit.SetTone(ctx, name, in); err != nil {
				return "", err
			}
		}
		return kit.Tone.Get(ctx)
	})
	for scheme, path := range map[string]string{"file:": "", "sqlite:": "/db"} {
		t.Run(strings.TrimSuffix(scheme, ":"), func(t *testing.T) {
			open := func(dir string) (store.Store, error) { return store.Open(t.Context(), scheme+dir+path) }
			dir := t.TempDir()
			s, err := open(dir)
			kit.NoErr(t, err)
			k := kit.New(t, s, perdure.Options{}, flow)
			k.StartOn("bad", "f", "x")
			k.WaitFor("bad", perdure.Succeeded)
			k.Stop()
			v, err := k.Verify(t.Context(), "bad")
			if err := errors.Join(err, s.Close()); err != nil || v.Good < 6 {
				t.Fatalf("%+v, %v", v, err)
			}
			for good, place := range damages(t, dir, open, v.Good) {
				copied := t.TempDir()
				kit.NoErr(t, os.CopyFS(copied, os.DirFS(dir)))
				flipAt(t, filepath.Join(copied, place.file), place.at)
				s, err := open(copied)
				kit.NoErr(t, err)
				k := kit.New(t, s, perdure.Options{}, flow)
				checkForkOfGood(t, k, good)
				k.Stop()
				kit.NoErr(t, s.Close())
			}
		})
	}
}

// place is a byte of a file.
type place struct {
	file string
	at   int
}

// damages finds, for each but the last entry of the thread "bad" in the files
// below a folder, a byte whose damage leaves the thread good up to it.
func damages(t *testing.T, dir string, open func(string) (store.Store, error), entries uint64) map[uint64]place {
	t.Helper()
	found := map[uint64]place{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		for at := 64; err == nil && at < len(data) && len(found) < int(entries)-1; at += 96 {
			flipAt(t, filepath.Join(dir, name), at)
			if s, err := open(dir); err == nil {
				if rt, err := perdure.New(t.Context(), s, perdure.Options{Version: "test"}); err == nil {
					v, err := rt.Verify(t.Context(), "bad")
					if err == nil && v.Good > 0 && v.Good < entries && v.Entries == v.Good { // its reads end there
						found[v.Good] = place{name, at}
					}
				}
				_ = s.Close()
			}
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		return err
	})
	if err != nil || len(found) < int(entries)-1 {
		t.Fatalf("of %d entries %d were damaged: %v", entries, len(found), err)
	}
	return found
}

// flipAt changes a bit of a file.
func flipAt(t *testing.T, name string, at int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		data[at] ^= 1
		err = os.WriteFile(name, data, 0o600)
	}
	kit.NoErr(t, err)
}

// checkForkOfGood checks forks of the thread "bad", whose last good entry is
// known.
func checkForkOfGood(t *testing.T, k *kit.Kit, good uint64) {
	t.Helper()
	v, err := k.Verify(t.Context(), "bad")
	if err != nil || v.OK() || v.Good != good {
		t.Fatalf("damage in entry %d: %+v, %v", good+1, v, err)
	}
	if c, err := k.StateAt(t.Context(), "bad", good); err != nil || c.Seq != good {
		t.Errorf("the state at %d: %v", good, err)
	}
	from := "bad"
	for i := range 3 {
		as := fmt.Sprint("fork-", good, "-", i)
		if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: from, At: good, As: as, State: map[string]any{"extra": i}}); err != nil {
			t.Fatalf("fork at %d: %v", good, err)
		}
		from = as
		thread, err := k.Get(t.Context(), as)
		if err != nil || thread.Seq != good+1 || len(thread.Runs) > 1 {
			t.Fatalf("get of a fork at %d: %+v, %v", good, thread, err)
		}
		if len(thread.Runs) == 0 {
			k.StartOn(as, "f", "x")
		} else {
			run, err := k.GetRun(t.Context(), as, thread.Runs[0].ID)
			if err != nil || run.Status != perdure.Paused {
				t.Fatalf("the run of a fork at %d: %+v, %v", good, run, err)
			}
			kit.NoErr(t, k.Resume(t.Context(), as, run.ID, perdure.Note{}))
		}
		kit.WantOutput(t, k.WaitFor(as, perdure.Succeeded), "x")
		if v, err := k.Verify(t.Context(), as); err != nil || !v.OK() || v.Good <= good {
			t.Errorf("a fork at %d is not good: %+v, %v", good, v, err)
		}
		for _, seq := range []uint64{1, good, good + 1, 0} {
			if c, err := k.StateAt(t.Context(), as, seq); err != nil || seq != 0 && c.Seq != seq {
				t.Errorf("the state of a fork at %d: %v", seq, err)
			}
		}
		if d, err := k.Diff(t.Context(), perdure.Point{Thread: "bad", Seq: good}, perdure.Point{Thread: as}); err != nil || d.Common != good || len(d.Left) != 0 {
			t.Errorf("what a fork at %d has added: %+v, %v", good, d, err)
		}
		var file bytes.Buffer
		if err := k.Export(t.Context(), as, &file, perdure.ExportOptions{}); err != nil || !kit.VerifyFile(t, file.Bytes()).OK() {
			t.Errorf("the export of a fork at %d: %v", good, err)
		}
		if trace := k.Trace(as); strings.Contains(trace, "error:") || !strings.HasSuffix(trace, "succeeded\n") {
			t.Errorf("the events of a fork at %d:\n%s", good, trace)
		}
	}
}
