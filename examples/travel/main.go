// Travel goes back in the time of a thread: it forks a finished run behind its
// first step with another state, compares the two branches, and takes the thread
// along as a file that proves its own order.
//
//	go run ./examples/travel
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/perdure/perdure"
	_ "github.com/perdure/perdure/store/memstore"
)

var tone = perdure.NewState[string]("tone")

// letter writes a letter in the tone that its first step finds.
var letter = perdure.NewFlow("letter", func(ctx context.Context, to string) (string, error) {
	if _, err := perdure.Step(ctx, "choose-tone", func(ctx context.Context) (string, error) {
		return "", tone.Set(ctx, "formal")
	}); err != nil {
		return "", err
	}
	return perdure.Step(ctx, "write", func(ctx context.Context) (string, error) {
		how, err := tone.Get(ctx)
		return fmt.Sprintf("a %s letter to %s", how, to), err
	})
})

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	rt, err := perdure.Open(ctx, "memory:", letter)
	if err != nil {
		return err
	}
	defer rt.Close()
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- rt.Work(working) }()
	defer func() { stop(); <-worked }()

	if _, err := rt.Start(ctx, perdure.StartRequest{Thread: "original", Flow: "letter", Input: "Ada"}); err != nil {
		return err
	}
	first, err := rt.WaitEnd(ctx, "original", "")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "original: %s\n", first.Output)

	// The first step's outcome is a checkpoint like every other entry.
	var at uint64
	for e, err := range rt.Events(ctx, "original", perdure.EventOptions{Replay: true}) {
		if err != nil {
			return err
		}
		if e.Path == "/choose-tone" {
			at = e.Seq
		}
	}
	fork, err := rt.Fork(ctx, perdure.ForkRequest{Thread: "original", At: at, As: "fork", State: map[string]any{"tone": "friendly"}})
	if err != nil {
		return err
	}
	for _, e := range fork.Outside {
		fmt.Fprintf(w, "not undone: %s\n", e.Path)
	}
	if err := rt.Resume(ctx, "fork", "", perdure.Note{}); err != nil {
		return err
	}
	second, err := rt.WaitEnd(ctx, "fork", "")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "fork: %s\n", second.Output)

	diff, err := rt.Diff(ctx, perdure.Point{Thread: "original"}, perdure.Point{Thread: "fork"})
	if err != nil {
		return err
	}
	for _, d := range diff.State {
		fmt.Fprintf(w, "state %s: %s, in the fork %s\n", d.Key, d.Before, d.After)
	}

	// The fork as one file, checked without the store, and against the code.
	var file bytes.Buffer
	if err := rt.Export(ctx, "fork", &file, perdure.ExportOptions{}); err != nil {
		return err
	}
	v, err := perdure.VerifyExport(bytes.NewReader(file.Bytes()))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d entries, in order and unchanged: %t\n", v.Entries, v.OK())
	replayed, err := perdure.Replay(ctx, &file, letter)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "fits today's code: %t\n", replayed.OK())
	return nil
}
