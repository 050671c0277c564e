package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// refusing is a validator that takes the value "good" only.
type refusing struct{ calls atomic.Int64 }

func (r *refusing) Validate(schema, value json.RawMessage) error {
	r.calls.Add(1)
	if string(value) != `"good"` {
		return fmt.Errorf("%s does not fit %s", value, schema)
	}
	return nil
}

func TestAnswerIsValidatedBeforeItIsStored(t *testing.T) {
	type form struct{ Name string }
	flow := func(name string, ask func(context.Context) error) perdure.Flow {
		return perdure.NewFlow(name, func(ctx context.Context, _ string) (bool, error) { return true, ask(ctx) })
	}
	question := func(q perdure.Question) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := perdure.Ask[any](ctx, "ask", q)
			return err
		}
	}
	cases := []struct {
		name  string
		ask   func(context.Context) error
		wrong map[string]perdure.Answer
		want  error
		right perdure.Answer
	}{
		{
			name: "decisions", ask: question(perdure.Question{Decisions: []string{"approve", "deny"}}), want: perdure.ErrAnswer,
			wrong: map[string]perdure.Answer{"none": {}, "another": {Decision: "perhaps"}, "case": {Decision: "Approve"}},
			right: perdure.Answer{Decision: "deny"},
		},
		{
			name: "no decisions", ask: question(perdure.Question{}), want: perdure.ErrAnswer,
			wrong: map[string]perdure.Answer{"a decision": {Decision: "approve"}},
			right: perdure.Answer{Value: "fine"},
		},
		{
			name: "who", ask: question(perdure.Question{Who: []string{"ann", "bob"}}), want: perdure.ErrForbidden,
			wrong: map[string]perdure.Answer{"nobody": {}, "someone else": {By: "eve"}},
			right: perdure.Answer{By: "bob"},
		},
		{
			name: "schema", ask: question(perdure.Question{Schema: json.RawMessage(`{"const":"good"}`)}), want: perdure.ErrAnswer,
			wrong: map[string]perdure.Answer{"bad": {Value: "bad"}, "none": {}},
			right: perdure.Answer{Value: "good"},
		},
		{
			name: "kind of a time", want: perdure.ErrAnswer,
			ask: func(ctx context.Context) error {
				_, err := perdure.Ask[time.Time](ctx, "ask", perdure.Question{})
				return err
			},
			wrong: map[string]perdure.Answer{"none": {}, "number": {Value: 5}, "object": {Value: map[string]int{}}},
			right: perdure.Answer{Value: "2026-11-16T00:00:00Z"},
		},
		{
			name: "kind of a json.Number", want: perdure.ErrAnswer,
			ask: func(ctx context.Context) error {
				_, err := perdure.Ask[json.Number](ctx, "ask", perdure.Question{})
				return err
			},
			wrong: map[string]perdure.Answer{"string": {Value: "5"}, "none": {}},
			right: perdure.Answer{Value: json.RawMessage("5.50")},
		},
		{
			name: "kind string", want: perdure.ErrAnswer,
			ask: func(ctx context.Context) error {
				_, err := perdure.Ask[string](ctx, "ask", perdure.Question{})
				return err
			},
			wrong: map[string]perdure.Answer{"number": {Value: 1}, "none": {}, "object": {Value: form{}}, "null": {Value: json.RawMessage("null")},
				"not JSON": {Value: json.RawMessage("{")}, "invalid text": {Value: "\xff"}},
			right: perdure.Answer{Value: ""},
		},
		{
			name: "kind number", want: perdure.ErrAnswer,
			ask: func(ctx context.Context) error {
				_, err := perdure.Ask[int](ctx, "ask", perdure.Question{})
				return err
			},
			wrong: map[string]perdure.Answer{"string": {Value: "1"}, "boolean": {Value: true}, "list": {Value: []int{1}}, "fraction": {Value: 1.5}, "too large": {Value: json.RawMessage("1e30")}},
			right: perdure.Answer{Value: 7},
		},
		{
			name: "kind object", want: perdure.ErrAnswer,
			ask: func(ctx context.Context) error {
				_, err := perdure.Ask[form](ctx, "ask", perdure.Question{})
				return err
			},
			wrong: map[string]perdure.Answer{"string": {Value: "ann"}, "list": {Value: []form{{}}}},
			right: perdure.Answer{Value: map[string]string{"Name": "ann", "Unknown": "kept"}},
		},
		{
			name: "kind boolean", want: perdure.ErrAnswer,
			ask: func(ctx context.Context) error {
				_, err := perdure.Ask[bool](ctx, "ask", perdure.Question{})
				return err
			},
			wrong: map[string]perdure.Answer{"string": {Value: "true"}},
			right: perdure.Answer{Value: false},
		},
		{
			name: "kind list", want: perdure.ErrAnswer,
			ask: func(ctx context.Context) error {
				_, err := perdure.Ask[[]string](ctx, "ask", perdure.Question{})
				return err
			},
			wrong: map[string]perdure.Answer{"string": {Value: "a"}},
			right: perdure.Answer{Value: []string{"a"}},
		},
	}
	for _, c := range cases {
		kit.Bubble(t, c.name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{Validator: &refusing{}}, flow("f", c.ask))
			k.StartOn("t", "f", "")
			id := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask").ID
			before := k.Trace("t")
			for name, a := range c.wrong {
				kit.WantErr(t, name, k.AnswerAsk(id, a), c.want)
			}
			synctest.Wait()
			if after := k.Trace("t"); after != before {
				t.Errorf("a wrong answer left a trace:\n%s", after)
			}
			k.WaitFor("t", perdure.Suspended)
			kit.WantErr(t, "a right one", k.AnswerAsk(id, c.right), nil)
			k.WaitFor("t", perdure.Succeeded)
		})
	}
}

