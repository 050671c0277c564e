package perdure_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// survey asks one question.
var survey = perdure.NewFlow("survey", func(ctx context.Context, question string) (string, error) {
	return perdure.Ask[string](ctx, "reply", perdure.Question{Prompt: question})
})

// With a key Start can be repeated, by this process or by another: there is
// one run.
func ExampleRuntime_Start() {
	ctx := context.Background()
	s := memstore.New()
	one := startNode(s, survey)
	defer one.stop()
	two := startNode(s, survey)
	defer two.stop()
	request := perdure.StartRequest{Flow: "survey", Input: "Happy?", Key: "message-17", User: "ann"}
	first, err := one.Start(ctx, request)
	noErr(err)
	again, err := two.Start(ctx, request)
	noErr(err)
	fmt.Println("one run:", first.ID == again.ID)

	request.Input = "Sad?"
	_, err = two.Start(ctx, request)
	fmt.Println("another input:", errors.Is(err, perdure.ErrKeyReused))
	// Output:
	// one run: true
	// another input: true
}

// A policy says what becomes of an input that finds its thread busy.
func ExampleRuntime_Start_policy() {
	ctx := context.Background()
	node := startNode(memstore.New(), survey)
	defer node.stop()
	run := node.do("ann", "survey", "Happy?")

	_, err := node.Start(ctx, perdure.StartRequest{Thread: "ann", Flow: "survey", Input: "Sad?", Policy: perdure.Reject})
	var busy *perdure.BusyError
	fmt.Println("busy:", errors.As(err, &busy) && busy.Run == run.ID)

	queued, err := node.Start(ctx, perdure.StartRequest{Thread: "ann", Flow: "survey", Input: "Sad?"})
	noErr(err)
	fmt.Println(queued.Status, "until the first run has ended")
	fmt.Println(string(node.answer(run, "yes").Output))
	fmt.Println(node.wait(queued).Asks[0].Prompt)
	// Output:
	// busy: true
	// queued until the first run has ended
	// "yes"
	// Sad?
}

// Wait returns when the run has ended, or cannot go on without the outside.
func ExampleRuntime_Wait() {
	ctx := context.Background()
	node := startNode(memstore.New(), survey)
	defer node.stop()
	run, err := node.Start(ctx, perdure.StartRequest{Flow: "survey", Input: "Happy?"})
	noErr(err)
	run, err = node.Wait(ctx, run.Thread, run.ID)
	noErr(err)
	fmt.Println(run.Status, run.Waits[0].Kind, run.Waits[0].Path)

	noErr(node.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "very"}}))
	run, err = node.Wait(ctx, run.Thread, run.ID)
	noErr(err)
	fmt.Println(run.Status, string(run.Output))
	// Output:
	// suspended ask /reply
	// succeeded "very"
}

// The first answer that fits wins. The same one again changes nothing.
func ExampleRuntime_Answer() {
	ctx := context.Background()
	node := startNode(memstore.New(), survey)
	defer node.stop()
	run := node.do("", "survey", "Happy?")
	answer := func(value any) error {
		return node.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: value, By: "ann"}})
	}
	err := answer(42)
	fmt.Println("not a string:", errors.Is(err, perdure.ErrAnswer))
	fmt.Println("first:", answer("yes"))
	fmt.Println("again:", answer("yes"))
	err = answer("no")
	fmt.Println("another one:", errors.Is(err, perdure.ErrAnswered))
	fmt.Println(string(node.wait(run).Output))
	// Output:
	// not a string: true
	// first: <nil>
	// again: <nil>
	// another one: true
	// "yes"
}

// Progress adds news to an open ask, such as a tool that runs long.
func ExampleRuntime_Progress() {
	ctx := context.Background()
	node := startNode(memstore.New(), survey)
	defer node.stop()
	run := node.do("", "survey", "Which file?")
	noErr(node.Progress(ctx, run.Asks[0].ID, "searching", perdure.Note{}))
	noErr(node.Progress(ctx, run.Asks[0].ID, "2 found", perdure.Note{}))
	for e, err := range node.Events(ctx, run.Thread, perdure.EventOptions{Replay: true}) {
		noErr(err)
		if e.Kind == "progress" {
			fmt.Println(e.Path, string(e.Value))
		}
	}
	fmt.Println(node.wait(run).Status)
	// Output:
	// /reply "searching"
	// /reply "2 found"
	// suspended
}

