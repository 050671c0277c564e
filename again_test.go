package perdure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
)

// measured returns the length of its input, and spends it.
var measured = perdure.NewFlow("measured", func(ctx context.Context, in string) (string, error) {
	return perdure.Step(ctx, "spend", func(ctx context.Context) (string, error) {
		return fmt.Sprint(len(in), in[:1]), perdure.Spend(ctx, "bytes", int64(len(in)))
	})
})

func TestStartAgain(t *testing.T) {
	for name, in := range map[string]string{"small": "abc", "a blob": strings.Repeat("x", 200<<10)} {
		bubble(t, name, func(t *testing.T) {
			k := newKit(t, nil, perdure.Options{}, measured)
			first := k.begin(perdure.StartRequest{Thread: "t", Flow: "measured", Input: in, Key: "k", Policy: perdure.Reject,
				Budget: map[string]int64{"bytes": int64(len(in))}})
			first = k.waitRun("t", first.ID, perdure.Succeeded)
			k.forked(perdure.ForkRequest{Thread: "t", As: "a"})
			for _, thread := range []string{"t", "a"} {
				for range 2 {
					run, err := k.StartAgain(t.Context(), thread, first.ID, perdure.Note{By: "ann", Reason: "once more"})
					wantErr(t, "start again", err, nil)
					if run.ID == first.ID || run.Flow != "measured" || !cmp.Equal(run.Budget, first.Budget) {
						t.Errorf("the new run is %+v", run)
					}
					if run = k.waitRun(thread, run.ID, perdure.Succeeded); string(run.Output) != string(first.Output) {
						t.Errorf("it returned %s, the first one %s", run.Output, first.Output)
					}
				}
			}
			same := k.begin(perdure.StartRequest{Thread: "t", Flow: "measured", Input: in, Key: "k"})
			if same.ID != first.ID {
				t.Error("the key of the first run starts another")
			}
			var queued []string
			for _, e := range k.events("t") {
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
		k := newKit(t, nil, perdure.Options{}, askFlow("f", perdure.Question{}))
		first := k.start("t", "f", "")
		k.wait("t", perdure.Suspended)
		second, err := k.StartAgain(t.Context(), "t", "", perdure.Note{})
		wantErr(t, "start again", err, nil)
		if second.Status != perdure.Queued {
			t.Errorf("it is %s beside the first", second.Status)
		}
		k.answer(k.waitRun("t", first.ID, perdure.Suspended), "/ask", perdure.Answer{Value: "a"})
		k.answer(k.waitRun("t", second.ID, perdure.Suspended), "/ask", perdure.Answer{Value: "b"})
		wantOutput(t, k.waitRun("t", second.ID, perdure.Succeeded), "b")
	})
}

func TestStartAgainRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, measured)
		k.start("t", "measured", "x")
		k.wait("t", perdure.Succeeded)
		_, err := k.StartAgain(t.Context(), "none", "", perdure.Note{})
		wantErr(t, "no thread", err, perdure.ErrNoThread)
		_, err = k.StartAgain(t.Context(), "t", "none", perdure.Note{})
		wantErr(t, "no run", err, perdure.ErrRunNotFound)
		_, err = k.StartAgain(t.Context(), "t", "", perdure.Note{By: strings.Repeat("x", 1000)})
		wantErr(t, "a long name", err, perdure.ErrInvalid)
		other, err := perdure.New(t.Context(), k.store, perdure.Options{}, game)
		wantErr(t, "a runtime", err, nil)
		_, err = other.StartAgain(t.Context(), "t", "", perdure.Note{})
		wantErr(t, "without the flow", err, perdure.ErrNoFlow)
	})
}
