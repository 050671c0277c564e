package perdure_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
)

func TestGetAskTellsWhatBecameOfIt(t *testing.T) {
	large := strings.Repeat("x", 200_000)
	raw, err := json.Marshal(large)
	if err != nil {
		t.Fatal(err)
	}
	soon := time.Minute
	for name, c := range map[string]struct {
		q      perdure.Question
		do     func(k *kit, ask string)
		status string
		answer *perdure.Answer
	}{
		"open": {perdure.Question{Prompt: "?"}, func(*kit, string) {}, perdure.AskOpen, nil},
		"answered": {perdure.Question{Decisions: []string{"yes", "no"}}, func(k *kit, ask string) {
			wantErr(k.t, "answer", k.reply(ask, perdure.Answer{Decision: "yes", Value: "v", Message: "m", By: "ann"}), nil)
		}, perdure.AskAnswered, &perdure.Answer{Decision: "yes", Value: json.RawMessage(`"v"`), Message: "m", By: "ann"}},
		"answered with much": {perdure.Question{}, func(k *kit, ask string) {
			wantErr(k.t, "answer", k.reply(ask, perdure.Answer{Value: large}), nil)
		}, perdure.AskAnswered, &perdure.Answer{Value: json.RawMessage(raw)}},
		"expired": {perdure.Question{Expires: soon}, func(*kit, string) { time.Sleep(2 * soon) }, perdure.AskExpired, nil},
		"default": {perdure.Question{Expires: soon, Default: &perdure.Answer{Value: "d"}}, func(*kit, string) { time.Sleep(2 * soon) },
			perdure.AskExpired, &perdure.Answer{Value: json.RawMessage(`"d"`), Expired: true}},
		"run ended": {perdure.Question{}, func(k *kit, _ string) {
			wantErr(k.t, "cancel", k.Cancel(context.Background(), "t", "", perdure.Note{}), nil)
			_, err := k.WaitEnd(k.t.Context(), "t", "")
			wantErr(k.t, "its end", err, nil)
		}, perdure.AskClosed, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			k := newKit(t, nil, perdure.Options{}, askFlow("ask", c.q))
			k.start("t", "ask", "")
			open := k.at(k.wait("t", perdure.Suspended), "/ask")
			if open.Status != perdure.AskOpen {
				t.Errorf("among the run's asks it is %q", open.Status)
			}
			c.do(k, open.ID)
			synctest.Wait()
			got, err := k.GetAsk(t.Context(), open.ID)
			if err != nil {
				t.Fatal(err)
			}
			if c.answer != nil && (got.Answer == nil || got.Answer.Time.Before(open.Asked)) {
				t.Fatalf("its answer is %+v", got.Answer)
			} else if c.answer != nil {
				got.Answer.Time = time.Time{}
			}
			want := open
			want.Status, want.Answer = c.status, c.answer
			if d := cmp.Diff(&want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestGetAskFindsOnlyWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, askFlow("ask", perdure.Question{}))
		k.start("t", "ask", "")
		ask := k.at(k.wait("t", perdure.Suspended), "/ask").ID
		for _, id := range []string{"", ".", "x", "x.y", ask + "x", strings.Repeat("x", 50) + "." + strings.Repeat("y", 60)} {
			_, err := k.GetAsk(t.Context(), id)
			wantErr(t, "ask "+id, err, perdure.ErrNoAsk)
		}
		_, err := k.Tenant("other").GetAsk(t.Context(), ask)
		wantErr(t, "another tenant's ask", err, perdure.ErrNoAsk)

		if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"}); err != nil {
			t.Fatal(err)
		}
		run, err := k.GetRun(t.Context(), "f", "")
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := k.GetAsk(t.Context(), k.at(run, "/ask").ID)
		if err != nil || theirs.Thread != "f" || theirs.ID == ask || theirs.Status != perdure.AskOpen {
			t.Errorf("the fork's ask is %+v, %v", theirs, err)
		}
		wantErr(t, "erase", k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}), nil)
		_, err = k.GetAsk(t.Context(), ask)
		wantErr(t, "an erased thread's ask", err, perdure.ErrErased)
	})
}