// Events are the journal as the outside sees it. A reader that knows the last
// number it has seen misses nothing and gets nothing twice, on any process.
func ExampleRuntime_Events() {
	ctx := context.Background()
	s := memstore.New()
	one := startNode(s, survey)
	run := one.do("", "survey", "Happy?")
	var last uint64
	for e, err := range one.Events(ctx, run.Thread, perdure.EventOptions{Replay: true}) {
		noErr(err)
		fmt.Println(e.Seq, e.Kind)
		last = e.Seq
	}
	one.stop()

	two := startNode(s, survey)
	defer two.stop()
	fmt.Println("reconnected")
	two.answer(run, "yes")
	for e, err := range two.Events(ctx, run.Thread, perdure.EventOptions{After: last}) { // stays live
		noErr(err)
		fmt.Println(e.Seq, e.Kind)
		if e.Kind == "ended" {
			break
		}
	}
	// Output:
	// 1 created
	// 2 queued
	// 3 claimed
	// 4 asked
	// 5 suspended
	// reconnected
	// 6 answered
	// 7 claimed
	// 8 ended
}

// A signal with a key has one effect, however often it is sent. It may come
// before anyone waits for it.
func ExampleRuntime_Signal() {
	parcels := perdure.NewFlow("parcels", func(ctx context.Context, _ string) ([]string, error) {
		if _, err := perdure.Ask[bool](ctx, "home", perdure.Question{Prompt: "Are you at home?"}); err != nil {
			return nil, err
		}
		var got []string
		for i := range 2 {
			item, err := perdure.Receive[string](ctx, fmt.Sprintf("parcel-%d", i), "parcel", 0)
			if err != nil {
				return nil, err
			}
			got = append(got, item)
		}
		return got, nil
	})
	ctx := context.Background()
	node := startNode(memstore.New(), parcels)
	defer node.stop()
	run := node.do("", "parcels", "")
	send := func(item, key string) {
		noErr(node.Signal(ctx, run.Thread, "parcel", item, perdure.SignalOptions{Key: key}))
	}
	send("lamp", "webhook-1")
	send("lamp", "webhook-1") // the sender did not hear that it had arrived
	send("book", "webhook-2")
	fmt.Println(string(node.answer(run, true).Output))
	// Output:
	// ["lamp","book"]
}

// Pause keeps a run from beginning its next step, until Resume; another
// process heeds it too.
func ExampleRuntime_Pause() {
	send := perdure.NewFlow("send", func(ctx context.Context, text string) (string, error) {
		if _, err := perdure.Ask[bool](ctx, "sure", perdure.Question{Prompt: "Send it?"}); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "send", func(context.Context) (string, error) {
			fmt.Println("sending")
			return "sent " + text, nil
		})
	})
	ctx := context.Background()
	s := memstore.New()
	one := startNode(s, send)
	run := one.do("", "send", "mail")
	noErr(one.Pause(ctx, run.Thread, run.ID, perdure.Note{By: "bob", Reason: "let me look first"}))
	one.stop()

	two := startNode(s, send)
	defer two.stop()
	run = two.answer(run, true)
	fmt.Println(run.Status)
	noErr(two.Resume(ctx, run.Thread, run.ID, perdure.Note{By: "bob"}))
	run = two.wait(run)
	fmt.Println(run.Status, string(run.Output))
	err := two.Resume(ctx, run.Thread, run.ID, perdure.Note{By: "bob"})
	fmt.Println("nothing to do:", errors.Is(err, perdure.ErrNothingToDo))
	// Output:
	// paused
	// sending
	// succeeded "sent mail"
	// nothing to do: true
}

// Cancel can be asked for anywhere, and ends a run that waits at once. Its
// open asks are over.
func ExampleRuntime_Cancel() {
	ctx := context.Background()
	node := startNode(memstore.New(), survey)
	defer node.stop()
	run := node.do("", "survey", "Happy?")
	noErr(node.Cancel(ctx, run.Thread, run.ID, perdure.Note{By: "ann", Reason: "no time"}))
	fmt.Println(node.wait(run).Status)

	err := node.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "yes"}})
	fmt.Println("the ask is over:", errors.Is(err, perdure.ErrAskOver))
	// Output:
	// cancelled
	// the ask is over: true
}

// Retry lets a failed run go on when its cause is mended. What succeeded is
// not done again.
func ExampleRuntime_Retry() {
	broken := true
	backup := perdure.NewFlow("backup", func(ctx context.Context, disk string) (string, error) {
		archive, err := perdure.Step(ctx, "pack", func(context.Context) (string, error) {
			fmt.Println("packing", disk)
			return disk + ".tar", nil
		})
		if err != nil {
			return "", err
		}
		return perdure.Step(ctx, "upload", func(context.Context) (string, error) {
			fmt.Println("uploading", archive)
			if broken {
				return "", errors.New("the server is full")
			}
			return archive + " stored", nil
		})
	})
	node := startNode(memstore.New(), backup)
	defer node.stop()
	run := node.do("", "backup", "home")
	fmt.Println(run.Status, run.Error)

	broken = false
	noErr(node.Retry(context.Background(), run.Thread, run.ID, perdure.Note{By: "ann", Reason: "made room"}))
	run = node.wait(run)
	fmt.Println(run.Status, string(run.Output))
	// Output:
	// packing home
	// uploading home.tar
	// failed /upload: the server is full
	// uploading home.tar
	// succeeded "home.tar stored"
}
