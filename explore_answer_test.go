package perdure_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

var oneAsk = perdure.NewFlow("ask", func(ctx context.Context, in string) (string, error) {
	return perdure.Ask[string](ctx, "q", perdure.Question{Prompt: "?"})
})

func TestExploreAnswerMeetsSuspension(t *testing.T) {
	explore.Run(t, explore.Config{}, func(w *explore.World) {
		sc := newScene(t, w, oneAsk)
		sc.start()
		run := sc.work()
		sc.must(sc.rt.Pause(context.Background(), "t", "", perdure.Note{}))
		sc.must(sc.rt.Resume(context.Background(), "t", "", perdure.Note{}))
		sc.worker("worker", quietLease)
		answerer := sc.outside("person", func(ctx context.Context, rt *perdure.Runtime) error {
			return rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "yes"}})
		})
		w.Check(func(ctx context.Context, s store.Store) error {
			if err := answerer.Err(); err != nil {
				return err
			}
			return sc.ended(perdure.Succeeded)
		})
	})
}
