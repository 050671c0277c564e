package perduretest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store/memstore"
)

// A journal as people read it. In a test, Golden compares it with a file.
func ExampleTrace() {
	ctx := context.Background()
	s := memstore.New()
	greet := perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
		return perdure.Step(ctx, "hello", func(context.Context) (string, error) { return "hello " + name, nil })
	})
	rt, err := perdure.New(ctx, s, perdure.Options{}, greet)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "greet", Thread: "t", Title: "A greeting", Input: "ann"}); err != nil {
		fmt.Println(err)
		return
	}
	trace, err := perduretest.Trace(ctx, s, "t")
	fmt.Print(trace)
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 +0s created {"thread":"t","title":"A greeting"}
	// 2 +0s queued {"id":"run1","flow":"greet","policy":"enqueue","res":["ann"]}
}

// notes is a resumable dep.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, s)
}

func (n *notes) Dump(context.Context) (json.RawMessage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return json.Marshal(map[string][]string{"list": n.list})
}

func (n *notes) Load(_ context.Context, state json.RawMessage) error {
	var s struct{ List []string }
	if err := json.Unmarshal(state, &s); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = s.List
	return nil
}

func ExampleCheckResumable() {
	_ = func(t *testing.T) { // func TestNotes(t *testing.T)
		perduretest.CheckResumable(t,
			func() perdure.Resumable {
				n := new(notes)
				n.add("a note")
				return n
			},
			func() perdure.Resumable { return new(notes) })
	}
}

func ExampleCrashEverywhere() {
	var fx perduretest.Effects
	flow := perdure.NewFlow("welcome", func(ctx context.Context, name string) (bool, error) {
		if _, err := perdure.Step(ctx, "mail", func(ctx context.Context) (string, error) {
			fx.Count(ctx, "mail") // and here: send it, with perdure.Key(ctx)
			return "sent to " + name, nil
		}); err != nil {
			return false, err
		}
		return perdure.Ask[bool](ctx, "confirmed", perdure.Question{Prompt: "Did it arrive?"})
	})
	_ = func(t *testing.T) { // func TestWelcome(t *testing.T)
		perduretest.CrashEverywhere(t, perduretest.Crash{
			Flows:   []perdure.Flow{flow},
			Start:   []perdure.StartRequest{{Flow: "welcome", Input: "ann"}},
			Effects: &fx,
			Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
				return rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}})
			},
		})
	}
}
