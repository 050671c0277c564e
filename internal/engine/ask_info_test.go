package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

func TestGetAskTellsWhatBecameOfIt(t *testing.T) {
	large := strings.Repeat("x", 200_000)
	raw, err := json.Marshal(large)
	kit.NoErr(t, err)
	soon := time.Minute
	for name, c := range map[string]struct {
		q      perdure.Question
		do     func(k *kit.Kit, ask string)
		status string
		answer *perdure.Answer
	}{
		"open": {perdure.Question{Prompt: "?"}, func(*kit.Kit, string) {}, perdure.AskOpen, nil},
		"answered": {perdure.Question{Decisions: []string{"yes", "no"}}, func(k *kit.Kit, ask string) {
			kit.WantErr(k.T, "answer", k.AnswerAsk(ask, perdure.Answer{Decision: "yes", Value: "v", Message: "m", By: "ann"}), nil)
		}, perdure.AskAnswered, &perdure.Answer{Decision: "yes", Value: json.RawMessage(`"v"`), Message: "m", By: "ann"}},
		"answered with much": {perdure.Question{}, func(k *kit.Kit, ask string) {
			kit.WantErr(k.T, "answer", k.AnswerAsk(ask, perdure.Answer{Value: large}), nil)
		}, perdure.AskAnswered, &perdure.Answer{Value: json.RawMessage(raw)}},
		"expired": {perdure.Question{Expires: soon}, func(*kit.Kit, string) { time.Sleep(2 * soon) }, perdure.AskExpired, nil},
		"default": {perdure.Question{Expires: soon, Default: &perdure.Answer{Value: "d"}}, func(*kit.Kit, string) { time.Sleep(2 * soon) },
			perdure.AskExpired, &perdure.Answer{Value: json.RawMessage(`"d"`), Expired: true}},
		"run ended": {perdure.Question{}, func(k *kit.Kit, _ string) {
			kit.WantErr(k.T, "cancel", k.Cancel(context.Background(), "t", "", perdure.Note{}), nil)
			_, err := k.WaitEnd(k.T.Context(), "t", "")
			kit.WantErr(k.T, "its end", err, nil)
		}, perdure.AskClosed, nil},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("ask", c.q))
			k.StartOn("t", "ask", "")
			open := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask")
			if open.Status != perdure.AskOpen {
				t.Errorf("among the run's asks it is %q", open.Status)
			}
			c.do(k, open.ID)
			synctest.Wait()
			got, err := k.GetAsk(t.Context(), open.ID)
			kit.NoErr(t, err)
			if c.answer != nil && (got.Answer == nil || got.Answer.Time.Before(open.Asked)) {
				t.Fatalf("its answer is %+v", got.Answer)
			} else if c.answer != nil {
				got.Answer.Time = time.Time{}
			}
			want := open
			want.Status, want.Answer = c.status, c.answer
			kit.NoDiff(t, cmp.Diff(&want, got))
		})
	}
}

func TestGetAskFindsOnlyWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("ask", perdure.Question{}))
		k.StartOn("t", "ask", "")
		ask := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask").ID
		for _, id := range []string{"", ".", "x", "x.y", ask + "x", strings.Repeat("x", 50) + "." + strings.Repeat("y", 60)} {
			_, err := k.GetAsk(t.Context(), id)
			kit.WantErr(t, "ask "+id, err, perdure.ErrNoAsk)
		}
		_, err := k.Tenant("other").GetAsk(t.Context(), ask)
		kit.WantErr(t, "another tenant's ask", err, perdure.ErrNoAsk)

		if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"}); err != nil {
			t.Fatal(err)
		}
		run, err := k.GetRun(t.Context(), "f", "")
		kit.NoErr(t, err)
		theirs, err := k.GetAsk(t.Context(), k.AskAt(run, "/ask").ID)
		if err != nil || theirs.Thread != "f" || theirs.ID == ask || theirs.Status != perdure.AskOpen {
			t.Errorf("the fork's ask is %+v, %v", theirs, err)
		}
		kit.WantErr(t, "erase", k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}), nil)
		_, err = k.GetAsk(t.Context(), ask)
		kit.WantErr(t, "an erased thread's ask", err, perdure.ErrErased)
	})
}
