package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestControlOnEveryStatus makes each call on a run of each status.
func TestControlOnEveryStatus(t *testing.T) {
	nothing := perdure.ErrNothingToDo
	type reach struct {
		status perdure.Status
		make   func(t *testing.T) (*kit.Kit, string) // with a run on thread "t"
	}
	gate := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	flows := []perdure.Flow{
		kit.AskFlow("ask", perdure.Question{}), kit.EchoFlow("idle"),
		perdure.NewFlow("fail", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "s", func(context.Context) (string, error) { return "", errors.New("no") })
		}),
		perdure.NewFlow("run", func(ctx context.Context, _ string) (string, error) { return perdure.Step(ctx, "s", gate) }),
	}
	at := func(flow string, want perdure.Status) func(t *testing.T) (*kit.Kit, string) {
		return func(t *testing.T) (*kit.Kit, string) {
			k := kit.New(t, nil, perdure.Options{Grace: time.Millisecond}, flows...)
			id := k.StartOn("t", flow, "").ID
			time.Sleep(time.Second)
			run, err := k.GetRun(t.Context(), "t", id)
			if err != nil || run.Status != want {
				t.Fatalf("it is %s, not %s: %v", run.Status, want, err)
			}
			return k, id
		}
	}
	queued := func(t *testing.T) (*kit.Kit, string) {
		k, _ := at("ask", perdure.Suspended)(t)
		return k, k.StartOn("t", "idle", "").ID
	}
	paused := func(t *testing.T) (*kit.Kit, string) {
		k, id := at("ask", perdure.Suspended)(t)
		kit.WantErr(t, "pause", k.Control("pause", "t", id), nil)
		return k, id
	}
	cancelled := func(t *testing.T) (*kit.Kit, string) {
		k, id := at("ask", perdure.Suspended)(t)
		kit.WantErr(t, "cancel", k.Control("cancel", "t", id), nil)
		k.WaitForRun("t", id, perdure.Cancelled)
		return k, id
	}
	blocked := func(t *testing.T) (*kit.Kit, string) {
		first := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if _, err := perdure.Step(ctx, "old", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			return perdure.Ask[string](ctx, "ask", perdure.Question{})
		})
		k := kit.New(t, nil, perdure.Options{}, first)
		id := k.StartOn("t", "f", "").ID
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		k = kit.New(t, k.Store, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		k.WaitForRun("t", id, perdure.Blocked)
		return k, id
	}
	for _, c := range []struct {
		reach
		want  map[string]error
		after map[string]perdure.Status
	}{
		{reach{perdure.Queued, queued}, map[string]error{"pause": nil, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"pause": perdure.Paused, "cancel": perdure.Cancelled}},
		{reach{perdure.Running, at("run", perdure.Running)}, map[string]error{"pause": nil, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"cancel": perdure.Cancelled}},
		{reach{perdure.Suspended, at("ask", perdure.Suspended)}, map[string]error{"pause": nil, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"pause": perdure.Paused, "cancel": perdure.Cancelled}},
		{reach{perdure.Paused, paused}, map[string]error{"pause": nil, "resume": nil, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"pause": perdure.Paused, "resume": perdure.Suspended, "cancel": perdure.Cancelled}},
		{reach{perdure.Blocked, blocked}, map[string]error{"resume": nothing, "retry": nil, "cancel": nil},
			map[string]perdure.Status{"retry": perdure.Blocked, "cancel": perdure.Cancelled}},
		{reach{perdure.Succeeded, at("idle", perdure.Succeeded)}, map[string]error{"pause": nothing, "resume": nothing, "retry": nothing, "cancel": nothing}, nil},
		{reach{perdure.Failed, at("fail", perdure.Failed)}, map[string]error{"pause": nothing, "resume": nothing, "retry": nil, "cancel": nothing},
			map[string]perdure.Status{"retry": perdure.Failed}},
		{reach{perdure.Cancelled, cancelled}, map[string]error{"pause": nothing, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"cancel": perdure.Cancelled}},
	} {
		for call, want := range c.want {
			kit.Bubble(t, fmt.Sprint(c.status, "/", call), func(t *testing.T) {
				k, id := c.make(t)
				before := k.Trace("t")
				kit.WantErr(t, call, k.Control(call, "t", id), want)
				if want != nil && k.Trace("t") != before {
					t.Errorf("a refused call left a trace:\n%s", k.Trace("t"))
				}
				time.Sleep(time.Second)
				run, err := k.GetRun(t.Context(), "t", id)
				if status, ok := c.after[call]; err != nil || ok && run.Status != status || want != nil && run.Status != c.status {
					t.Errorf("then it is %s, %v\n%s", run.Status, err, k.Trace("t"))
				}
			})
		}
	}
	kit.Bubble(t, "of something unknown", func(t *testing.T) {
		k, _ := at("idle", perdure.Succeeded)(t)
		for _, call := range []string{"pause", "resume", "retry", "cancel"} {
			kit.WantErr(t, call+" an unknown run", k.Control(call, "t", "nope"), perdure.ErrRunNotFound)
			kit.WantErr(t, call+" on an unknown thread", k.Control(call, "u", ""), perdure.ErrNoThread)
		}
	})
}

// TestEndOfABlockedRunLetsOthersGoOn ends a blocked run without running code;
// what waited for it, of whatever flow, has to continue.
func TestEndOfABlockedRunLetsOthersGoOn(t *testing.T) {
	first := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		_, err := perdure.Step(ctx, "old", func(context.Context) (int, error) { return 1, nil })
		if err != nil {
			return "", err
		}
		return perdure.Ask[string](ctx, "ask", perdure.Question{})
	})
	blocked := func(t *testing.T) (*kit.Kit, *perdure.Run) {
		k := kit.New(t, nil, perdure.Options{}, first)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		k = kit.New(t, k.Store, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.EchoFlow("other"), kit.EchoFlow("third"))
		return k, k.WaitForRun("t", run.ID, perdure.Blocked)
	}
	kit.Bubble(t, "cancel with a queued run", func(t *testing.T) {
		k, run := blocked(t)
		next := k.StartOn("t", "other", "x")
		time.Sleep(time.Minute)
		kit.WantErr(t, "cancel", k.Control("cancel", "t", run.ID), nil)
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
	})
	kit.Bubble(t, "cancel with steering of another flow", func(t *testing.T) {
		k, run := blocked(t)
		next := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "other", Input: "x", Policy: perdure.Steer})
		time.Sleep(time.Minute)
		kit.WantErr(t, "cancel", k.Control("cancel", "t", run.ID), nil)
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
	})
	kit.Bubble(t, "interrupt with a queued run", func(t *testing.T) {
		k, _ := blocked(t)
		next := k.StartOn("t", "other", "x")
		time.Sleep(time.Minute)
		last := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "third", Input: "y", Policy: perdure.Interrupt})
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
		kit.WantOutput(t, k.WaitForRun("t", last.ID, perdure.Succeeded), "y")
	})
	kit.Bubble(t, "cancel of a queued run with steering behind it", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, first, kit.EchoFlow("other"))
		k.Stop()
		run := k.StartOn("t", "f", "")
		next := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "other", Input: "x", Policy: perdure.Steer})
		kit.WantErr(t, "cancel", k.Control("cancel", "t", run.ID), nil)
		k = kit.New(t, k.Store, perdure.Options{}, first, kit.EchoFlow("other"))
		k.WaitForRun("t", run.ID, perdure.Cancelled)
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
	})
}
