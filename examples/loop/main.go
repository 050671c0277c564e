// Loop is an agent without a framework: a loop that asks a model and runs the
// tools that it calls. Wrapped in a step each, these two calls survive kill -9;
// nothing else of the loop knows about it.
//
//	go run ./examples/loop
//
// All that it knows is in loop.db; remove loop.db* to begin anew.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

var model = script.Must(script.Parse("loop", []byte(`
rules:
  - when: {turn: 0}
    calls: [{name: multiply, args: {a: 3, b: 14}}]
  - when: {turn: 1}
    calls: [{name: multiply, args: '{"a": {{.Last}}, "b": 160}'}]
  - when: {turn: 2}
    text: They weigh {{.Last}} grams.
`)))

func loop(ctx context.Context, question string) (string, error) {
	messages := []llm.Message{llm.User(question)}
	for turn := range 10 {
		reply, err := perdure.Step(ctx, fmt.Sprintf("ask-%d", turn), func(ctx context.Context) (*llm.Reply, error) {
			return ask(ctx, messages)
		})
		if err != nil {
			return "", err
		}
		messages = append(messages, reply.Message)
		if reply.Stop != llm.StopCalls {
			return reply.Message.Text(), nil
		}
		for i, c := range reply.Message.Calls() {
			result, err := perdure.Step(ctx, fmt.Sprintf("multiply-%d-%d", turn, i), func(ctx context.Context) (llm.Result, error) {
				return multiply(c)
			})
			if err != nil {
				return "", err
			}
			messages = append(messages, llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &result}}})
		}
	}
	return "", fmt.Errorf("no answer after 10 turns")
}

func ask(ctx context.Context, messages []llm.Message) (*llm.Reply, error) {
	fmt.Println("asking the model about", len(messages), "messages")
	time.Sleep(time.Second) // time to kill it
	return llm.Collect(model.Generate(ctx, &llm.Request{Messages: messages}))
}

func multiply(c llm.Call) (llm.Result, error) {
	fmt.Println("multiplying", c.Args)
	var n struct{ A, B int }
	err := json.Unmarshal([]byte(c.Args), &n)
	return llm.Result{Call: c.ID, Name: c.Name, Text: fmt.Sprint(n.A * n.B)}, err
}

func main() {
	ctx := context.Background()
	rt := must(perdure.Open(ctx, "sqlite:loop.db", perdure.NewFlow("loop", loop)))
	go func() { log.Fatal(rt.Work(ctx)) }()
	run := must(rt.Start(ctx, perdure.StartRequest{Flow: "loop", Input: "What do 3 crates of 14 apples weigh, at 160 grams each?", Key: "apples"}))
	fmt.Println(must(perdure.Output[string](must(rt.Wait(ctx, run.Thread, run.ID)))))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
