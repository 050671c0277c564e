// Loop is an agent without a framework: a loop that asks a model and runs the
// tools that it calls. Wrapped in a step each, these two calls survive kill -9;
// nothing else of the loop knows about it.
//
//	go run ./examples/loop
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
		reply, err := perdure.Step(ctx, fmt.Sprintf("ask-%d", turn), func(ctx context.Context) (llm.Message, error) {
			return ask(ctx, messages)
		})
		if err != nil {
			return "", err
		}
		calls := reply.Calls()
		if len(calls) == 0 {
			return reply.Text(), nil
		}
		messages = append(messages, reply)
		for i, c := range calls {
			text, err := perdure.Step(ctx, fmt.Sprintf("multiply-%d-%d", turn, i), func(ctx context.Context) (string, error) {
				return multiply(c.Args)
			})
			if err != nil {
				return "", err
			}
			result := llm.Part{Result: &llm.Result{Call: c.ID, Name: c.Name, Text: text}}
			messages = append(messages, llm.Message{Role: llm.RoleTool, Parts: []llm.Part{result}})
		}
	}
	return "", fmt.Errorf("no answer after 10 turns")
}

func ask(ctx context.Context, messages []llm.Message) (llm.Message, error) {
	fmt.Println("asking the model about", len(messages), "messages")
	time.Sleep(time.Second) // time to kill it
	reply, err := llm.Collect(model.Generate(ctx, &llm.Request{Messages: messages}))
	if err != nil {
		return llm.Message{}, err
	}
	return reply.Message, nil
}

func multiply(args string) (string, error) {
	fmt.Println("multiplying", args)
	var n struct{ A, B int }
	err := json.Unmarshal([]byte(args), &n)
	return fmt.Sprint(n.A * n.B), err
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
