package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// measured returns the length of its input, and spends it.
var measured = perdure.NewFlow("measured", func(ctx context.Context, in string) (string, error) {
	return perdure.Step(ctx, "spend", func(ctx context.Context) (string, error) {
		return fmt.Sprint(len(in), in[:1]), perdure.Spend(ctx, "bytes", int64(len(in)))
	})
})

func TestStartAgain(t *testing.T) {
	for name, in := range map[string]string{"small": "abc", "a blob": strings.Repeat("x", 200<<10)} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, measured)
			first := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "measured", Input: in, Key: "k", Policy: perdure.Reject,
				Budget: map[string]int64{"bytes": int64(len(in))}})
			first = k.WaitForRun("t", first.ID, perdure.Succeeded)
			k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"})
			for _, thread := range []string{"t", "a"} {
				for range 2 {
					run, err := k.StartAgain(t.Context(), thread, first.ID, perdure.Note{By: "ann", Reason: "once more"})
					kit.WantErr(t, "start again", err, nil)
					if run.ID == first.ID || run.Flow != "measured" || !cmp.Equal(run.Budget, first.Budget) {
						t.Errorf("the new run is %+v", run)
					}
					if run = k.WaitForRun(thread, run.ID, perdure.Succeeded); string(run.Output) != string(first.Output) {
						t.Errorf("it returned %s, the first one %s", run.Output, first.Output)
					}
				}
			}
			same := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "measured", Input: in, Key: "k"})
			if same.ID != first.ID {
				t.Error("the key of the first run starts another")
			}
			var queued []string
			for _, e := range k.EventsOf("t") {
				if e.Kind == "queued" {
					queued = append(queued, e.By+e.Reason)
				}
			}
			if !cmp.Equal(queued, []string{"", "annonce more", "annonce more"}) {
				t.Errorf("queued by %q", queued)
			}
		})
	}
}

func TestStartAgainWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		first := k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Suspended)
		second, err := k.StartAgain(t.Context(), "t", "", perdure.Note{})
		kit.WantErr(t, "start again", err, nil)
		if second.Status != perdure.Queued {
			t.Errorf("it is %s beside the first", second.Status)
		}
		k.AnswerAt(k.WaitForRun("t", first.ID, perdure.Suspended), "/ask", perdure.Answer{Value: "a"})
		k.AnswerAt(k.WaitForRun("t", second.ID, perdure.Suspended), "/ask", perdure.Answer{Value: "b"})
		kit.WantOutput(t, k.WaitForRun("t", second.ID, perdure.Succeeded), "b")
	})
}

func TestStartAgainRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, measured)
		k.StartOn("t", "measured", "x")
		k.WaitFor("t", perdure.Succeeded)
		_, err := k.StartAgain(t.Context(), "none", "", perdure.Note{})
		kit.WantErr(t, "no thread", err, perdure.ErrNoThread)
		_, err = k.StartAgain(t.Context(), "t", "none", perdure.Note{})
		kit.WantErr(t, "no run", err, perdure.ErrRunNotFound)
		_, err = k.StartAgain(t.Context(), "t", "", perdure.Note{By: strings.Repeat("x", 1000)})
		kit.WantErr(t, "a long name", err, perdure.ErrInvalid)
		other, err := perdure.New(t.Context(), k.Store, perdure.Options{}, kit.Game)
		kit.WantErr(t, "a runtime", err, nil)
		_, err = other.StartAgain(t.Context(), "t", "", perdure.Note{})
		kit.WantErr(t, "without the flow", err, perdure.ErrNoFlow)
	})
}
