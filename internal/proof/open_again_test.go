package proof_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// mortal are the stores behind the scheme of this name, which Open opens again.
var mortal sync.Map // by URL: func(context.Context) (store.Store, error)

func init() {
	store.Register("mortal", func(ctx context.Context, url string) (store.Store, error) {
		open, ok := mortal.Load(url)
		if !ok {
			return nil, fmt.Errorf("no test has made %s", url)
		}
		return open.(func(context.Context) (store.Store, error))(ctx)
	})
}

func againFlow(ctx context.Context, _ string) (string, error) {
	var b strings.Builder
	for i := range 3 {
		v, err := perdure.Step(ctx, fmt.Sprintf("step-%d", i), func(context.Context) (string, error) {
			return strings.Repeat(fmt.Sprint(i), 1+i*40_000), nil // the last is kept apart from its entry
		})
		if err != nil {
			return "", err
		}
		b.WriteString(v[:1])
	}
	if err := perdure.Sleep(ctx, "sleep", 10*time.Second); err != nil {
		return "", err
	}
	yes, err := perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: "go on?"})
	return b.String() + yes, err
}

// TestOpenGoesOnWhenTheStoreFails has each handle of the store die at one of
// its calls, before or after it is done, reads included. The run ends in the
// same process and the same Work, and each step is recorded once. (With less
// than seven calls a handle, nobody gets to read a thread with its values.)
func TestOpenGoesOnWhenTheStoreFails(t *testing.T) {
	for n := 7; n <= 40; n++ {
		for _, fault := range []faulty.Fault{faulty.CrashBefore, faulty.CrashAfter} {
			synctest.Test(t, func(t *testing.T) { openAgain(t, n, fault) })
			if t.Failed() {
				t.Errorf("with %s each handle's call %d", fault, n)
			}
		}
	}
}

func openAgain(t *testing.T, n int, fault faulty.Fault) {
	url := fmt.Sprintf("mortal:%d %s", n, fault)
	keeper := memstore.Open(url)
	defer keeper.Close()
	var opens atomic.Int32
	mortal.Store(url, func(context.Context) (store.Store, error) {
		if opens.Add(1) == 1 { // the first lives, since New does not try again
			return faulty.New(memstore.Open(url), faulty.At(n+10, fault)), nil
		}
		return faulty.New(memstore.Open(url), faulty.At(n, fault)), nil
	})
	defer mortal.Delete(url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	rt, err := perdure.Open(ctx, url, perdure.NewFlow("flow", againFlow))
	kit.NoErr(t, err)
	defer rt.Close()
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- rt.Work(working) }()
	defer func() {
		stop()
		if err := <-worked; err != nil {
			t.Errorf("Work = %v", err)
		}
	}()
	// again repeats what a caller repeats: whatever the store left open.
	again := func(what string, call func() error) {
		t.Helper()
		for {
			err := call()
			if err == nil {
				return
			}
			if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
				t.Fatalf("%s = %v", what, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	again("Start", func() error {
		_, err := rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "flow", Input: "", Key: "k"})
		return err
	})
	var run *perdure.Run
	again("Wait", func() (err error) { run, err = rt.Wait(ctx, "t", ""); return err })
	for len(run.Asks) == 0 && ctx.Err() == nil { // it may sleep still
		time.Sleep(time.Second)
		again("Wait", func() (err error) { run, err = rt.Wait(ctx, "t", ""); return err })
	}
	again("Answer", func() error {
		return rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "yes"}})
	})
	again("WaitEnd", func() (err error) { run, err = rt.WaitEnd(ctx, "t", ""); return err })
	if run.Status != perdure.Succeeded || string(run.Output) != `"012yes"` {
		t.Errorf("the run %s with %s (%s%s)", run.Status, run.Output, run.Error, run.Diff)
	}
	steps := map[string]int{}
	again("Events", func() error {
		clear(steps)
		for e, err := range rt.Events(ctx, "t", perdure.EventOptions{Replay: true}) {
			if err != nil {
				return err
			}
			if e.Kind == "step" {
				steps[e.Path]++
			}
		}
		return nil
	})
	for i := range 3 {
		if n := steps[fmt.Sprintf("/step-%d", i)]; n != 1 {
			t.Errorf("step %d is recorded %d times", i, n)
		}
	}
	select {
	case err := <-worked:
		worked <- err
		t.Error("Work ended meanwhile")
	default:
	}
	if n := opens.Load(); n < 2 {
		t.Errorf("the store was opened %d times, so the test shows nothing", n)
	}
}
