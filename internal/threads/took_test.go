package threads_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

func TestEventsOfStepsSayHowLongTheyTook(t *testing.T) {
	nap := func(d time.Duration, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { time.Sleep(d); return "x", err }
	}
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "none", nap(0, nil)); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "long", nap(1500*time.Millisecond, nil)); err != nil {
			return "", err
		}
		_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
			return perdure.Step(ctx, "inner", nap(7*time.Microsecond, nil), perdure.Input("a"))
		})
		if err != nil {
			return "", err
		}
		tries := 0
		_, err = perdure.Step(ctx, "fails", func(context.Context) (string, error) {
			tries++
			time.Sleep(time.Duration(tries) * time.Second)
			return "", errors.New("no")
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Millisecond}))
		if err == nil {
			return "", errors.New("it did not fail")
		}
		return "x", nil
	})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		var got []string
		for _, e := range k.EventsOf("t") {
			if e.Path != "" {
				got = append(got, fmt.Sprint(e.Kind, e.Path, " ", e.TookUS))
			} else if e.TookUS != 0 {
				t.Errorf("%s took %d", e.Kind, e.TookUS)
			}
		}
		want := []string{"step/none 0", "step/long 1500000", "step/outer/inner 7", "step/outer 0", "attempt/fails 1000000", "step/fails 2000000"}
		kit.NoDiff(t, cmp.Diff(want, got))
	})
}
