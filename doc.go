// Package perdure is a durable runtime for AI agents: it records the outcome of
// each step of an agent's turn before the next one begins, so that any process
// can continue where another stopped.
//
// # A first program
//
// A flow is a Go function. It acts on the world in steps, and asks people for what
// it needs from them. This one survives kill -9 at any point: start the program
// again and it continues where it was. A finished step does not run again, and an
// open question is still open. The program is examples/approval of this module;
// try it with go run.
//
//	package main
//
//	import (
//		"bufio"
//		"context"
//		"fmt"
//		"log"
//		"os"
//		"strings"
//
//		"github.com/perdure/perdure"
//		_ "github.com/perdure/perdure/store/sqlitestore"
//	)
//
//	func refund(ctx context.Context, order string) (string, error) {
//		amount, err := perdure.Step(ctx, "look-up", func(ctx context.Context) (int, error) {
//			fmt.Println("looking up order", order)
//			return 42, nil
//		})
//		if err != nil {
//			return "", err
//		}
//		ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: fmt.Sprintf("Refund %d € for order %s?", amount, order)})
//		if err != nil || !ok {
//			return "not refunded", err
//		}
//		return perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
//			fmt.Println("paying under the key", perdure.Key(ctx)) // the same key if the step runs again
//			return fmt.Sprintf("refunded %d €", amount), nil
//		})
//	}
//
//	func main() {
//		ctx := context.Background()
//		rt := must(perdure.Open(ctx, "sqlite:approval.db", perdure.NewFlow("refund", refund)))
//		go func() { log.Fatal(rt.Work(ctx)) }() // executes runs
//		run := must(rt.Start(ctx, perdure.StartRequest{Flow: "refund", Input: "A-17", Key: "refund A-17"}))
//		run = must(rt.Wait(ctx, run.Thread, run.ID)) // until it asks or ends
//		typed := bufio.NewReader(os.Stdin)
//		for len(run.Asks) > 0 {
//			fmt.Print(run.Asks[0].Prompt, " (yes/no) ")
//			yes := strings.TrimSpace(must(typed.ReadString('\n'))) == "yes"
//			if err := rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: yes}}); err != nil {
//				log.Fatal(err)
//			}
//			run = must(rt.Wait(ctx, run.Thread, run.ID))
//		}
//		fmt.Println(must(perdure.Output[string](run)))
//	}
//
//	func must[T any](v T, err error) T {
//		if err != nil {
//			log.Fatal(err)
//		}
//		return v
//	}
//
// Open keeps everything in one SQLite file. Start queues a run of the flow, on
// a new thread, and returns immediately; with a Key it can be repeated and returns
// the same run. Work executes runs in this process; other processes on the same
// store may do so too, or answer, or watch. If no process calls Work, runs stay
// queued and Wait waits. Wait returns when the run has ended or cannot
// continue without input. The runs of a killed process are taken over by another
// one, or by the same program started again, once its lease has expired: 3
// seconds, see [Options].
//
// # Words
//
// A thread is a durable conversation or task; everything that happens on it is in
// its journal, in order. A run is one turn on a thread: a flow that works on one
// input until it has an output. A pass is one call of the flow, in one process,
// until the run waits, ends or is cut off; a run takes as many as it needs.
//
// The functions by which a flow acts, [Step], [Scope], [Ask], [Receive],
// [Sleep], [Take], [Emit], [Plan], [Spawn], [Join] and [Cleanup], are its verbs.
// The run, each step, scope and branch of a [Group] calls a function, and that
// call is a frame. A verb belongs to the frame whose context it is given, so
// code inside a step uses the context of the step's function, not the one
// around it.
//
// # How a run continues
//
// A run is resumed by calling its flow again from the top. Every verb has a
// name, and its place in the tree of names is its identity, "/turn-3/refund".
// A verb whose outcome is in the journal returns it; the first one without an
// outcome runs. There is no other resume code, and so there are three rules:
//
//   - Everything that touches the world belongs in a step. Flow code between the
//     verbs runs many times.
//   - Decisions must follow from the input and from what verbs return: use [Now]
//     for the time, and a step for anything random.
//   - Names are unique in their frame; in a loop, put the index into them.
//
// If a flow no longer fits its journal, the run is blocked with a diff, before
// anything after the mismatch runs. Steps that other branches of a group have
// already begun finish and are recorded. Appending steps is always safe; [Added],
// [Dropped] and [Renamed] declare other changes. The order of recorded steps is
// not compared. A recorded value that the code cannot read into its Go type blocks
// the run too, see [ErrBlocked]: a type may gain fields, and change others if it
// still reads the old JSON. A composite step whose function no longer calls verbs
// is detected when the function has returned. When code that fits is deployed,
// Retry continues the run immediately; otherwise workers with other code try again
// about every half minute.
//
// # Steps
//
// A step returns what was recorded: its result as encoding/json represents it,
// without unexported fields, and its error as a [*StepError]. That keeps the
// message, and errors.Is matches it by code only: use [Coded] for errors that the
// flow has to recognise. A step may be retried, and limited in time:
//
//	page, err := perdure.Step(ctx, "fetch", func(ctx context.Context) (string, error) {
//		return fetch(ctx, "https://example.com", perdure.Key(ctx))
//	}, perdure.Retry(perdure.RetryPolicy{Attempts: 5}), perdure.Timeout(10*time.Second))
//	if err != nil {
//		return err
//	}
//	fmt.Println(page)
//
// A step happens at least once: after a crash between its effect and its entry in
// the journal it runs again, with the same [Key]. [AtMostOnce] reverses that: the
// step is never started again unless it certainly did not happen, and if nobody
// knows, a person is asked.
//
// A step whose function calls no verbs is a leaf. One whose function does is a
// composite: its function is flow code, and a retry repeats only what failed last
// inside it.
//
// # At the same time
//
// A frame has one verb in progress, so plain goroutines that call verbs get
// [ErrConcurrent]. A [Group] has branches, each a frame of its own; one that
// waits does not hold up the others:
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
// A branch that fails is reported immediately, in [Run.Failed] and the events, and
// Wait returns its error when all are done. A group made with [FailFast] does not
// wait for the others: it closes them, with their asks.
//
// # Waiting
//
// [Ask] waits for a person, [Receive] for a signal, [Sleep] for a time, and
// [Join] for a child, a run on a thread of its own that [Spawn] started. When
// nothing else is left to do, the run is suspended: the verbs return
// [ErrSuspended], the flow returns it, and the run uses no memory until it
// continues. Return errors of verbs; do not swallow them. Swallowing does not harm
// the journal, since a suspended run records and starts nothing.
//
// # State and deps
//
// [State], [Counter] and [List] are the thread's own values, which live on from
// run to run. They are read anywhere in a run and written in leaf steps:
//
//	var notes = perdure.NewList[string]("notes")
//	_, err := perdure.Step(ctx, "note", func(ctx context.Context) (bool, error) {
//		return true, notes.Append(ctx, "called the customer")
//	})
//	if err != nil {
//		return err
//	}
//
// A [Dep] is an object that flows and steps use, such as a client. It is created
// once per pass. If it is [Resumable], its state is kept in the journal too.
//
// # From outside
//
// A [Runtime] starts and controls runs: Start, Wait, Answer, Signal, Pause,
// Resume, Cancel, Retry. Get returns everything about a thread, StateAt its state
// at any earlier point, and Events its journal, live:
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
