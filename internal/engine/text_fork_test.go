package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// editor is a flow that edits texts in every way, appends results that are
// blobs, takes nothing, fails and is tried again. Its output says what it read.
func editor(ctx context.Context, big string) (string, error) {
	file, second, list := perdure.NewText("file"), perdure.NewText("second"), perdure.NewList[string]("results")
	if err := setText(ctx, "write", file, big+manyLines); err != nil {
		return "", err
	}
	edit := func(ctx context.Context, name string, n int) error {
		if _, ok, err := perdure.Take[string](ctx, "take-"+name); ok || err != nil {
			return fmt.Errorf("took %v: %w", ok, err)
		}
		_, err := perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
			text, err := file.Get(ctx)
			if err != nil {
				return "", err
			}
			at := (n * 997) % len(manyLines)
			for !utf8.RuneStart(text[at]) {
				at--
			}
			if err := file.Set(ctx, text[:at]+name+text[at:]); err != nil {
				return "", err
			}
			if _, err := file.Replace(ctx, "9a", "☃"+name); err != nil {
				return "", err
			}
			switch n % 4 {
			case 1:
				err = second.Set(ctx, text+"second")
			case 2:
				_, err = second.Replace(ctx, "f\n", "F\n")
			case 3:
				if err = second.Delete(ctx); err == nil {
					err = second.Set(ctx, strings.Repeat(name, 50))
				}
			}
			if err != nil {
				return "", err
			}
			return strings.Repeat(name+" ", n%3*(10+len(big)/6)), list.AppendResult(ctx)
		})
		return err
	}
	for i := range 6 {
		if err := edit(ctx, fmt.Sprint("s", i), i); err != nil {
			return "", err
		}
	}
	_, err := perdure.Step(ctx, "composite", func(ctx context.Context) (string, error) {
		g := perdure.NewGroup(ctx)
		for b := range 3 {
			g.Go(fmt.Sprint("b", b), func(ctx context.Context) error {
				for i := range 3 {
					if err := edit(ctx, fmt.Sprint("b", b, "s", i), b+i); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return "", err
		}
		_, err := perdure.Step(ctx, "flaky", func(ctx context.Context) (bool, error) {
			if _, err := file.Replace(ctx, "☃", "void"); err != nil {
				return false, err
			}
			return true, list.AppendResult(ctx)
		}, perdure.Input(1))
		return "", err
	})
	if err != nil {
		return "", err
	}
	if err := edit(ctx, "last", 2); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, text := range []perdure.Text{file, second} {
		got, err := text.Get(ctx)
		if err != nil {
			return "", err
		}
		out.WriteString(got + "\n")
	}
	all, err := perdure.NewState[[]any]("results").Get(ctx)
	fmt.Fprint(&out, all)
	return out.String(), err
}

// TestTextsAtEverySequence, with blobs only at some, looks at a thread with
// texts and appended results at every sequence, forks it there, and lets the
// fork continue.
func TestTextsAtEverySequence(t *testing.T) {
	for name, big := range map[string]string{"small": "", "blobs": strings.Repeat("a large text ", 5200)} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", editor))
			k.StartOn("t", "f", big)
			run := k.WaitFor("t", perdure.Succeeded)
			at, err := k.StateAt(t.Context(), "t", 0)
			kit.NoErr(t, err)
			read, _ := perdure.Output[string](run)
			each := uint64(kit.Sized(5, 1, 1))
			if big != "" {
				each = uint64(kit.Sized(59, 59, 23)) // they take longer
			}
			for seq := uint64(2); seq <= at.Seq; seq += each {
				there, err := k.StateAt(t.Context(), "t", seq)
				if err != nil {
					t.Fatalf("at %d: %v", seq, err)
				}
				as := fmt.Sprint("fork-", seq)
				if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: seq, As: as}); err != nil {
					t.Fatal(err)
				}
				forked, err := k.StateAt(t.Context(), as, 0)
				if err != nil {
					t.Fatalf("the fork at %d: %v", seq, err)
				}
				if d := cmp.Diff(there.State, forked.State); d != "" {
					t.Fatalf("the fork at %d:\n%s", seq, d)
				}
				if forked.Thread.Runs[0].Status.Final() {
					continue
				}
				kit.NoErr(t, k.Resume(t.Context(), as, "", perdure.Note{}))
				end := k.WaitFor(as, perdure.Succeeded)
				after, err := k.StateAt(t.Context(), as, 0)
				kit.NoErr(t, err)
				got, _ := perdure.Output[string](end)
				if first, _, _ := strings.Cut(got, "\n["); !strings.HasPrefix(got, decoded(t, after.State["file"])) {
					t.Fatalf("the fork at %d reads another text than StateAt shows: %.300q", seq, first)
				}
			}
			if !strings.HasPrefix(read, decoded(t, at.State["file"])) {
				t.Errorf("the run reads another text than StateAt shows")
			}
		})
	}
}