func TestQuestionsThatCannotBeAskedFailTheAsk(t *testing.T) {
	bad := map[string]perdure.Question{
		"schema without a validator": {Schema: json.RawMessage(`{}`)},
		"negative expiry":            {Expires: -1},
		"default without expiry":     {Default: &perdure.Answer{Value: "x"}},
		"default of another kind":    {Expires: time.Hour, Default: &perdure.Answer{Value: 1}},
		"default not allowed":        {Expires: time.Hour, Decisions: []string{"yes"}, Default: &perdure.Answer{Decision: "no", Value: "x"}},
		"data that is no JSON":       {Data: func() {}},
	}
	synctest.Test(t, func(t *testing.T) {
		errs := map[string]error{}
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			for name, q := range bad {
				_, errs[name] = perdure.Ask[string](ctx, name, q)
			}
			return true, nil
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		for name, err := range errs {
			if err == nil || errors.Is(err, perdure.ErrSuspended) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := k.KindsOf("t")["asked"]; n != 0 {
			t.Errorf("%d questions were recorded", n)
		}
	})
}

func TestFirstAnswerWinsAndItsRepeatIsNoOp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		k.StartOn("t", "f", "")
		id := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask").ID
		k.Stop() // the answered run stays as it is
		first := perdure.Answer{Value: "one", By: "ann", Message: "because"}
		kit.WantErr(t, "the first", k.AnswerAsk(id, first), nil)
		before := k.Trace("t")
		kit.WantErr(t, "the same again", k.AnswerAsk(id, first), nil)
		kit.WantErr(t, "the same in other clothes", k.AnswerAsk(id, perdure.Answer{Value: json.RawMessage(` "one" `), By: "ann", Message: "because"}), nil)
		kit.WantErr(t, "another value", k.AnswerAsk(id, perdure.Answer{Value: "two", By: "ann", Message: "because"}), perdure.ErrAnswered)
		if after := k.Trace("t"); after != before {
			t.Errorf("a repeat left a trace:\n%s", after)
		}
		k2 := kit.New(t, k.Store, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		kit.WantOutput(t, k2.WaitForRun("t", "", perdure.Succeeded), "one")
		// The rules hold when the run has ended.
		kit.WantErr(t, "the same at last", k2.AnswerAsk(id, first), nil)
		kit.WantErr(t, "another at last", k2.AnswerAsk(id, perdure.Answer{Value: "two"}), perdure.ErrAnswered)
	})
}

func TestAsksThatCannotBeAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.AskFlow("soon", perdure.Question{Expires: time.Second}))
		k.StartOn("t", "f", "")
		id := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask").ID
		thread, own, _ := strings.Cut(id, ".")

		for name, wrong := range map[string]string{
			"empty": "", "no dot": own, "no thread": "." + own, "no ask": thread + ".", "unknown ask": thread + ".AAAAAAAAAAAAAAAA",
			"unknown thread": strings.Repeat("0", len(thread)) + "." + own, "long": strings.Repeat("x", 5000) + ".y", "odd": "../\x00.\xff",
		} {
			kit.WantErr(t, name, k.AnswerAsk(wrong, perdure.Answer{Value: "x"}), perdure.ErrNoAsk)
		}
		kit.WantErr(t, "another tenant's", k.Tenant("other").Answer(t.Context(), perdure.AskAnswer{Ask: id, Answer: perdure.Answer{Value: "x"}}), perdure.ErrNoAsk)
		kit.WantErr(t, "no answers at all", k.Answer(t.Context()), perdure.ErrInvalid)

		// What the person wrote elsewhere forges nothing: an entry that is no
		// ask has an id too.
		for _, e := range k.EventsOf("t") {
			if e.Ask == "" {
				kit.WantErr(t, "an event that is no ask", k.AnswerAsk(fmt.Sprintf("%s.%d", thread, e.Seq), perdure.Answer{Value: "x"}), perdure.ErrNoAsk)
			}
		}

		run := k.WaitFor("t", perdure.Suspended)
		kit.WantErr(t, "cancel", k.Cancel(t.Context(), "t", run.ID, perdure.Note{}), nil)
		k.WaitFor("t", perdure.Cancelled)
		kit.WantErr(t, "of a cancelled run", k.AnswerAsk(id, perdure.Answer{Value: "x"}), perdure.ErrAskOver)
		kit.WantErr(t, "progress of a cancelled run", k.Progress(t.Context(), id, 1, perdure.Note{}), perdure.ErrAskOver)

		k.StartOn("s", "soon", "")
		id = k.AskAt(k.WaitFor("s", perdure.Suspended), "/ask").ID
		time.Sleep(2 * time.Second)
		k.WaitFor("s", perdure.Failed)
		kit.WantErr(t, "an expired one", k.AnswerAsk(id, perdure.Answer{Value: "x"}), perdure.ErrAskOver)
		kit.WantErr(t, "an expired one, wrongly", k.AnswerAsk(id, perdure.Answer{Value: 1}), perdure.ErrAskOver)
	})
}

// three asks in three branches and returns the answers in order.
func three(passes *atomic.Int64) perdure.Flow {
	return perdure.NewFlow("three", func(ctx context.Context, _ string) (string, error) {
		passes.Add(1)
		var got [3]string
		g := perdure.NewGroup(ctx)
		for i := range got {
			g.Go(fmt.Sprint("b", i), func(ctx context.Context) (err error) {
				if got[i], err = perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
					return err
				}
				return perdure.Emit(ctx, "heard", got[i])
			})
		}
		err := g.Wait()
		return strings.Join(got[:], ","), err
	})
}

func TestSeveralAsksAreAnsweredInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		kit.Bubble(t, fmt.Sprint(order), func(t *testing.T) {
			var passes atomic.Int64
			k := kit.New(t, nil, perdure.Options{}, three(&passes))
			k.StartOn("t", "three", "")
			run := k.WaitFor("t", perdure.Suspended)
			if len(run.Asks) != 3 {
				t.Fatalf("%d asks are open", len(run.Asks))
			}
			for n, i := range order {
				run = k.WaitForRun("t", "", perdure.Suspended)
				if len(run.Asks) != 3-n {
					t.Errorf("after %d answers %d asks are open", n, len(run.Asks))
				}
				k.AnswerAt(run, fmt.Sprintf("/b%d/ask", i), perdure.Answer{Value: fmt.Sprint("v", i)})
				// A branch continues as soon as its own ask is answered.
				time.Sleep(100 * time.Millisecond)
				if got := k.KindsOf("t")["emitted"]; got != n+1 {
					t.Errorf("after %d answers %d branches went on", n+1, got)
				}
			}
			kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "v0,v1,v2")
		})
	}
}

func TestAnswersOfOneRequestAreAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passes atomic.Int64
		k := kit.New(t, nil, perdure.Options{}, three(&passes), kit.AskFlow("f", perdure.Question{}))
		k.StartOn("t", "three", "")
		k.StartOn("u", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		to := func(i int, v any) perdure.AskAnswer {
			return perdure.AskAnswer{Ask: k.AskAt(run, fmt.Sprintf("/b%d/ask", i)).ID, Answer: perdure.Answer{Value: v}}
		}
		other := perdure.AskAnswer{Ask: k.AskAt(k.WaitFor("u", perdure.Suspended), "/ask").ID, Answer: perdure.Answer{Value: "x"}}
		unknown := perdure.AskAnswer{Ask: to(0, "").Ask + "A", Answer: perdure.Answer{Value: "x"}}
		before := k.Trace("t")
		ctx := t.Context()
		kit.WantErr(t, "the second is of another kind", k.Answer(ctx, to(0, "a"), to(1, 5)), perdure.ErrAnswer)
		kit.WantErr(t, "the second is unknown", k.Answer(ctx, to(0, "a"), unknown), perdure.ErrNoAsk)
		kit.WantErr(t, "the second is another thread's", k.Answer(ctx, to(0, "a"), other), perdure.ErrInvalid)
		kit.WantErr(t, "two to one", k.Answer(ctx, to(0, "a"), to(0, "b")), perdure.ErrInvalid)
		synctest.Wait()
		if after := k.Trace("t"); after != before {
			t.Fatalf("a refused request left a trace:\n%s", after)
		}
		kit.WantErr(t, "two at once", k.Answer(ctx, to(2, "c"), to(0, "a")), nil)
		var answered []uint64
		for _, e := range k.EventsOf("t") {
			if e.Kind == "answered" {
				answered = append(answered, e.Seq)
			}
		}
		if len(answered) != 2 || answered[1] != answered[0]+1 {
			t.Errorf("the answers stand at %v, not side by side", answered)
		}
		kit.WantErr(t, "one old, one in conflict", k.Answer(ctx, to(0, "z"), to(1, "b")), perdure.ErrAnswered)
		run2 := k.WaitForRun("t", "", perdure.Suspended)
		if len(run2.Asks) != 1 {
			t.Errorf("%d asks are open", len(run2.Asks))
		}
		kit.WantErr(t, "one repeated, one new", k.Answer(ctx, to(0, "a"), to(1, "b")), nil)
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "a,b,c")
	})
}

