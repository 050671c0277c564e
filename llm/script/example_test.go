package script_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
)

func Example() {
	model := script.Must(script.Parse("hello.yaml", []byte(`
rules:
  - when: {last: {regexp: 'I am (\w+)'}}
    text: Hello, {{.Match 1}}!
    chunks: 2
default:
  text: Who are you?
`)))
	for _, text := range []string{"Hi", "I am Ada"} {
		for d, err := range model.Generate(context.Background(), &llm.Request{Messages: []llm.Message{llm.User(text)}}) {
			if err != nil {
				fmt.Println(err)
			}
			fmt.Printf("%q stop=%q\n", d.Text, d.Stop)
		}
	}
	// Output:
	// "Who are you?" stop=""
	// "" stop="end"
	// "Hello," stop=""
	// " Ada!" stop=""
	// "" stop="end"
}

// A conversation with tools, from the script in the documentation of this
// package.
func ExampleLoad() {
	model, err := script.Load("testdata/desk.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	tools := map[string]string{"lookup": `{"amount": 42}`, "refund": "42 € are on their way"}
	r := &llm.Request{System: "You are the clerk.", Messages: []llm.Message{llm.User("Please refund order A-17")}}
	for range 5 {
		reply, err := llm.Collect(model.Generate(context.Background(), r))
		if err != nil {
			fmt.Println(err, llm.RetryAfter(err))
			continue
		}
		r.Messages = append(r.Messages, reply.Message)
		if text := reply.Message.Text(); text != "" {
			fmt.Println(text)
		}
		if reply.Stop == llm.StopEnd {
			break
		}
		for _, c := range reply.Message.Calls() {
			fmt.Println(c.ID, c.Name, c.Args)
			r.Messages = append(r.Messages, llm.Message{Role: llm.RoleTool, Parts: []llm.Part{
				{Result: &llm.Result{Call: c.ID, Name: c.Name, Text: tools[c.Name]}},
			}})
		}
	}
	// Output:
	// llm: overloaded: script: as the script says 2s
	// Let me look at A-17.
	// call-1-0 lookup {"order":"A-17","full":true}
	// call-3-0 refund {"amount": 42}
	// It is done: 42 € are on their way.
}

func ExampleParse() {
	_, err := script.Parse("demo.yaml", []byte(`
rules:
  - when: {last: hello, tern: 0}
    txt: Hi!
  - when: {last: {regexp: '(\d+'}}
    text: It is {{.Lats}}.
`))
	fmt.Println(err)
	// Output:
	// script: demo.yaml:4: a rule has no key "txt"; is text meant? It takes name, when, times, text, reasoning, calls, chunks, wait, delay, usage, stop, error
	// script: demo.yaml:3: when has no key "tern"; is turn meant? It takes last, system, role, turn, replies, tool, has
	// script: demo.yaml:3: the reply says nothing; write text:, calls:, reasoning: or error:
	// script: demo.yaml:5: the regexp "(\\d+" is wrong: missing closing ): `(\d+`
	// script: demo.yaml:6: the template of text is wrong: there is no .Lats in a template; there are .Last, .Match, .Result, .System, .Turn, .User
}

func ExampleNew() {
	model := script.New(
		script.Call("add", `{"a": 1, "b": 2}`),
		script.Say("It is 3."),
	)
	r := &llm.Request{Messages: []llm.Message{llm.User("What is 1 + 2?")}}
	for range 2 {
		reply, err := llm.Collect(model.Generate(context.Background(), r))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(reply.Message.Text(), reply.Message.Calls(), reply.Stop)
		r.Messages = append(r.Messages, reply.Message)
	}
	fmt.Println(model.Count(), "requests")
	// Output:
	//  [{call-1-0 add {"a": 1, "b": 2}}] calls
	// It is 3. [] end
	// 2 requests
}
