package guide_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

func did(what string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		fmt.Println("step:", what)
		return what, nil
	}
}

// The flow as it was when the run began.
func hireV1(ctx context.Context, name string) (bool, error) {
	if _, err := perdure.Step(ctx, "invite", did("invite")); err != nil {
		return false, err
	}
	if _, err := perdure.Step(ctx, "send-fax", did("send a fax")); err != nil {
		return false, err
	}
	return perdure.Ask[bool](ctx, "verdict", perdure.Question{Prompt: "Hire " + name + "?"})
}

// One that does not fit what is recorded.
func hireCareless(ctx context.Context, name string) (bool, error) {
	if _, err := perdure.Step(ctx, "check-papers", did("check papers")); err != nil {
		return false, err
	}
	return perdure.Ask[bool](ctx, "verdict", perdure.Question{Prompt: "Hire " + name + "?"})
}

// One that says what has changed.
func hireV2(ctx context.Context, name string) (bool, error) {
	if _, err := perdure.Step(ctx, "check-papers", did("check papers"), perdure.Added()); err != nil {
		return false, err
	}
	if _, err := perdure.Step(ctx, "call", did("call"), perdure.Renamed("invite")); err != nil {
		return false, err
	}
	if err := perdure.Dropped(ctx, "send-fax"); err != nil {
		return false, err
	}
	ok, err := perdure.Ask[bool](ctx, "verdict", perdure.Question{Prompt: "Hire " + name + "?"})
	if err != nil {
		return false, err
	}
	_, err = perdure.Step(ctx, "write-letter", did("write a letter")) // a new last step needs no mark
	return ok, err
}

func Example_changes() {
	ctx := context.Background()
	s := memstore.New()
	one := begin(s, perdure.NewFlow("hire", hireV1))
	run := must(one.Start(ctx, perdure.StartRequest{Flow: "hire", Input: "ann"}))
	run = must(one.Wait(ctx, run.Thread, run.ID))
	one.stop()

	careless := begin(s, perdure.NewFlow("hire", hireCareless))
	check(careless.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}}))
	run = must(careless.Wait(ctx, run.Thread, run.ID))
	fmt.Println(run.Status)
	fmt.Println(run.Diff)
	careless.stop()

	two := begin(s, perdure.NewFlow("hire", hireV2))
	defer two.stop()
	check(two.Retry(ctx, run.Thread, run.ID, perdure.Note{By: "ann"}))
	fmt.Println(must(two.WaitEnd(ctx, run.Thread, run.ID)).Status)
	// Output:
	// step: invite
	// step: send a fax
	// blocked
	// in /:
	// - step "invite"
	// - step "send-fax"
	// - ask "verdict"
	// + step "check-papers"
	// step: check papers
	// step: write a letter
	// succeeded
}
