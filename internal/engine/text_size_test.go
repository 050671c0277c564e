package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestTextsOfOneLeafMayBeMany edits so many texts in one leaf that the edits do
// not fit into one entry.
func TestTextsOfOneLeafMayBeMany(t *testing.T) {
	for name, ins := range map[string]string{
		"plain":   strings.Repeat("a plain line\n", 2000),
		"escaped": strings.Repeat("\x01\x02", 8000),
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			old := strings.Repeat("0123456789abcdef\n", 10_000)
			edit := func(ctx context.Context, from, to string) error {
				for i := range 20 {
					if _, err := perdure.NewText(fmt.Sprint("file-", i)).Replace(ctx, from, to); err != nil {
						return err
					}
				}
				return nil
			}
			k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				_, err := perdure.Step(ctx, "write", func(ctx context.Context) (bool, error) {
					for i := range 20 {
						if err := perdure.NewText(fmt.Sprint("file-", i)).Set(ctx, old+"end"); err != nil {
							return false, err
						}
					}
					return true, nil
				})
				if err != nil {
					return "", err
				}
				_, err = perdure.Step(ctx, "edit", func(ctx context.Context) (bool, error) {
					if err := edit(ctx, "end", "mid"); err != nil {
						return false, err
					}
					if err := edit(ctx, "mid", ins+"mid"); err != nil {
						return false, err
					}
					return true, edit(ctx, "mid", "end")
				})
				if err != nil {
					return "", err
				}
				for i := range 20 {
					if got, err := perdure.NewText(fmt.Sprint("file-", i)).Get(ctx); err != nil || got != old+ins+"end" {
						return "", fmt.Errorf("text %d is another: %w", i, err)
					}
				}
				return "", nil
			}))
			k.StartOn("t", "f", "")
			k.WaitFor("t", perdure.Succeeded)
		})
	}
}

// TestTextWithManyEditsIsReadInTime replaces so often that copying the text for
// each replacement would take minutes.
func TestTextWithManyEditsIsReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := perdure.NewText("file")
		want := strings.Repeat(strings.Repeat("-", 1000)+"X", 900)
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if err := setText(ctx, "write", file, want); err != nil {
				return "", err
			}
			for i := range 12 {
				_, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (int, error) {
					from, to := "X", "YY"
					if i%2 == 1 {
						from, to = to, from
					}
					want = strings.ReplaceAll(want, from, to)
					return file.Replace(ctx, from, to)
				})
				if err != nil {
					return "", err
				}
			}
			if got, err := file.Get(ctx); err != nil || got != want {
				return "", fmt.Errorf("the text is another: %w", err)
			}
			return "", nil
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
	})
}
