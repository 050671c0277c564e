package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

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
		"Options.Version must be text": {Version: strings.Repeat("v", 201)},
	} {
		if _, err := perdure.New(t.Context(), memstore.New(), o); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: %v, want %q", o, err, part)
		}
	}
	if _, err := perdure.New(t.Context(), memstore.New(), perdure.Options{Lease: 10 * time.Minute}); err != nil {
		t.Error(err)
	}
}
