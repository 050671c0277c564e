package perdure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// benchFlow makes n steps with results of 1 KiB and then waits for a signal.
func benchFlow(reached chan<- bool) perdure.Flow {
	return perdure.NewFlow("steps", func(ctx context.Context, n int) (int, error) {
		result := strings.Repeat("x", 1022)
		for i := range n {
			if _, err := perdure.Step(ctx, fmt.Sprintf("step-%05d", i), func(context.Context) (string, error) {
				return result, nil
			}); err != nil {
				return 0, err
			}
		}
		reached <- true
		_, err := perdure.Receive[bool](ctx, "go", "go", 0)
		return n, err
	})
}

// BenchmarkStep is what the kernel adds to an append: on a store in memory.
func BenchmarkStep(b *testing.B) {
	reached := make(chan bool, 100)
	rt, err := perdure.New(b.Context(), memstore.New(), perdure.Options{Version: "bench"}, benchFlow(reached))
	if err != nil {
		b.Fatal(err)
	}
	go rt.Work(b.Context())
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := rt.Start(b.Context(), perdure.StartRequest{Flow: "steps", Input: b.N}); err != nil {
		b.Fatal(err)
	}
	<-reached
}

// BenchmarkResume replays a run with 10 000 finished steps.
func BenchmarkResume(b *testing.B) {
	reached := make(chan bool, 100)
	s := memstore.New()
	rt, err := perdure.New(b.Context(), s, perdure.Options{Version: "bench"}, benchFlow(reached))
	if err != nil {
		b.Fatal(err)
	}
	go rt.Work(b.Context())
	if _, err := rt.Start(b.Context(), perdure.StartRequest{Flow: "steps", Input: 10_000, Thread: "t"}); err != nil {
		b.Fatal(err)
	}
	<-reached
	if _, err := rt.Wait(b.Context(), "t", ""); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := rt.Pause(b.Context(), "t", "", perdure.Note{}); err != nil {
			b.Fatal(err)
		}
		if err := rt.Resume(b.Context(), "t", "", perdure.Note{}); err != nil {
			b.Fatal(err)
		}
		<-reached
	}
}
