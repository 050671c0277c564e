package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// TestManyAnswersInOneRequest answers more asks at once than one append
// holds, in number and in bytes: all are taken, or the request is refused and
// none is.
func TestManyAnswersInOneRequest(t *testing.T) {
	for name, c := range map[string]struct{ asks, size int }{"70 small ones": {70, 1}, "6 of 60 KiB": {6, 60 << 10}} {
		bubble(t, name, func(t *testing.T) {
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
				g := perdure.NewGroup(ctx)
				for i := range c.asks {
					g.Go(fmt.Sprint("b", i), func(ctx context.Context) error {
						_, err := perdure.Ask[string](ctx, "ask", perdure.Question{})
						return err
					})
				}
				return c.asks, g.Wait()
			})
			k := newKit(t, nil, perdure.Options{}, flow)
			k.start("t", "f", "")
			run := k.wait("t", perdure.Suspended)
			var answers []perdure.AskAnswer
			for _, a := range run.Asks {
				answers = append(answers, perdure.AskAnswer{Ask: a.ID, Answer: perdure.Answer{Value: strings.Repeat("v", c.size)}})
			}
			if err := k.Answer(t.Context(), answers...); err != nil {
				if !errors.Is(err, perdure.ErrTooLarge) && !errors.Is(err, perdure.ErrInvalid) {
					t.Errorf("refused with %v", err)
				}
				if n := k.kinds("t")["answered"]; n != 0 {
					t.Fatalf("%d answers of a refused request are stored", n)
				}
				for _, a := range answers {
					if err := k.Answer(t.Context(), a); err != nil {
						t.Fatal(err)
					}
				}
			}
			wantOutput(t, k.waitRun("t", "", perdure.Succeeded), c.asks)
			if n := k.kinds("t")["answered"]; n != c.asks {
				t.Errorf("%d answers are stored", n)
			}
		})
	}
}
