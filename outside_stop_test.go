package perdure_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// stopAt stops a worker when an event of a kind is in the journal.
type stopAt struct {
	kind string
	stop func()
}

func (stopAt) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (s stopAt) Committed(e perdure.Event) {
	if e.Kind == s.kind {
		s.stop()
	}
}

// TestAWorkerThatIsStoppedLeavesTheListRight: nobody may come to bring it up to
// date.
func TestAWorkerThatIsStoppedLeavesTheListRight(t *testing.T) {
	for kind, want := range map[string]perdure.Status{"suspended": perdure.Suspended, "ended": perdure.Succeeded} {
		for i := range 20 {
			s := memstore.New()
			ctx, stop := context.WithCancel(t.Context())
			rt, err := perdure.New(t.Context(), s, perdure.Options{Observer: stopAt{kind, stop}}, perdure.NewFlow("f", func(ctx context.Context, ask bool) (bool, error) {
				if !ask {
					return true, nil
				}
				return perdure.Ask[bool](ctx, "ok", perdure.Question{})
			}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "f", Thread: fmt.Sprint("t", i), Input: want == perdure.Suspended}); err != nil {
				t.Fatal(err)
			}
			if err := rt.Work(ctx); err != nil {
				t.Fatal(err)
			}
			n := 0
			for sum, err := range rt.List(t.Context(), perdure.ListOptions{}) {
				if n++; err != nil || sum.Status != want || (want == perdure.Suspended) != (sum.Asks == 1) {
					t.Fatalf("after %s the list shows %s with %d asks (%v)", kind, sum.Status, sum.Asks, err)
				}
			}
			if n != 1 {
				t.Fatalf("the list shows %d threads", n)
			}
			stop()
			s.Close()
		}
	}
}
