package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestRunGoesOn walks a run through a timer, a group with a branch that waits
// for a person, and its end.
func TestRunGoesOn(t *testing.T) {
	greet := perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
		hello, err := perdure.Step(ctx, "hello", func(context.Context) (string, error) { return "hello " + name, nil })
		if err != nil {
			return "", err
		}
		if err := perdure.Sleep(ctx, "nap", time.Hour); err != nil {
			return "", err
		}
		g := perdure.NewGroup(ctx)
		g.Go("person", func(ctx context.Context) error {
			_, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Prompt: "ok?"})
			return err
		})
		g.Go("machine", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "count", func(ctx context.Context) (int, error) {
				return 7, perdure.NewCounter("n").Add(ctx, 3)
			})
			return err
		})
		if err := g.Wait(); err != nil {
			return "", err
		}
		if n, err := perdure.NewCounter("n").Get(ctx); n != 3 || err != nil {
			t.Errorf("after Wait the count is %d, %v", n, err)
		}
		return hello, nil
	})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, greet)
		k.StartOn("t", "greet", "ann")
		run := k.WaitFor("t", perdure.Suspended)
		k.AnswerAt(run, "/person/ok", perdure.Answer{Value: true})
		run = k.WaitFor("t", perdure.Succeeded)
		if out, err := perdure.Output[string](run); out != "hello ann" || err != nil {
			t.Errorf("output %q, %v", out, err)
		}
		want := `created
queued "ann"
claimed
step /hello "hello ann"
timer /nap
suspended
claimed
fired /nap
asked /person/ok
step /machine/count 7
suspended
answered /person/ok true
claimed
ended "hello ann" succeeded
`
		// The branches commit in any order.
		sorted := func(s string) []string { return slices.Sorted(strings.Lines(s)) }
		kit.NoDiff(t, cmp.Diff(sorted(want), sorted(k.Trace("t"))))
	})
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	none := func(context.Context, string) (string, error) { return "", nil }
	_, err := perdure.New(t.Context(), memstore.New(), perdure.Options{Concurrency: -1},
		perdure.NewFlow("", none), perdure.NewFlow("a/b", none), perdure.NewFlow("twice", none), perdure.NewFlow("twice", none),
		perdure.NewFlow("\xff", none), perdure.NewFlow(strings.Repeat("x", 300), none), perdure.Flow{})
	kit.WantErr(t, "names", err, perdure.ErrName)
	kit.WantErr(t, "options", err, perdure.ErrInvalid)
	for _, want := range []string{"empty", `"a/b"`, `"twice"`, "UTF-8", "300", "NewFlow", "Options.Concurrency is -1"} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
	if _, err := perdure.Open(t.Context(), "nothing:here"); !errors.Is(err, store.ErrScheme) {
		t.Errorf("an unknown scheme: %v", err)
	}
	rt, err := perdure.Open(t.Context(), "memory:", perdure.NewFlow("f", none))
	if err != nil || !slices.Equal(rt.Flows(), []string{"f"}) {
		t.Fatalf("open: %v", err)
	}
	kit.WantErr(t, "close", rt.Close(), nil)
	_, err = rt.Start(t.Context(), perdure.StartRequest{Flow: "f", Input: ""})
	kit.WantErr(t, "a start when it is closed", err, store.ErrClosed)
}

func TestOptionsThatCannotBe(t *testing.T) {
	for part, o := range map[string]perdure.Options{
		"Options.Lease is -1ns":            {Lease: -1},
		"Options.Lease is 10m0.000000001s": {Lease: 10*time.Minute + 1}, "Options.Lease is 1µs": {Lease: time.Microsecond},
		"Options.Concurrency is": {Concurrency: math.MaxInt}, "Options.Grace is negative": {Grace: -1}, "Options.MaxQueue is negative": {MaxQueue: -1},
		"Options.Version is text": {Version: strings.Repeat("v", 201)},
	} {
		if _, err := perdure.New(t.Context(), memstore.New(), o); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: %v, want %q", o, err, part)
		}
	}
	if _, err := perdure.New(t.Context(), memstore.New(), perdure.Options{Lease: 10 * time.Minute}); err != nil {
		t.Error(err)
	}
}