func TestAskExpires(t *testing.T) {
	whole := perdure.NewFlow("whole", func(ctx context.Context, _ string) (perdure.Answer, error) {
		return perdure.Ask[perdure.Answer](ctx, "ask", perdure.Question{Decisions: []string{"yes", "no"}, Expires: time.Minute,
			Default: &perdure.Answer{Decision: "no", Value: "too late"}})
	})
	expired := perdure.NewFlow("expired", func(ctx context.Context, _ string) (bool, error) {
		_, err := perdure.Ask[string](ctx, "ask", perdure.Question{Expires: time.Minute})
		return errors.Is(err, perdure.ErrExpired), nil
	})
	limited := perdure.NewFlow("limited", func(ctx context.Context, _ string) (string, error) {
		return perdure.Ask[string](ctx, "ask", perdure.Question{Who: []string{"ann"}, Expires: time.Minute, Default: &perdure.Answer{Value: "nobody"}})
	})
	kit.Bubble(t, "with a default", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, whole)
		asked := time.Now()
		k.StartOn("t", "whole", "")
		run := k.WaitFor("t", perdure.Suspended)
		if ask := k.AskAt(run, "/ask"); !ask.Expires.Equal(asked.Add(time.Minute)) {
			t.Errorf("it expires at %v", ask.Expires)
		}
		time.Sleep(time.Minute + time.Second)
		got, err := perdure.Output[perdure.Answer](k.WaitForRun("t", "", perdure.Succeeded))
		if err != nil || got.Decision != "no" || got.Value != "too late" || !got.Expired || !got.Time.Equal(asked.Add(time.Minute)) {
			t.Errorf("the default came as %+v, %v", got, err)
		}
	})
	kit.Bubble(t, "without", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, expired)
		k.StartOn("t", "expired", "")
		k.WaitFor("t", perdure.Suspended)
		time.Sleep(2 * time.Minute)
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), true)
		if n := k.KindsOf("t")["expired"]; n != 1 {
			t.Errorf("%d expiries are recorded", n)
		}
	})
	kit.Bubble(t, "a default is nobody's answer", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, limited)
		k.StartOn("t", "limited", "")
		k.WaitFor("t", perdure.Suspended)
		time.Sleep(2 * time.Minute)
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "nobody")
	})
	kit.Bubble(t, "an answer after its time is too late, also before the entry of the expiry", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, whole)
		k.StartOn("t", "whole", "")
		id := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask").ID
		k.Stop()
		time.Sleep(time.Minute) // due, and nobody has seen it
		kit.WantErr(t, "answer", k.AnswerAsk(id, perdure.Answer{Decision: "yes"}), perdure.ErrAskOver)
		kit.WantErr(t, "progress", k.Progress(t.Context(), id, "news", perdure.Note{}), perdure.ErrAskOver)
		if ask, err := k.GetAsk(t.Context(), id); err != nil || ask.Status != perdure.AskExpired {
			t.Errorf("it is %+v, %v", ask, err)
		}
		if run, err := k.GetRun(t.Context(), "t", ""); err != nil || len(run.Asks) != 0 || run.Waits[0].Ask != id {
			t.Errorf("the run is %+v, %v", run, err)
		}
		k2 := kit.New(t, k.Store, perdure.Options{}, whole)
		time.Sleep(time.Minute)
		got, err := perdure.Output[perdure.Answer](k2.WaitForRun("t", "", perdure.Succeeded))
		if err != nil || got.Decision != "no" || !got.Expired {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	kit.Bubble(t, "an answer in time stands, and its repeat is no news, however late", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, whole)
		k.StartOn("t", "whole", "")
		run := k.WaitFor("t", perdure.Suspended)
		id := k.AskAt(run, "/ask").ID
		kit.WantErr(t, "pause", k.Control("pause", "t", run.ID), nil)
		for range 2 {
			kit.WantErr(t, "answer", k.AnswerAsk(id, perdure.Answer{Decision: "yes"}), nil)
			time.Sleep(2 * time.Minute)
		}
		kit.WantErr(t, "resume", k.Control("resume", "t", run.ID), nil)
		got, err := perdure.Output[perdure.Answer](k.WaitForRun("t", "", perdure.Succeeded))
		if err != nil || got.Decision != "yes" || got.Expired {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	kit.Bubble(t, "racing at the same moment one of them wins", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, whole)
		const threads = 20
		var answers sync.WaitGroup
		results := make([]error, threads)
		for i := range threads {
			thread := fmt.Sprint("t", i)
			k.StartOn(thread, "whole", "")
			run := k.WaitFor(thread, perdure.Suspended)
			ask := k.AskAt(run, "/ask")
			answers.Go(func() {
				time.Sleep(time.Until(ask.Expires) - time.Duration(i%2)*time.Microsecond)
				results[i] = k.AnswerAsk(ask.ID, perdure.Answer{Decision: "yes"})
			})
		}
		answers.Wait()
		time.Sleep(time.Minute) // until the expiries are recorded
		for i, err := range results {
			thread := fmt.Sprint("t", i)
			got, outErr := perdure.Output[perdure.Answer](k.WaitForRun(thread, "", perdure.Succeeded))
			kinds := k.KindsOf(thread)
			switch {
			case outErr != nil || kinds["answered"]+kinds["expired"] != 1:
				t.Errorf("%s: %v, %v", thread, outErr, kinds)
			case err == nil && got.Decision != "yes", err != nil && (!errors.Is(err, perdure.ErrAskOver) || got.Decision != "no"):
				t.Errorf("%s: the answer got %v and the run %q", thread, err, got.Decision)
			}
		}
	})
}

