package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// game keeps the score of a thread, one point a run.
var game = perdure.NewFlow("game", func(ctx context.Context, player string) (string, error) {
	return perdure.Step(ctx, "score", func(ctx context.Context) (string, error) {
		if err := perdure.NewState[string]("last").Set(ctx, player); err != nil {
			return "", err
		}
		return player, perdure.NewCounter("points").Add(ctx, 1)
	})
})

// Any number of the journal is a point in time that can be looked at.
func ExampleRuntime_StateAt() {
	ctx := context.Background()
	node := startNode(memstore.New(), game)
	defer node.stop()
	node.do("match", "game", "ann")
	then, err := node.Get(ctx, "match")
	noErr(err)
	node.do("match", "game", "bob")

	for _, seq := range []uint64{then.Seq, 0} { // 0 is now
		at, err := node.StateAt(ctx, "match", seq)
		noErr(err)
		fmt.Println(at.Seq, string(at.State["points"]), string(at.State["last"]), len(at.Thread.Runs), "runs")
	}
	// Output:
	// 5 1 "ann" 1 runs
	// 9 2 "bob" 2 runs
}

// Diff tells what changed between two points in time.
func ExampleRuntime_Diff() {
	ctx := context.Background()
	node := startNode(memstore.New(), game)
	defer node.stop()
	node.do("match", "game", "ann")
	then, err := node.Get(ctx, "match")
	noErr(err)
	node.do("match", "game", "bob")

	diff, err := node.Diff(ctx, perdure.Point{Thread: "match", Seq: then.Seq}, perdure.Point{Thread: "match"})
	noErr(err)
	for _, k := range diff.State {
		fmt.Printf("%s: %s -> %s\n", k.Key, k.Before, k.After)
	}
	for _, run := range diff.Runs {
		fmt.Println("a run has", run.After, "with", run.Steps, "step")
	}
	for _, e := range diff.Events {
		fmt.Println(e.Seq, e.Kind)
	}
	// Output:
	// last: "ann" -> "bob"
	// points: 1 -> 2
	// a run has succeeded with 1 step
	// 6 queued
	// 7 claimed
	// 8 step
	// 9 ended
}

// List yields threads in the order of their creation; a cursor goes on where
// another list ended.
func ExampleRuntime_List() {
	ctx := context.Background()
	node := startNode(memstore.New(), game)
	defer node.stop()
	for _, user := range []string{"ann", "ann", "bob", "ann"} {
		_, err := node.Start(ctx, perdure.StartRequest{Flow: "game", Input: user, User: user, Title: "match of " + user})
		noErr(err)
	}
	cursor := ""
	for t, err := range node.List(ctx, perdure.ListOptions{Limit: 2}) {
		noErr(err)
		fmt.Println(t.Title)
		cursor = t.Cursor
	}
	fmt.Println("of ann after that:")
	for t, err := range node.List(ctx, perdure.ListOptions{User: "ann", After: cursor}) {
		noErr(err)
		fmt.Println(t.Title)
	}
	// Output:
	// match of ann
	// match of bob
	// of ann after that:
	// match of ann
	// match of ann
}

// Get tells everything about a thread: what its runs did and wait for.
func ExampleRuntime_Get() {
	ctx := context.Background()
	node := startNode(memstore.New(), survey)
	defer node.stop()
	_, err := node.Start(ctx, perdure.StartRequest{
		Thread: "t1", Flow: "survey", Input: "Happy?", User: "ann", Metadata: map[string]string{"channel": "mail"},
	})
	noErr(err)
	_, err = node.Wait(ctx, "t1", "")
	noErr(err)

	title := "Mood"
	noErr(node.SetMetadata(ctx, "t1", &title, map[string]string{"channel": "phone"}, perdure.Note{}))
	t, err := node.Get(ctx, "t1")
	noErr(err)
	fmt.Println(t.ID, t.User, t.Title, t.Metadata["channel"], t.Status)
	for _, run := range t.Runs {
		fmt.Println(run.Flow, "waits for", run.Waits[0].Kind, run.Waits[0].Path)
	}
	// Output:
	// t1 ann Mood phone suspended
	// survey waits for ask /reply
}

// Threads of different tenants never see each other, also under the same id.
func ExampleRuntime_Tenant() {
	ctx := context.Background()
	node := startNode(memstore.New(), game) // its worker serves all tenants
	defer node.stop()
	for _, tenant := range []string{"red", "blue"} {
		rt := node.Tenant(tenant)
		_, err := rt.Start(ctx, perdure.StartRequest{Thread: "match", Flow: "game", Input: tenant})
		noErr(err)
		run, err := rt.Wait(ctx, "match", "")
		noErr(err)
		fmt.Println(tenant, string(run.Output))
	}
	t, err := node.Tenant("red").Get(ctx, "match")
	noErr(err)
	fmt.Println(len(t.Runs), "run")
	// Output:
	// red "red"
	// blue "blue"
	// 1 run
}
