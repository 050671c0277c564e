package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// within runs a flow to its end on a fresh store and returns the runtime.
func within(t *testing.T, s store.Store, in string, fn func(context.Context, string) (string, error)) (*perdure.Runtime, *perdure.Run) {
	t.Helper()
	rt := kit.Runtime(t, s, perdure.Options{Lease: 10 * time.Minute}, perdure.NewFlow("f", fn))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	run, err := rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "f", Input: in})
	if err == nil {
		run, err = rt.WaitEnd(ctx, run.Thread, run.ID)
	}
	stop()
	<-done
	kit.NoErr(t, err)
	return rt, run
}

func setText(ctx context.Context, name string, text perdure.Text, s string) error {
	_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) { return true, text.Set(ctx, s) })
	return err
}

func TestTextWritesOnlyWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		file := perdure.NewText("file")
		lines := kit.Sized(1000, 1000, 4000)
		long := strings.Repeat("a line of a long file, with ünïcode ☃\n", lines)
		const edits = 220 // over the number after which it is written whole again
		before := 0
		size := func() int {
			n := 0
			for name, err := range s.Journals(t.Context(), "") {
				kit.NoErr(t, err)
				entries, err := store.ReadAll(t.Context(), s, name, 0)
				kit.NoErr(t, err)
				for _, e := range entries {
					n += len(e.Data)
				}
			}
			return n
		}
		want := long
		_, run := within(t, s, "", func(ctx context.Context, _ string) (string, error) {
			if err := setText(ctx, "write", file, long); err != nil {
				return "", err
			}
			before = size()
			for i := range edits {
				at := (i * 7919) % lines
				want = replaceLine(want, at, fmt.Sprintf("line %d is new ☃☃", at))
				if err := setText(ctx, fmt.Sprint("edit-", i), file, want); err != nil {
					return "", err
				}
				if got, err := file.Get(ctx); err != nil || got != want {
					return "", fmt.Errorf("edit %d: the text is another: %v", i, err)
				}
			}
			return "", nil
		})
		if run.Err != nil {
			t.Fatal(run.Err)
		}
		if each := (size() - before) / edits; each > 1000 {
			t.Errorf("an edit of a line costs %d bytes of the journal, of a text of %d", each, len(long))
		}
	})
}

func replaceLine(text string, at int, line string) string {
	lines := strings.Split(text, "\n")
	lines[at] = line
	return strings.Join(lines, "\n")
}

func TestTextReplacesEveryPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := perdure.NewText("file")
		_, run := within(t, memstore.New(), "", func(ctx context.Context, _ string) (string, error) {
			if err := setText(ctx, "write", file, "aXbXXc"+strings.Repeat(".", 500)); err != nil {
				return "", err
			}
			n, err := perdure.Step(ctx, "replace", func(ctx context.Context) (int, error) { return file.Replace(ctx, "X", "long") })
			if err != nil || n != 3 {
				return "", fmt.Errorf("%d, %w", n, err)
			}
			return file.Get(ctx)
		})
		if got, err := perdure.Output[string](run); err != nil || got != "alongblonglongc"+strings.Repeat(".", 500) {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestTextOfBranches has branches edit one text: the last one wins as a whole,
// never a mixture.
func TestTextOfBranches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := perdure.NewText("file")
		base := strings.Repeat("0123456789", 20)
		rt, run := within(t, memstore.New(), "", func(ctx context.Context, _ string) (string, error) {
			if err := setText(ctx, "write", file, base); err != nil {
				return "", err
			}
			g := perdure.NewGroup(ctx)
			for i := range 3 {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) error {
					for j := range 2 {
						old, err := file.Get(ctx)
						if err != nil {
							return err
						}
						if err := setText(ctx, fmt.Sprint("s", j), file, fmt.Sprintf("%d%d<%s>", i, j, old)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				return "", err
			}
			return file.Get(ctx)
		})
		got, err := perdure.Output[string](run)
		kit.NoErr(t, err)
		whole := false
		for i := range 3 {
			whole = whole || got == fmt.Sprintf("%d1<%d0<%s>>", i, i, base)
		}
		if !whole {
			t.Errorf("the text is a mixture: %q", got)
		}
		at, err := rt.StateAt(t.Context(), "t", 0)
		kit.NoErr(t, err)
		if diff := cmp.Diff(fmt.Sprintf("%q", got), string(at.State["file"])); diff != "" {
			t.Errorf("StateAt shows another text:\n%s", diff)
		}
	})
}