func TestOneOf64AnswersWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		k.StartOn("t", "f", "")
		id := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask").ID
		var all sync.WaitGroup
		errs := make([]error, 64)
		for i := range errs {
			all.Go(func() { errs[i] = k.AnswerAsk(id, perdure.Answer{Value: fmt.Sprint("v", i)}) })
		}
		all.Wait()
		winner := slices.Index(errs, nil)
		for i, err := range errs {
			if i != winner {
				kit.WantErr(t, fmt.Sprint("answer ", i), err, perdure.ErrAnswered)
			}
		}
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), fmt.Sprint("v", winner))
		if n := k.KindsOf("t")["answered"]; n != 1 {
			t.Errorf("%d answers are recorded", n)
		}
	})
}

func TestAskCarriesWhatThePersonNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := perdure.Question{Kind: "approval", Prompt: "Refund?", Data: map[string]any{"order": "A-7"}, Schema: json.RawMessage(`{"const":"good"}`),
			Decisions: []string{"approve", "deny"}, Guards: "hash", Who: []string{"ann"}, Expires: time.Hour}
		k := kit.New(t, nil, perdure.Options{Validator: &refusing{}}, kit.AskFlow("f", q))
		start := k.StartOn("t", "f", "")
		a := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask")
		want := perdure.AskInfo{ID: a.ID, Thread: "t", Run: start.ID, Path: "/ask", Status: perdure.AskOpen, Kind: "approval", Prompt: "Refund?",
			Data: json.RawMessage(`{"order":"A-7"}`), Schema: q.Schema, Want: "string", Decisions: q.Decisions, Guards: "hash", Who: q.Who,
			Asked: a.Asked, Expires: a.Asked.Add(time.Hour)}
		if got, wanted := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", want); got != wanted {
			t.Errorf("the ask is\n%s\nwant\n%s", got, wanted)
		}
		kit.WantErr(t, "progress", k.Progress(t.Context(), a.ID, "ann has seen it", perdure.Note{By: "bob"}), nil)
		kit.WantErr(t, "progress of a thread that moved on", k.Progress(t.Context(), a.ID, "late", perdure.Note{IfSeq: 1}), perdure.ErrStale)
		for ev, err := range k.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			if err != nil || ev.Kind == "progress" && ev.By != "bob" {
				t.Errorf("news of %q, %v", ev.By, err)
			}
		}
		kit.WantErr(t, "progress of no JSON", k.Progress(t.Context(), a.ID, func() {}, perdure.Note{}), perdure.ErrNotJSON)
		run := k.WaitFor("t", perdure.Suspended)
		if n := k.AskAt(run, "/ask").Progress; n != 1 {
			t.Errorf("the ask has %d pieces of news", n)
		}
		kit.WantErr(t, "answer", k.AnswerAsk(a.ID, perdure.Answer{Decision: "approve", Value: "good", By: "ann"}), nil)
		k.WaitForRun("t", "", perdure.Succeeded)
		if n := k.KindsOf("t")["claimed"]; n != 2 {
			t.Errorf("the run was claimed %d times; news is no reason", n)
		}
	})
}
