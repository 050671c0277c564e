package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// signalFlow is a flow that receives n signals "go", one after the other.
func signalFlow(n int, timeout time.Duration) perdure.Flow {
	return perdure.NewFlow("receiving", func(ctx context.Context, _ string) (string, error) {
		all := ""
		for i := range n {
			v, err := perdure.Receive[string](ctx, fmt.Sprint("r", i), "go", timeout)
			if errors.Is(err, perdure.ErrTimeout) {
				v = "timeout"
			} else if err != nil {
				return "", err
			}
			all += v + ","
		}
		return all, nil
	})
}

func TestSignalReachesItsReceive(t *testing.T) {
	kit.Bubble(t, "that waits", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(2, 0))
		k.StartOn("t", "receiving", "")
		run := k.WaitFor("t", perdure.Suspended)
		if len(run.Waits) != 1 || run.Waits[0].Kind != "signal" || run.Waits[0].Signal != "go" || run.Waits[0].Path != "/r0" {
			t.Errorf("it waits for %+v", run.Waits)
		}
		k.MustSignal("t", "go", "a", "")
		k.WaitForRun("t", "", perdure.Suspended)
		k.MustSignal("t", "other", "x", "")
		k.MustSignal("t", "go", "b", "")
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "a,b,")
	})
	kit.Bubble(t, "that comes later, the oldest first", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(3, 0), kit.EchoFlow("idle"))
		k.StartOn("t", "idle", "")
		k.WaitFor("t", perdure.Succeeded)
		for _, v := range []string{"a", "b", "c"} {
			k.MustSignal("t", "go", v, "")
		}
		k.StartOn("t", "receiving", "")
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "a,b,c,")
		if n := k.KindsOf("t")["suspended"]; n != 0 {
			t.Errorf("it was suspended %d times although all was there", n)
		}
	})
	kit.Bubble(t, "once for each key", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(2, 0))
		k.StartOn("t", "receiving", "")
		k.WaitFor("t", perdure.Suspended)
		k.MustSignal("t", "go", "a", "k1")
		k.MustSignal("t", "go", "a", "k1")
		k.WaitForRun("t", "", perdure.Suspended)
		k.MustSignal("t", "go", "a", "k1")
		for name, v := range map[string]string{"go": "again", "other": "a"} {
			kit.WantErr(t, name+" "+v, k.Signal(t.Context(), "t", name, v, perdure.SignalOptions{Key: "k1"}), perdure.ErrKeyReused)
		}
		k.MustSignal("t", "go", "b", "k2")
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "a,b,")
		if n := k.KindsOf("t")["signal"]; n != 2 {
			t.Errorf("%d signals are recorded", n)
		}
	})
	kit.Bubble(t, "of the oldest run that waits", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(1, 0))
		first := k.StartOn("t", "receiving", "")
		k.WaitForRun("t", first.ID, perdure.Suspended)
		second := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "receiving", Input: "", Policy: perdure.Beside})
		k.WaitForRun("t", second.ID, perdure.Suspended)
		k.MustSignal("t", "go", "one", "")
		kit.WantOutput(t, k.WaitForRun("t", first.ID, perdure.Succeeded), "one,")
		k.WaitForRun("t", second.ID, perdure.Suspended)
		k.MustSignal("t", "go", "two", "")
		kit.WantOutput(t, k.WaitForRun("t", second.ID, perdure.Succeeded), "two,")
	})
	kit.Bubble(t, "and is refused where it makes no sense", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(1, 0))
		k.StartOn("t", "receiving", "")
		k.WaitFor("t", perdure.Suspended)
		ctx := t.Context()
		kit.WantErr(t, "unknown thread", k.Signal(ctx, "u", "go", "", perdure.SignalOptions{}), perdure.ErrNoThread)
		kit.WantErr(t, "another tenant", k.Tenant("x").Signal(ctx, "t", "go", "", perdure.SignalOptions{}), perdure.ErrNoThread)
		kit.WantErr(t, "empty name", k.Signal(ctx, "t", "", "", perdure.SignalOptions{}), perdure.ErrName)
		kit.WantErr(t, "no JSON", k.Signal(ctx, "t", "go", make(chan int), perdure.SignalOptions{}), perdure.ErrNotJSON)
		kit.WantErr(t, "half a surrogate", k.Signal(ctx, "t", "go", json.RawMessage(`"\udfff"`), perdure.SignalOptions{}), perdure.ErrNotJSON)
		k.WaitForRun("t", "", perdure.Suspended)
	})
}

func TestReceiveTimesOut(t *testing.T) {
	kit.Bubble(t, "as an entry", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(2, time.Minute))
		k.StartOn("t", "receiving", "")
		k.WaitFor("t", perdure.Suspended)
		time.Sleep(90 * time.Second)
		k.MustSignal("t", "go", "b", "")
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "timeout,b,")
		if n := k.KindsOf("t")["fired"]; n != 1 {
			t.Errorf("%d timeouts are recorded", n)
		}
	})
	kit.Bubble(t, "unless the signal stands before it in the journal", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(1, time.Minute))
		k.StartOn("t", "receiving", "")
		k.WaitFor("t", perdure.Suspended)
		k.Stop()
		time.Sleep(10 * time.Minute)
		k.MustSignal("t", "go", "late", "")
		k2 := kit.New(t, k.Store, perdure.Options{}, signalFlow(1, time.Minute))
		kit.WantOutput(t, k2.WaitForRun("t", "", perdure.Succeeded), "late,")
	})
}

