package perdure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// A worker takes over what a dead process left, behind its last step. The step
// that it died in runs again, with the same key.
func ExampleRuntime_Work() {
	entered := make(chan bool)
	var keys []string
	bake := perdure.NewFlow("bake", func(ctx context.Context, cake string) (string, error) {
		if _, err := perdure.Step(ctx, "knead", say("knead")); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "bake", func(ctx context.Context) (string, error) {
			fmt.Println("step: bake")
			if keys = append(keys, perdure.Key(ctx)); len(keys) == 1 {
				close(entered)
				<-ctx.Done()
				return "", ctx.Err()
			}
			return cake + " is ready", nil
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	first, second := memstore.Open("bakery"), memstore.Open("bakery") // two ways to one store
	defer second.Close()
	options := perdure.Options{Lease: 200 * time.Millisecond, Grace: time.Millisecond}
	one, err := perdure.New(ctx, first, options, bake)
	noErr(err)
	over := make(chan bool)
	go func() {
		defer close(over)
		_ = one.Work(ctx)
	}()
	defer func() { cancel(); <-over }()
	run, err := one.Start(ctx, perdure.StartRequest{Flow: "bake", Input: "cake"})
	noErr(err)
	<-entered
	noErr(first.Close()) // it can write nothing any more, as if it were killed
	fmt.Println("the first process is dead")

	two := startNodeWith(second, options, bake)
	defer two.stop()
	fmt.Println(string(two.wait(run).Output))
	fmt.Println("same key:", keys[0] == keys[1])
	// Output:
	// step: knead
	// step: bake
	// the first process is dead
	// step: bake
	// "cake is ready"
	// same key: true
}
