package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// offer drafts a letter in the tone of the thread and asks before it is sent.
var offer = perdure.NewFlow("offer", func(ctx context.Context, to string) (string, error) {
	tone := perdure.NewState[string]("tone")
	if _, err := perdure.Step(ctx, "greet", func(ctx context.Context) (string, error) {
		return "Dear " + to, tone.Set(ctx, "formal")
	}); err != nil {
		return "", err
	}
	if _, err := perdure.Ask[bool](ctx, "send", perdure.Question{Prompt: "Send it?"}); err != nil {
		return "", err
	}
	how, err := tone.Get(ctx)
	return "a " + how + " letter to " + to, err
})

// A fork shares the past and goes on by itself, here with another tone. What
// waits in it is paused, and its asks are its own.
func ExampleRuntime_Fork() {
	ctx := context.Background()
	node := startNode(memstore.New(), offer)
	defer node.stop()
	run := node.do("letter", "offer", "Ann")

	fork, err := node.Fork(ctx, perdure.ForkRequest{Thread: "letter", As: "letter, but warm", State: map[string]any{"tone": "warm"}})
	noErr(err)
	other, err := node.GetRun(ctx, fork.Thread, "")
	noErr(err)
	fmt.Println("the fork is", other.Status, "at", fork.At)
	noErr(node.Resume(ctx, fork.Thread, other.ID, perdure.Note{By: "ann"}))

	for _, run := range []*perdure.Run{run, node.wait(other)} {
		out, err := perdure.Output[string](node.answer(run, true))
		noErr(err)
		fmt.Println(out)
	}
	// Output:
	// the fork is paused at 6
	// a formal letter to Ann
	// a warm letter to Ann
}

// Rewind takes a thread back to a point between two runs. What it had done
// outside is listed, since nobody undoes that.
func ExampleRuntime_Rewind() {
	ctx := context.Background()
	node := startNode(memstore.New(), game)
	defer node.stop()
	node.do("match", "game", "ann")
	then, err := node.Get(ctx, "match")
	noErr(err)
	node.do("match", "game", "bob")

	back, err := node.Rewind(ctx, "match", then.Seq, perdure.Note{By: "referee", Reason: "it did not count"})
	noErr(err)
	for _, e := range back.Outside {
		fmt.Println("not undone:", e.Kind, e.Path)
	}
	at, err := node.StateAt(ctx, "match", 0)
	noErr(err)
	fmt.Println(string(at.State["points"]), string(at.State["last"]), len(at.Thread.Runs), "run")
	// Output:
	// not undone: step /score
	// 1 "ann" 1 run
}

// Diff compares two branches too: what became of a thread, and of its fork.
func ExampleRuntime_Diff_branches() {
	ctx := context.Background()
	node := startNode(memstore.New(), game)
	defer node.stop()
	node.do("match", "game", "ann")
	_, err := node.Fork(ctx, perdure.ForkRequest{Thread: "match", As: "replay"})
	noErr(err)
	node.do("match", "game", "bob")
	node.do("replay", "game", "eve")

	diff, err := node.Diff(ctx, perdure.Point{Thread: "match"}, perdure.Point{Thread: "replay"})
	noErr(err)
	fmt.Println("the same up to", diff.Common)
	for _, k := range diff.State {
		fmt.Printf("%s: %s, in the other %s\n", k.Key, k.Before, k.After)
	}
	fmt.Println(len(diff.Left), "events here,", len(diff.Events), "there, the first is", diff.Events[0].Kind)
	// Output:
	// the same up to 5
	// last: "bob", in the other "eve"
	// 4 events here, 5 there, the first is forked
}

// StartAgain gives a run another try from the beginning.
func ExampleRuntime_StartAgain() {
	ctx := context.Background()
	node := startNode(memstore.New(), game)
	defer node.stop()
	first := node.do("match", "game", "ann")

	again, err := node.StartAgain(ctx, "match", first.ID, perdure.Note{By: "ann", Reason: "one more"})
	noErr(err)
	out, err := perdure.Output[string](node.wait(again))
	noErr(err)
	fmt.Println(out, again.ID != first.ID)
	// Output: ann true
}
