package perdure_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestAForkIsVerifiedAndExportedFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(ran)
		s := &rewritten{Store: memstore.New()}
		k := newKit(t, s, perdure.Options{}, auditFlow(r))
		playAudit(k, "t")
		whole := k.verified("t")
		for _, at := range []uint64{1, whole.Good / 2, whole.Good} {
			f, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: at})
			if err != nil {
				t.Fatal(err)
			}
			v := k.verified(f.Thread)
			file := k.exported(f.Thread, perdure.ExportOptions{})
			if got := verifyFile(t, file); v.Good != at+1 || !got.OK() || got.Head != v.Head || got.Blobs != v.Blobs {
				t.Errorf("a fork at %d is %+v, its export %+v", at, v, got)
			}
			k.importFile(file, f.Thread+"-copy")
			k.verified(f.Thread + "-copy")
			got, err := perdure.Replay(t.Context(), bytes.NewReader(file), auditFlow(r))
			if err != nil || !got.OK() {
				t.Errorf("%+v, %v", got, err)
			}
		}
		// Damage in what it shares, and where it begins.
		f, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: 20})
		if err != nil {
			t.Fatal(err)
		}
		var own string
		for _, name := range journalsOf(t, s) {
			if lines, err := store.ReadAll(t.Context(), s.Store, name, 0); err != nil {
				t.Fatal(err)
			} else if bytes.Contains(lines[0].Data, []byte(f.Thread+`"`)) && len(lines) == 1 {
				own = name
			}
		}
		for journal, want := range map[string]struct {
			entry int
			good  uint64
		}{journalsOf(t, s)[0]: {9, 9}, own: {0, 0}} {
			entries, err := store.ReadAll(t.Context(), s.Store, journal, 0)
			if err != nil {
				t.Fatal(err)
			}
			var lines [][]byte
			for _, e := range entries {
				lines = append(lines, e.Data)
			}
			s.journal = journal
			s.show(flipBit(lines, want.entry, 8*(len(lines[want.entry])-60)))
			v, err := k.Verify(t.Context(), f.Thread)
			if err != nil || v.OK() || v.Good != want.good {
				t.Errorf("%+v, %v; want it to be good up to %d", v, err, want.good)
			}
			s.show(nil)
		}
		k.verified(f.Thread)
	})
}

func TestARewoundThreadIsVerifiedImportedAndReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{t: t, live: true}
		flow := c.flow(steady(func(ctx context.Context, c *calls) error { return c.steps(ctx, "a", "b") }))
		k := newKit(t, nil, perdure.Options{}, flow)
		k.start("t", "flow", "")
		k.waitRun("t", "", perdure.Succeeded)
		at := k.verified("t").Good
		k.start("t", "flow", "")
		k.waitRun("t", "", perdure.Succeeded)
		if _, err := k.Rewind(t.Context(), "t", at, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.start("t", "flow", "")
		k.waitRun("t", "", perdure.Succeeded)
		k.verified("t")
		file := k.exported("t", perdure.ExportOptions{})
		if v := verifyFile(t, file); !v.OK() {
			t.Fatal(v.Problem)
		}
		k.importFile(file, "u")
		k.verified("u")
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
		k := newKit(t, nil, perdure.Options{}, child, parent(true))
		k.start("done", "parent", "")
		k.waitRun("done", "", perdure.Succeeded)
		k.start("waits", "parent", "wait")
		time.Sleep(time.Minute)
		k.waitRun("waits", "", perdure.Suspended)
		k.stop()
		c.live = false
		for _, thread := range []string{"done", "waits"} {
			file := k.exported(thread, perdure.ExportOptions{})
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
