package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// manyLines is a text that is long enough for edits of it to be written as such.
var manyLines = strings.Repeat("0123456789abcdef\n", 40)

// TestTextIsWholeAfterADroppedStep drops a step whose edit others build on: what
// they wrote is read as they wrote it.
func TestTextIsWholeAfterADroppedStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, file := memstore.New(), perdure.NewText("file")
		flow := func(dropped string, seen *[]string) perdure.Flow {
			return perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				want := manyLines
				for i := range 4 {
					name := fmt.Sprint("s", i)
					if i > 0 {
						want = want[:len(want)-100*i] + "|" + name + "|"
					}
					if name == dropped {
						if err := perdure.Dropped(ctx, name); err != nil {
							return "", err
						}
						continue
					}
					if err := setText(ctx, name, file, want); err != nil {
						return "", err
					}
				}
				got, err := file.Get(ctx)
				if err != nil {
					return "", err
				}
				*seen = append(*seen, got)
				if _, err := perdure.Ask[bool](ctx, "ask", perdure.Question{}); err != nil {
					return "", err
				}
				return file.Get(ctx)
			})
		}
		var seen []string
		k := kit.New(t, s, perdure.Options{Version: "old"}, flow("", &seen))
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k = kit.New(t, s, perdure.Options{Version: "new"}, flow("s2", &seen))
		k.AnswerAt(run, "/ask", perdure.Answer{Value: true})
		run = k.WaitFor("t", perdure.Succeeded)
		if got, err := perdure.Output[string](run); err != nil || got != seen[0] {
			t.Errorf("the text is %q, %v; it was %q", got, err, seen[0])
		}
	})
}

// TestTextOfGoroutinesOfOneLeaf sets a text from several goroutines of a leaf:
// it is one of theirs.
func TestTextOfGoroutinesOfOneLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := perdure.NewText("file")
		texts := map[string]bool{}
		for i := range 8 {
			texts[strings.Repeat(fmt.Sprintf("%d", i), 90*i)+manyLines[:300]] = true
		}
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if err := setText(ctx, "write", file, manyLines); err != nil {
				return "", err
			}
			for round := range 50 {
				_, err := perdure.Step(ctx, fmt.Sprint("race-", round), func(ctx context.Context) (bool, error) {
					var all sync.WaitGroup
					for text := range texts {
						all.Go(func() {
							if err := file.Set(ctx, text); err != nil {
								t.Error(err)
							}
						})
					}
					all.Wait()
					return true, nil
				})
				if err != nil {
					return "", err
				}
				got, err := file.Get(ctx)
				if err != nil {
					return "", err
				}
				if !texts[got] {
					return "", perdure.Permanent(fmt.Errorf("round %d: a text that nobody wrote: %.80q", round, got))
				}
			}
			return "", nil
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
	})
}

// TestTextThatComesBackIsNotMixed has one branch change a text and another
// write it back as it was, while a third one edits what it saw at first.
func TestTextThatComesBackIsNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := perdure.NewText("file")
		turn := []chan bool{make(chan bool), make(chan bool)}
		want := "an edit of the first text\n" + manyLines
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if err := setText(ctx, "write", file, manyLines); err != nil {
				return "", err
			}
			outer := perdure.NewGroup(ctx)
			outer.Go("x", func(ctx context.Context) error {
				inner := perdure.NewGroup(ctx)
				inner.Go("p", func(ctx context.Context) error {
					err := setText(ctx, "set", file, "short")
					close(turn[0])
					return err
				})
				inner.Go("q", func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "set", func(ctx context.Context) (bool, error) {
						<-turn[1]
						return true, file.Set(ctx, want)
					})
					return err
				})
				if err := inner.Wait(); err != nil {
					return err
				}
				got, err := file.Get(ctx)
				if err == nil && got != want {
					err = fmt.Errorf("inside the text is %q", got)
				}
				return err
			})
			outer.Go("y", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "back", func(ctx context.Context) (bool, error) {
					<-turn[0]
					if err := file.Delete(ctx); err != nil {
						return false, err
					}
					return true, file.Set(ctx, manyLines)
				})
				close(turn[1])
				return err
			})
			if err := outer.Wait(); err != nil {
				return "", err
			}
			return file.Get(ctx)
		}))
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Succeeded)
		if got, err := perdure.Output[string](run); err != nil || got != want {
			t.Errorf("the text is %q, %v", got, err)
		}
	})
}

// TestTextThatBecameAListIsReadable appends to a key that held a text, which is
// a mistake that must not make the thread unreadable.
func TestTextThatBecameAListIsReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, list := perdure.NewText("key"), perdure.NewList[string]("key")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			for i := range 2 {
				if err := setText(ctx, fmt.Sprint("write-", i), file, fmt.Sprint(manyLines, i)); err != nil {
					return "", err
				}
			}
			_, err := perdure.Step(ctx, "append", func(ctx context.Context) (bool, error) { return true, list.Append(ctx, "item") })
			if err != nil {
				return "", err
			}
			all, err := list.Get(ctx)
			return fmt.Sprint(all), err
		}))
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Succeeded)
		if got, _ := perdure.Output[string](run); got != "[item]" {
			t.Errorf("the list is %s", got)
		}
		if _, err := k.StateAt(t.Context(), "t", 0); err != nil {
			t.Error(err)
		}
	})
}
