package perdure_test

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

// exampleNode stands for one process of a program: a runtime and its worker.
// The examples stop one and start another on the same store to show that a
// run goes on; what goes wrong panics, so that they stay short.
type exampleNode struct {
	*perdure.Runtime
	stop func()
}

func startNode(s store.Store, flows ...perdure.Flow) *exampleNode {
	return startNodeWith(s, perdure.Options{}, flows...)
}

func startNodeWith(s store.Store, o perdure.Options, flows ...perdure.Flow) *exampleNode {
	ctx, cancel := context.WithCancel(context.Background())
	rt, err := perdure.New(ctx, s, o, flows...)
	noErr(err)
	done := make(chan error)
	go func() { done <- rt.Work(ctx) }()
	return &exampleNode{Runtime: rt, stop: func() {
		cancel()
		noErr(<-done)
	}}
}

// do starts a run on a thread, a new one if that is "", and waits for it.
func (n *exampleNode) do(thread, flow string, in any) *perdure.Run {
	run, err := n.Start(context.Background(), perdure.StartRequest{Thread: thread, Flow: flow, Input: in})
	noErr(err)
	return n.wait(run)
}

// wait waits until the run has ended, or needs something from outside.
func (n *exampleNode) wait(run *perdure.Run) *perdure.Run {
	run, err := n.Wait(context.Background(), run.Thread, run.ID)
	noErr(err)
	return run
}

// end waits until the run has ended, whatever it waits for meanwhile.
func (n *exampleNode) end(run *perdure.Run) *perdure.Run {
	for e, err := range n.Events(context.Background(), run.Thread, perdure.EventOptions{Run: run.ID}) {
		noErr(err)
		if e.Kind == "ended" {
			break
		}
	}
	return n.wait(run)
}

// answer answers the run's open ask and waits for the run.
func (n *exampleNode) answer(run *perdure.Run, value any) *perdure.Run {
	noErr(n.Answer(context.Background(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: value}}))
	return n.wait(run)
}

func noErr(err error) {
	if err != nil {
		panic(err)
	}
}