func decoded(t *testing.T, raw []byte) string {
	t.Helper()
	var text string
	kit.NoErr(t, json.Unmarshal(raw, &text))
	return text
}

// TestTextsTravel exports a thread with texts and appended results, verifies,
// imports and replays it.
func TestTextsTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", editor)
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", strings.Repeat("a large text ", kit.Sized(500, 5200, 5200)))
		k.WaitFor("t", perdure.Succeeded)
		var out, redacted bytes.Buffer
		kit.NoErr(t, k.Export(t.Context(), "t", &out, perdure.ExportOptions{}))
		kit.NoErr(t, k.Export(t.Context(), "t", &redacted, perdure.ExportOptions{Redact: true}))
		if bytes.Contains(redacted.Bytes(), []byte("b1s2")) && bytes.Contains(redacted.Bytes(), []byte("☃")) {
			t.Error("the redacted export tells what was written")
		}
		for name, b := range map[string][]byte{"whole": out.Bytes(), "redacted": redacted.Bytes()} {
			if v, err := perdure.VerifyExport(bytes.NewReader(b)); err != nil || !v.OK() {
				t.Errorf("%s: %+v, %v", name, v, err)
			}
		}
		r, err := perdure.Replay(t.Context(), bytes.NewReader(out.Bytes()), flow)
		if err != nil || !r.OK() {
			t.Errorf("replay: %.500v, %v", r, err)
		}
		other := kit.New(t, nil, perdure.Options{}, flow)
		if _, err := other.Import(t.Context(), bytes.NewReader(out.Bytes()), perdure.ImportOptions{As: "copy"}); err != nil {
			t.Fatal(err)
		}
		a, err := k.StateAt(t.Context(), "t", 0)
		kit.NoErr(t, err)
		b, err := other.StateAt(t.Context(), "copy", 0)
		kit.NoErr(t, err)
		kit.NoDiff(t, cmp.Diff(a.State, b.State))
		for _, k := range []*kit.Kit{k, other} {
			thread := map[*kit.Kit]string{other: "copy"}[k]
			if thread == "" {
				thread = "t"
			}
			if v, err := k.Verify(t.Context(), thread); err != nil || !v.OK() {
				t.Errorf("%s: %+v, %v", thread, v, err)
			}
		}
	})
}

// TestTextsOutOfASnapshot edits a text in many runs of one thread, reads them
// through snapshots, rewinds and continues.
func TestTextsOutOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, list := perdure.NewText("file"), perdure.NewList[string]("results")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, n int) (string, error) {
			for i := range 10 {
				_, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (string, error) {
					text, err := file.Get(ctx)
					if text == "" {
						text = manyLines
					}
					if err == nil {
						err = file.Set(ctx, text[:i*20]+fmt.Sprint(n)+text[i*20:])
					}
					if err != nil {
						return "", err
					}
					return fmt.Sprint("result ", n), list.AppendResult(ctx)
				})
				if err != nil {
					return "", err
				}
			}
			return file.Get(ctx)
		}))
		want := manyLines
		seqs := map[int]uint64{}
		turn := func(n int) {
			for i := range 10 {
				want = want[:i*20] + fmt.Sprint(n) + want[i*20:]
			}
			k.StartOn("t", "f", n)
			if got, err := perdure.Output[string](k.WaitFor("t", perdure.Succeeded)); err != nil || got != want {
				t.Fatalf("run %d reads %q, want %q (%v)", n, got, want, err)
			}
			at, err := k.StateAt(t.Context(), "t", 0)
			kit.NoErr(t, err)
			if got := decoded(t, at.State["file"]); got != want {
				t.Fatalf("after run %d StateAt shows %q", n, got)
			}
			seqs[n] = at.Seq
		}
		before := ""
		for n := range 25 {
			if n == 12 {
				before = want
			}
			turn(n)
		}
		found := false
		for cell, err := range k.Store.List(t.Context(), "snapshot/", "") {
			kit.NoErr(t, err)
			found = found || len(cell.Value) > 0
		}
		if !found {
			t.Error("no snapshot was taken, so nothing was tried")
		}
		if _, err := k.Rewind(t.Context(), "t", seqs[11], perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		want = before
		for n := 30; n < 40; n++ {
			turn(n)
		}
	})
}
