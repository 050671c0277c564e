package archive_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestAForkIsVerifiedAndExportedFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(ran)
		s := &kit.Rewritten{Store: memstore.New()}
		k := kit.New(t, s, perdure.Options{}, auditFlow(r))
		playAudit(k, "t")
		whole := k.MustVerify("t")
		for _, at := range []uint64{1, whole.Good / 2, whole.Good} {
			f, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: at})
			kit.NoErr(t, err)
			v := k.MustVerify(f.Thread)
			file := k.MustExport(f.Thread, perdure.ExportOptions{})
			if got := kit.VerifyFile(t, file); v.Good != at+1 || !got.OK() || got.Head != v.Head || got.Blobs != v.Blobs {
				t.Errorf("a fork at %d is %+v, its export %+v", at, v, got)
			}
			k.MustImport(file, f.Thread+"-copy")
			k.MustVerify(f.Thread + "-copy")
			got, err := perdure.Replay(t.Context(), bytes.NewReader(file), auditFlow(r))
			if err != nil || !got.OK() {
				t.Errorf("%+v, %v", got, err)
			}
		}
		// Damage in what it shares, and where it begins.
		f, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: 20})
		kit.NoErr(t, err)
		var own string
		for _, name := range kit.Journals(t, s) {
			if lines, err := store.ReadAll(t.Context(), s.Store, name, 0); err != nil {
				t.Fatal(err)
			} else if bytes.Contains(lines[0].Data, []byte(f.Thread+`"`)) && len(lines) == 1 {
				own = name
			}
		}
		for journal, want := range map[string]struct {
			entry int
			good  uint64
		}{kit.Journals(t, s)[0]: {9, 9}, own: {0, 0}} {
			entries, err := store.ReadAll(t.Context(), s.Store, journal, 0)
			kit.NoErr(t, err)
			var lines [][]byte
			for _, e := range entries {
				lines = append(lines, e.Data)
			}
			s.Journal = journal
			s.Show(flipBit(lines, want.entry, 8*(len(lines[want.entry])-60)))
			v, err := k.Verify(t.Context(), f.Thread)
			if err != nil || v.OK() || v.Good != want.good {
				t.Errorf("%+v, %v; want it to be good up to %d", v, err, want.good)
			}
			s.Show(nil)
		}
		k.MustVerify(f.Thread)
	})
}

func TestARewoundThreadIsVerifiedImportedAndReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{t: t, live: true}
		flow := c.flow(steady(func(ctx context.Context, c *calls) error { return c.steps(ctx, "a", "b") }))
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "flow", "")
		k.WaitForRun("t", "", perdure.Succeeded)
		at := k.MustVerify("t").Good
		k.StartOn("t", "flow", "")
		k.WaitForRun("t", "", perdure.Succeeded)
		if _, err := k.Rewind(t.Context(), "t", at, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.StartOn("t", "flow", "")
		k.WaitForRun("t", "", perdure.Succeeded)
		k.MustVerify("t")
		file := k.MustExport("t", perdure.ExportOptions{})
		if v := kit.VerifyFile(t, file); !v.OK() {
			t.Fatal(v.Problem)
		}
		k.MustImport(file, "u")
		k.MustVerify("u")
		c.live = false
		got, err := perdure.Replay(t.Context(), bytes.NewReader(file), flow)
		if err != nil || !got.OK() || len(got.Runs) != 2 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestReplayFollowsParentsAndChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{t: t, live: true}
		child := perdure.NewFlow("child", func(ctx context.Context, in string) (string, error) {
			if in == "wait" {
				return "", question(ctx, "ok")
			}
			return in, c.step(ctx, "work")
		})
		parent := func(joins bool) perdure.Flow {
			return perdure.NewFlow("parent", func(ctx context.Context, in string) (string, error) {
				a, err := perdure.Spawn(ctx, "a", "child", "hello")
				if err != nil {
					return "", err
				}
				if _, err := perdure.Spawn(ctx, "b", "child", "wait"); err != nil {
					return "", err
				}
				if !joins {
					return "none", nil
				}
				got, err := perdure.Join[string](ctx, "join", a)
				if err == nil && in == "wait" {
					err = question(ctx, "ok")
				}
				return got, errors.Join(err, c.step(ctx, "after"))
			})
		}
		k := kit.New(t, nil, perdure.Options{}, child, parent(true))
		k.StartOn("done", "parent", "")
		k.WaitForRun("done", "", perdure.Succeeded)
		k.StartOn("waits", "parent", "wait")
		time.Sleep(time.Minute)
		k.WaitForRun("waits", "", perdure.Suspended)
		k.Stop()
		c.live = false
		for _, thread := range []string{"done", "waits"} {
			file := k.MustExport(thread, perdure.ExportOptions{})
			got, err := perdure.Replay(t.Context(), bytes.NewReader(file), child, parent(true))
			if err != nil || !got.OK() {
				t.Errorf("%s: %+v, %v", thread, got, err)
			}
			got, err = perdure.Replay(t.Context(), bytes.NewReader(file), child, parent(false))
			if err != nil || got.OK() || !strings.Contains(got.Runs[0].Problem, `- join "join"`) {
				t.Errorf("%s without its join: %+v, %v", thread, got, err)
			}
		}
	})
}
