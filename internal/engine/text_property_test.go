package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"pgregory.net/rapid"
)

// TestTextsAreWhatWasWritten sets texts of few different runes, which share
// beginnings, ends and halves of runes, and replaces in them, in one leaf and in
// many.
func TestTextsAreWhatWasWritten(t *testing.T) {
	kit.SetFlag(t, "rapid.checks", "400")
	kit.SetFlag(t, "rapid.nofailfile", "true")
	runes := rapid.SampledFrom([]string{"a", "b", "é", "è", "☃", "☂", "😀", "😁", "\"", "\\", "\n", "\x00", "<", "\u2028", "\ufffd", strings.Repeat("long", 20)})
	text := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(runes, 0, 30).Draw(t, "runes"), "") })
	type write struct {
		Set, Old, New string
		Replace, Step bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		prefix := strings.Repeat("what all share ☃", rapid.IntRange(0, 20).Draw(rt, "shared"))
		var writes []write
		for range rapid.IntRange(1, 25).Draw(rt, "writes") {
			w := write{Replace: rapid.Bool().Draw(rt, "replace"), Step: rapid.Bool().Draw(rt, "step")}
			w.Set, w.Old, w.New = prefix+text.Draw(rt, "text"), runes.Draw(rt, "old"), runes.Draw(rt, "new")
			writes = append(writes, w)
		}
		synctest.Test(t, func(t *testing.T) {
			file := perdure.NewText("file")
			k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				want := ""
				for i := 0; i < len(writes); {
					_, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (bool, error) {
						for first := true; i < len(writes) && (first || !writes[i].Step); i++ {
							first = false
							w := writes[i]
							var err error
							if w.Replace {
								_, err = file.Replace(ctx, w.Old, w.New)
								want = strings.ReplaceAll(want, w.Old, w.New)
							} else {
								want, err = w.Set, file.Set(ctx, w.Set)
							}
							if got, getErr := file.Get(ctx); err != nil || getErr != nil || got != want {
								return false, fmt.Errorf("write %d: %q, want %q (%w, %w)", i, got, want, err, getErr)
							}
						}
						return true, nil
					})
					if err != nil {
						return "", err
					}
					if got, err := file.Get(ctx); err != nil || got != want {
						return "", fmt.Errorf("behind write %d: %q, want %q (%w)", i, got, want, err)
					}
				}
				return want, nil
			}))
			k.StartOn("t", "f", "")
			want, _ := perdure.Output[string](k.WaitFor("t", perdure.Succeeded))
			at, err := k.StateAt(t.Context(), "t", 0)
			kit.NoErr(t, err)
			if raw := at.State["file"]; raw != nil && decoded(t, raw) != want {
				t.Fatalf("StateAt shows %s, want %q", raw, want)
			}
			k.Stop()
		})
	})
}

// TestTextRefusesHalfRunes writes what is no UTF-8 in every way.
func TestTextRefusesHalfRunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := perdure.NewText("file")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if err := setText(ctx, "write", file, manyLines+"é"); err != nil {
				return "", err
			}
			_, err := perdure.Step(ctx, "try", func(ctx context.Context) (bool, error) {
				if err := file.Set(ctx, manyLines+"\xc3"); err == nil {
					return false, fmt.Errorf("half a rune was set")
				}
				for _, r := range [][2]string{{"\xc3", ""}, {"\xc3", "\xc5"}, {"\xa9", "\xa8"}, {"0", "\xff"}} {
					if n, err := file.Replace(ctx, r[0], r[1]); err == nil {
						return false, fmt.Errorf("%q was replaced by %q, %d times", r[0], r[1], n)
					}
				}
				return true, nil
			})
			if err != nil {
				return "", err
			}
			return file.Get(ctx)
		}))
		k.StartOn("t", "f", "")
		if got, _ := perdure.Output[string](k.WaitFor("t", perdure.Succeeded)); got != manyLines+"é" || !utf8.ValidString(got) {
			t.Errorf("the text is %q", got)
		}
	})
}

// TestTextOfRunsBesideEachOther edits a text in a run that waits, and in one
// beside it: each reads its own, and the last one wins as a whole.
func TestTextOfRunsBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := perdure.NewText("file")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, who string) (string, error) {
			for i := range 4 {
				old, err := file.Get(ctx)
				if err != nil {
					return "", err
				}
				if old == "" {
					old = manyLines
				}
				if err := setText(ctx, fmt.Sprint("s", i), file, old[:50*i]+who+old[50*i:]); err != nil {
					return "", err
				}
				if _, err := perdure.Ask[bool](ctx, fmt.Sprint("ask", i), perdure.Question{}); err != nil {
					return "", err
				}
			}
			return file.Get(ctx)
		}))
		var runs []*perdure.Run
		for _, who := range []string{"-one-", "-two-"} {
			run, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "f", Input: who, Policy: perdure.Beside})
			kit.NoErr(t, err)
			runs = append(runs, run)
		}
		last := ""
		for i := range 4 {
			for n := range runs {
				run, err := k.Wait(t.Context(), "t", runs[n].ID)
				kit.NoErr(t, err)
				k.AnswerAt(run, fmt.Sprint("/ask", i), perdure.Answer{Value: true})
			}
		}
		for n, who := range []string{"-one-", "-two-"} {
			run, err := k.WaitEnd(t.Context(), "t", runs[n].ID)
			kit.NoErr(t, err)
			got, _ := perdure.Output[string](run)
			if strings.Count(got, who) != 4 {
				t.Errorf("run %s reads %q", who, got)
			}
			last = got
		}
		at, err := k.StateAt(t.Context(), "t", 0)
		kit.NoErr(t, err)
		if got := decoded(t, at.State["file"]); got != last {
			t.Errorf("the text is %q, want that of the last run, %q", got, last)
		}
	})
}
