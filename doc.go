// Package perdure is a durable runtime for AI agents: it writes every step of
// an agent's turn down before acting on it, so that any process can go on
// where another stopped.
//
// # A first program
//
// A flow is a Go function. What it does to the world it does in steps; what it
// needs from a person it asks. This one survives kill -9 at any point: start
// the program again and it goes on where it was, and the step that is done is
// not done twice.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/perdure/perdure"
//		_ "github.com/perdure/perdure/store/sqlitestore"
//	)
//
//	func refund(ctx context.Context, order string) (string, error) {
//		amount, err := perdure.Step(ctx, "look-up", func(ctx context.Context) (int, error) {
//			return 40, nil // ask the shop, with perdure.Key(ctx) as idempotency key
//		})
//		if err != nil {
//			return "", err
//		}
//		ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: fmt.Sprintf("Refund %d € for %s?", amount, order)})
//		if err != nil || !ok {
//			return "not refunded", err
//		}
//		return perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
//			return "refunded", nil
//		})
//	}
//
//	func main() {
//		ctx := context.Background()
//		rt, err := perdure.Open(ctx, "sqlite:refund.db", perdure.NewFlow("refund", refund))
//		if err != nil {
//			log.Fatal(err)
//		}
//		go rt.Work(ctx)
//		run, err := rt.Start(ctx, perdure.StartRequest{Flow: "refund", Input: "A-17", Key: "refund A-17"})
//		for err == nil {
//			if run, err = rt.Wait(ctx, run.Thread, run.ID); err != nil || run.Status != perdure.Suspended {
//				break
//			}
//			var yes bool
//			fmt.Print(run.Asks[0].Prompt, " (true/false) ")
//			fmt.Scan(&yes)
//			err = rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: yes}})
//		}
//		fmt.Println(run.Status, string(run.Output), err)
//	}
//
// Open keeps everything in one SQLite file. Work executes runs in this
// process; other processes on the same store may do so too, or answer, or
// watch. Start with a Key can be repeated: it returns the same run.
//
// # How a run goes on
//
// A run is resumed by calling its flow again from the top. Every verb has a
// name, and its place in the tree of names is its identity, "/turn-3/refund".
// A verb whose outcome is in the journal returns it; the first one that is not
// there runs. There is no other resume code, and so there are three rules:
//
//   - What touches the world stands in a step. Flow code between the verbs
//     runs many times.
//   - What decides the way follows from the input and from what verbs return:
//     use [Now] for the time, and a step for anything random.
//   - Names are unique in their frame; a loop puts its index into them.
//
// A flow that no longer fits its journal is not guessed at: the run is blocked
// with a diff, before anything runs. Appending steps is always safe; [Added],
// [Dropped] and [Renamed] say what else was changed.
//
// # Steps
//
// What a step returns is what was recorded: its result as JSON carries it, and
// its error as a [*StepError] that matches by code. A step may be retried, and
// limited in time:
//
//	page, err := perdure.Step(ctx, "fetch", func(ctx context.Context) (string, error) {
//		return fetch(ctx, "https://example.com", perdure.Key(ctx))
//	}, perdure.Retry(perdure.RetryPolicy{Attempts: 5}), perdure.Timeout(10*time.Second))
//	if err != nil {
//		return err
//	}
//	fmt.Println(page)
//
// A step is at least once: a crash between what it did and its entry makes it
// run again, with the same [Key]. [AtMostOnce] turns that round: the step is
// never started again unless it is certain that it did not happen, and if
// nobody knows, a person is asked.
//
// A step whose function calls verbs is a composite. Its function is flow code;
// trying it again repeats only what failed last inside it.
//
// # At the same time
//
// A frame has one verb in progress. A [Group] has branches, each a frame of its
// own; one that waits does not hold up the others:
//
//	g := perdure.NewGroup(ctx)
//	for i, q := range []string{"cost", "risk"} {
//		g.Go(fmt.Sprintf("ask-%d", i), func(ctx context.Context) error {
//			_, err := perdure.Ask[string](ctx, "opinion", perdure.Question{Prompt: "What about " + q + "?"})
//			return err
//		})
//	}
//	if err := g.Wait(); err != nil {
//		return err
//	}
//
// # Waiting
//
// [Ask] waits for a person, [Receive] for a signal, [Sleep] for a time. When
// nothing else is left to do the run is suspended: the verbs return
// [ErrSuspended], the flow returns it, and nothing of the run is in memory
// until it goes on. Return errors of verbs; do not swallow them. Swallowing
// does no harm to the journal, since a suspended run records and starts
// nothing.
//
// # State and deps
//
// [State], [Counter] and [List] are the thread's own values, which live on from
// run to run. They are read anywhere and written in steps that call no verbs:
//
//	var notes = perdure.NewList[string]("notes")
//	_, err := perdure.Step(ctx, "note", func(ctx context.Context) (bool, error) {
//		return true, notes.Append(ctx, "called the customer")
//	})
//	if err != nil {
//		return err
//	}
//
// A [Dep] is an object that a pass needs, such as a client. If it is
// [Resumable], its own state is kept in the journal too.
//
// # From outside
//
// A [Runtime] starts and controls threads: Start, Wait, Answer, Signal, Pause,
// Resume, Cancel, Retry. Get tells everything about a thread, Events its
// journal, live, and StateAt how it was at any earlier point:
//
//	for e, err := range rt.Events(ctx, "thread-1", perdure.EventOptions{}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(e.Seq, e.Kind, e.Path)
//	}
//
// # What is guaranteed
//
// docs/guarantees.md lists each claim with the test that shows it, and its
// limits. Package perduretest crashes your own flows at every write.
package perdure
