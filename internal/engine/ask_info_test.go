package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

func TestGroupsMayAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		who, groups []string
		by          string
		want        error
	}{
		"anyone":                    {nil, nil, "", nil},
		"by name":                   {[]string{"ann", "group:ops"}, nil, "ann", nil},
		"by group":                  {[]string{"ann", "group:ops"}, []string{"dev", "ops"}, "bob", nil},
		"in another group":          {[]string{"ann", "group:ops"}, []string{"dev"}, "bob", perdure.ErrForbidden},
		"in no group":               {[]string{"group:ops"}, nil, "bob", perdure.ErrForbidden},
		"a group is no name":        {[]string{"ops"}, []string{"ops"}, "bob", perdure.ErrForbidden},
		"a name is no group":        {[]string{"group:ops"}, nil, "group:ops", perdure.ErrForbidden},
		"a name that is like one's": {[]string{"group:ops"}, nil, "ops", perdure.ErrForbidden},
		"a group is named once":     {[]string{"group:ops"}, []string{"group:ops"}, "bob", perdure.ErrForbidden},
		"a group with a mark":       {[]string{"group:group:ops"}, []string{"group:ops"}, "bob", nil},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("ask", perdure.Question{Who: c.who}))
			k.StartOn("t", "ask", "")
			ask := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask").ID
			a := perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: "x", By: c.by}, Groups: c.groups}
			kit.WantErr(t, "answer", k.Answer(t.Context(), a), c.want)
			synctest.Wait()
			if c.want != nil {
				k.WaitFor("t", perdure.Suspended)
				return
			}
			kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "x")
			kit.WantErr(t, "the same again", k.Answer(t.Context(), a), nil)
			for _, e := range k.EventsOf("t") {
				if e.Kind == "answered" && (e.By != c.by || strings.Contains(string(e.Value), "ops")) {
					t.Errorf("the event of the answer is %+v", e)
				}
			}
		})
	}
}

// TestManyAnswersInOneRequest answers more asks at once than one append
// holds, in number and in bytes: all are taken, or the request is refused and
// none is.
func TestManyAnswersInOneRequest(t *testing.T) {
	for name, c := range map[string]struct{ asks, size int }{"70 small ones": {70, 1}, "6 of 60 KiB": {6, 60 << 10}} {
		kit.Bubble(t, name, func(t *testing.T) {
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
			k := kit.New(t, nil, perdure.Options{}, flow)
			k.StartOn("t", "f", "")
			run := k.WaitFor("t", perdure.Suspended)
			var answers []perdure.AskAnswer
			for _, a := range run.Asks {
				answers = append(answers, perdure.AskAnswer{Ask: a.ID, Answer: perdure.Answer{Value: strings.Repeat("v", c.size)}})
			}
			if err := k.Answer(t.Context(), answers...); err != nil {
				if !errors.Is(err, perdure.ErrTooLarge) && !errors.Is(err, perdure.ErrInvalid) {
					t.Errorf("refused with %v", err)
				}
				if n := k.KindsOf("t")["answered"]; n != 0 {
					t.Fatalf("%d answers of a refused request are stored", n)
				}
				for _, a := range answers {
					kit.NoErr(t, k.Answer(t.Context(), a))
				}
			}
			kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), c.asks)
			if n := k.KindsOf("t")["answered"]; n != c.asks {
				t.Errorf("%d answers are stored", n)
			}
		})
	}
}