// TestSignalToACancelledRunIsNotLost sends a signal when the run that waits for
// it is on its way out.
func TestSignalToACancelledRunIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, signalFlow(1, 0))
		first := k.StartOn("t", "receiving", "")
		k.WaitFor("t", perdure.Suspended)
		k.Stop()
		kit.WantErr(t, "cancel", k.Cancel(t.Context(), "t", first.ID, perdure.Note{}), nil)
		k.MustSignal("t", "go", "for the next", "")
		k2 := kit.New(t, k.Store, perdure.Options{}, signalFlow(1, 0))
		k2.WaitForRun("t", first.ID, perdure.Cancelled)
		k2.StartOn("t", "receiving", "")
		kit.WantOutput(t, k2.WaitForRun("t", "", perdure.Succeeded), "for the next,")
	})
}

func TestSleepEndsWhenItIsDue(t *testing.T) {
	var woke time.Time
	flow := perdure.NewFlow("sleep", func(ctx context.Context, _ string) (time.Time, error) {
		if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
			return time.Time{}, err
		}
		woke = time.Now()
		return perdure.Now(ctx), perdure.Sleep(ctx, "none", 0)
	})
	kit.Bubble(t, "in the worker that began it", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "sleep", "")
		time.Sleep(time.Second) // a worker that looks before the start is written looks again soon
		run, err := k.GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Suspended || len(run.Waits) != 1 || run.Waits[0].Kind != "timer" || !run.Waits[0].Due.Equal(run.Started.Add(time.Minute)) {
			t.Fatalf("asleep: %+v, %v", run, err)
		}
		due := run.Waits[0].Due
		run = k.WaitFor("t", perdure.Succeeded) // a timer is waited for
		kit.WantOutput(t, run, due.UTC())
		if !woke.Equal(due) {
			t.Errorf("it woke %v too late", woke.Sub(due))
		}
	})
	kit.Bubble(t, "at once where nobody looked in time", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "sleep", "")
		time.Sleep(time.Second)
		k.Stop()
		time.Sleep(3 * time.Minute)
		looked := time.Now()
		k2 := kit.New(t, k.Store, perdure.Options{}, flow)
		k2.WaitForRun("t", "", perdure.Succeeded)
		if !woke.Equal(looked) {
			t.Errorf("it woke %v after the look", woke.Sub(looked))
		}
	})
}

// steered takes what there is before and after an ask.
var steered = perdure.NewFlow("steered", func(ctx context.Context, in string) (string, error) {
	all := in
	take := func(name string) error {
		v, ok, err := perdure.Take[string](ctx, name)
		if !ok {
			v = "-"
		}
		all += "," + v
		return err
	}
	if err := take("first"); err != nil {
		return "", err
	}
	if _, err := perdure.Ask[bool](ctx, "ask", perdure.Question{}); err != nil {
		return "", err
	}
	if err := take("second"); err != nil {
		return "", err
	}
	return all, nil
})

func TestSteeringIsTakenInOrderAndTheRestIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, steered, kit.EchoFlow("idle"))
		main := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "steered", Input: "in", Policy: perdure.Steer})
		if main.Steering {
			t.Error("on an idle thread it is a run of its own")
		}
		run := k.WaitForRun("t", main.ID, perdure.Suspended)
		steer := func(flow, in string) *perdure.Run {
			r := k.MustStart(perdure.StartRequest{Thread: "t", Flow: flow, Input: in, Policy: perdure.Steer})
			if !r.Steering || r.Status != perdure.Queued {
				t.Errorf("steering is %+v", r)
			}
			return r
		}
		steer("steered", "left")
		rest := steer("idle", "over")
		kit.WantErr(t, "cancel of what steers", k.Cancel(t.Context(), "t", rest.ID, perdure.Note{}), perdure.ErrNothingToDo)
		synctest.Wait()
		if got := k.KindsOf("t")["claimed"]; got != 1 {
			t.Errorf("steering let the run go on: %d claims", got)
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: true})
		kit.WantOutput(t, k.WaitForRun("t", main.ID, perdure.Succeeded), "in,-,left")
		kit.WantOutput(t, k.WaitForRun("t", rest.ID, perdure.Succeeded), "over")
		thread, err := k.Get(t.Context(), "t")
		if err != nil || len(thread.Runs) != 2 {
			t.Errorf("the thread has %d runs, %v", len(thread.Runs), err)
		}
	})
}

func TestSteeringOutlivesARunThatIsCancelled(t *testing.T) {
	for _, flow := range []string{"steered", "idle"} {
		kit.Bubble(t, flow, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, steered, kit.EchoFlow("idle"))
			main := k.StartOn("t", "steered", "in")
			k.WaitForRun("t", main.ID, perdure.Suspended)
			rest := k.MustStart(perdure.StartRequest{Thread: "t", Flow: flow, Input: "x", Policy: perdure.Steer})
			kit.WantErr(t, "cancel", k.Cancel(t.Context(), "t", main.ID, perdure.Note{}), nil)
			k.WaitForRun("t", main.ID, perdure.Cancelled)
			run, err := k.Wait(t.Context(), "t", rest.ID)
			if err != nil || run.Steering || run.Started.IsZero() {
				t.Errorf("what was left over: %+v, %v", run, err)
			}
		})
	}
}

// TestWaitForSteeringThatWasTaken must come back: the input will never be a
// run of its own.
func TestWaitForSteeringThatWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, steered)
		main := k.StartOn("t", "steered", "in")
		run := k.WaitForRun("t", main.ID, perdure.Suspended)
		in := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "steered", Input: "x", Policy: perdure.Steer})
		k.AnswerAt(run, "/ask", perdure.Answer{Value: true})
		k.WaitForRun("t", main.ID, perdure.Succeeded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := k.Wait(ctx, "t", in.ID); errors.Is(err, context.DeadlineExceeded) {
			t.Error("Wait for an input that was taken never ends")
		}
	})
}
