package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// say returns a step's function that prints when it runs.
func say(what string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		fmt.Println("step:", what)
		return what, nil
	}
}

// Renamed lets new code find what a run recorded under the old name.
func ExampleRenamed() {
	before := perdure.NewFlow("greet", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "hello", say("hello")); err != nil {
			return "", err
		}
		return perdure.Ask[string](ctx, "name", perdure.Question{Prompt: "Who are you?"})
	})
	after := perdure.NewFlow("greet", func(ctx context.Context, _ string) (string, error) {
		hello, err := perdure.Step(ctx, "welcome", say("welcome"), perdure.Renamed("hello"))
		if err != nil {
			return "", err
		}
		name, err := perdure.Ask[string](ctx, "name", perdure.Question{Prompt: "Who are you?"})
		return hello + " " + name, err
	})
	s := memstore.New()
	one := startNode(s, before)
	run := one.do("", "greet", "")
	one.stop()

	two := startNode(s, after) // the next version of the program
	defer two.stop()
	fmt.Println(string(two.answer(run, "ann").Output))
	// Output:
	// step: hello
	// "hello ann"
}

// Added lets new code insert a step before those that a run has recorded;
// a new step behind them needs nothing.
func ExampleAdded() {
	before := perdure.NewFlow("hire", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "invite", say("invite")); err != nil {
			return "", err
		}
		return perdure.Ask[string](ctx, "verdict", perdure.Question{Prompt: "Well?"})
	})
	after := perdure.NewFlow("hire", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "check-papers", say("check papers"), perdure.Added()); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "invite", say("invite")); err != nil {
			return "", err
		}
		verdict, err := perdure.Ask[string](ctx, "verdict", perdure.Question{Prompt: "Well?"})
		if err != nil {
			return "", err
		}
		_, err = perdure.Step(ctx, "write-letter", say("write a letter"))
		return verdict, err
	})
	s := memstore.New()
	one := startNode(s, before)
	run := one.do("", "hire", "")
	one.stop()

	two := startNode(s, after)
	defer two.stop()
	fmt.Println(string(two.answer(run, "hired").Output))
	// Output:
	// step: invite
	// step: check papers
	// step: write a letter
	// "hired"
}

// Dropped lets new code leave out a step that a run has recorded. Without it
// the run is blocked instead of going on with code that does not fit.
func ExampleDropped() {
	approve := func(ctx context.Context) (string, error) {
		return perdure.Ask[string](ctx, "approve", perdure.Question{Prompt: "Well?"})
	}
	before := perdure.NewFlow("order", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "send-fax", say("send a fax")); err != nil {
			return "", err
		}
		return approve(ctx)
	})
	careless := perdure.NewFlow("order", func(ctx context.Context, _ string) (string, error) {
		return approve(ctx)
	})
	after := perdure.NewFlow("order", func(ctx context.Context, _ string) (string, error) {
		if err := perdure.Dropped(ctx, "send-fax"); err != nil {
			return "", err
		}
		return approve(ctx)
	})
	s := memstore.New()
	one := startNode(s, before)
	run := one.do("", "order", "")
	one.stop()

	two := startNode(s, careless)
	run = two.answer(run, "approved")
	fmt.Println(run.Status)
	fmt.Println(run.Diff)
	two.stop()

	three := startNode(s, after)
	defer three.stop()
	noErr(three.Retry(context.Background(), run.Thread, run.ID, perdure.Note{}))
	fmt.Println(string(three.wait(run).Output))
	// Output:
	// step: send a fax
	// blocked
	// in /:
	// - step "send-fax"
	//   ask "approve"
	// + return
	// "approved"
}
