package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

var listed = flag.Int("listed", 50_000, "threads in the longer list; the shorter one has a hundredth")

// created is a time when some of the threads were created.
var created time.Time

// lists compares pages of lists, and counts, in stores with few and with many threads.
func lists(ctx context.Context, dir string) error {
	var took [2]map[string]time.Duration
	names := []string{"all threads", "failed ones", "those of a user", "those with a task's id", "those created at a time", "the inbox", "the inbox of a person", "counts by status"}
	for i, n := range []int{*listed / 100, *listed} {
		err := inStore(ctx, dir, func(s store.Store, _ string) error {
			begun := time.Now()
			rt, err := manyThreads(ctx, s, n)
			if err != nil {
				return err
			}
			created = begun.Add(time.Since(begun) / 2)
			fmt.Printf("made %d threads in %v\n", n, time.Since(begun).Round(time.Second))
			took[i] = map[string]time.Duration{}
			for _, name := range names {
				var times []float64
				for range 15 {
					begin := time.Now()
					if err := onePage(ctx, rt, name, n); err != nil {
						return err
					}
					times = append(times, float64(time.Since(begin)))
				}
				took[i][name] = time.Duration(median(times))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	fmt.Printf("the first page of a list, 100 threads, among %d and %d:\n", *listed/100, *listed)
	for _, name := range names {
		fmt.Printf("  %-24s %9s %9s\n", name, short(took[0][name]), short(took[1][name]))
	}
	worst := 0.0
	for _, name := range names[:len(names)-1] {
		worst = max(worst, float64(took[1][name])/float64(time.Millisecond))
	}
	atMost("slowest first page of the longer list, ms", worst, 50)
	return nil
}

// creators is how many threads are made at a time: they share commits.
const creators = 512

// manyThreads makes n threads: one in a hundred has failed, one in a hundred waits for
// a person, and each of a hundred users has as many.
func manyThreads(ctx context.Context, s store.Store, n int) (*perdure.Runtime, error) {
	fail := perdure.NewFlow("fail", func(context.Context, int) (int, error) { return 0, fmt.Errorf("no") })
	ask := perdure.NewFlow("ask", func(ctx context.Context, i int) (string, error) {
		return perdure.Ask[string](ctx, "ok", perdure.Question{Prompt: "?", Who: []string{fmt.Sprint("person-", i%1000)}})
	})
	rt, stop, err := working(ctx, s, fail, ask)
	if err != nil {
		return nil, err
	}
	defer stop()
	todo, failed := make(chan int), make(chan error, creators)
	var wg sync.WaitGroup
	for range creators {
		wg.Go(func() {
			for i := range todo {
				if err := oneOfMany(ctx, rt, i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	go func() {
		defer close(todo)
		for i := range n {
			select {
			case todo <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	wg.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	return rt, ctx.Err()
}

func oneOfMany(ctx context.Context, rt *perdure.Runtime, i int) error {
	user, meta := fmt.Sprint("user-", i%100), map[string]string{"task_type": fmt.Sprint("type-", i%10), "task_id": fmt.Sprint("task-", i)}
	if i%100 > 1 {
		_, err := rt.Create(ctx, perdure.CreateRequest{User: user, Metadata: meta})
		return err
	}
	run, err := rt.Start(ctx, perdure.StartRequest{Flow: []string{"fail", "ask"}[i%100], Input: i, User: user, Metadata: meta})
	if err == nil {
		_, err = rt.Wait(ctx, run.Thread, run.ID)
	}
	return err
}

func onePage(ctx context.Context, rt *perdure.Runtime, name string, n int) error {
	o := perdure.ListOptions{Limit: 100}
	switch name {
	case "failed ones":
		o.Status = perdure.Failed
	case "those of a user":
		o.User = "user-7"
	case "those with a task's id":
		o.Metadata = map[string]string{"task_id": fmt.Sprint("task-", n/2)}
	case "those created at a time":
		o.CreatedBefore = created
	case "the inbox":
		o.Asks = true
	case "the inbox of a person":
		o.AsksOf = []string{"person-1"}
	case "counts by status":
		_, err := rt.Count(ctx)
		return err
	}
	found := 0
	for _, err := range rt.List(ctx, o) {
		if err != nil {
			return err
		}
		found++
	}
	if found == 0 {
		return fmt.Errorf("a list of %s is empty", name)
	}
	return nil
}
