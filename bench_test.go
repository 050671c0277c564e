package perdure_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/sqlitestore"
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

// BenchmarkResume lets a worker take up a run with 10 000 finished steps, beside
// reading their entries from the store.
func BenchmarkResume(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) (store.Store, error){
		"memory": func(*testing.B) (store.Store, error) { return memstore.New(), nil },
		"sqlite": func(b *testing.B) (store.Store, error) {
			return store.Open(b.Context(), "sqlite:"+filepath.Join(b.TempDir(), "bench.db"))
		},
	} {
		s, err := open(b)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		reached := make(chan bool, 100)
		work := func() (*perdure.Runtime, func()) {
			rt, err := perdure.New(b.Context(), s, perdure.Options{Version: "bench"}, benchFlow(reached))
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { rt.Work(ctx) })
			return rt, func() { cancel(); wg.Wait() }
		}
		rt, stop := work()
		if _, err := rt.Start(b.Context(), perdure.StartRequest{Flow: "steps", Input: 10_000, Thread: "t"}); err != nil {
			b.Fatal(err)
		}
		<-reached
		if _, err := rt.Wait(b.Context(), "t", ""); err != nil {
			b.Fatal(err)
		}
		stop()
		b.Run(name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for journal, err := range s.Journals(b.Context(), "") {
					if err != nil {
						b.Fatal(err)
					}
					if _, err := store.ReadAll(b.Context(), s, journal, 0); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(name+"/resume", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				if err := rt.Pause(b.Context(), "t", "", perdure.Note{}); err != nil {
					b.Fatal(err)
				}
				if err := rt.Resume(b.Context(), "t", "", perdure.Note{}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				_, stop := work()
				<-reached
				b.StopTimer()
				stop()
				b.StartTimer()
			}
		})
	}
}
