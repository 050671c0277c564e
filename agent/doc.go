// Package agent makes durable agents of language models and tools: after a
// crash or a deploy in the middle of a turn, any process goes on with it. What is
// recorded is not done again; only a step that was cut off runs again.
//
// # A first agent
//
//	var refund = agent.NewTool("refund", "Refund an order.",
//		func(ctx context.Context, r Refund) (Receipt, error) {
//			return pay(ctx, perdure.Key(ctx), r) // the same key if the step runs again
//		}, agent.NeedsApproval())
//
//	var clerk = agent.New("clerk", openai.Model("gpt-5"), agent.Options{
//		Instruction: "Resolve the ticket. Refund the order if the customer is right.",
//		Tools:       []agent.Tool{refund},
//	})
//
//	func triage(ctx context.Context, ticket string) (string, error) {
//		return agent.Run(ctx, clerk, ticket)
//	}
//
// Run is called in a flow, so a program with this agent is that of package
// perdure. It imports a driver, such as store/sqlitestore, opens a runtime, works,
// starts runs and answers asks:
//
//	rt, err := perdure.Open(ctx, "sqlite:desk.db", perdure.NewFlow("triage", triage))
//	go rt.Work(ctx) // executes runs, here or in another process
//	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "triage", Input: ticket, User: "eve"})
//	run, err = rt.Wait(ctx, run.Thread, run.ID) // until it asks or ends
//	for _, ask := range run.Asks {
//		err = rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{
//			Decision: agent.DecisionApprove, By: "ann"}})
//	}
//
// [NewFlow] makes a flow of an agent alone. A run on the same thread continues
// the conversation, see [History].
//
// An input is a text, or parts, for example with an image:
//
//	agent.Run(ctx, clerk, []llm.Part{
//		llm.Text("What does this invoice say?"),
//		llm.Image("image/png", png), // or llm.ImageURL("https://…")
//	})
//
// # What is a step
//
// An agent is a step of the flow, a turn inside it a scope, and each reply of
// the model and each result of a tool is a step of its own:
//
//	/clerk/input                       what the agent is given
//	/clerk/turn-1/reply                the model's message, before anything acts on it
//	/clerk/turn-1/0-refund/approve-…   a person decides
//	/clerk/turn-1/0-refund/run         the tool's result
//	/clerk/turn-2/reply
//
// There is no resume code: when a run goes on, what is recorded is not done
// again. The calls of one message run at the same time, each durable on its own:
// after a crash those that are finished are not repeated, also beside one that
// waits for a person. The model is asked again when every call has exactly one
// result. Where a run was cancelled in between, the next one on the thread tells
// the model that there is no result, so that providers accept the conversation.
//
// All that was said stands in the thread's state as a transcript, a list of
// values of type [Record]: it forks and rewinds with the thread, and [Transcript]
// reads it from outside. Only what is new is written. Keys of the state that
// begin with "agent." are this package's: a flow with agents uses others.
//
// # Tools
//
// [NewTool] makes a tool of a typed function; the model sees a JSON Schema of
// the type. Calls with wrong arguments never reach the function: the model is
// told, a few times, and then the run fails with [ErrMistakes]. An error of the
// function is told to the model, [Fatal] ends the run. [AtMostOnce],
// [Reconcile], [Retry] and [Timeout] are those of package perdure. A function
// that returns [Pending] goes on elsewhere, and its result comes later from any
// process. [UsesVerbs] makes the function flow code. [Normalize] brings
// arguments into one form before anything looks at them.
//
// # People
//
// A tool with [NeedsApproval] or [WithApproval] is not called before a person
// has decided: approve, edit the arguments, reject with a message to the model,
// or respond in the tool's place. The runtime enforces it. Each call has an ask
// of its own that carries the call's hash; they are answered in any order, one
// by one or together, from any process, with [perdure.Runtime.Answer]. Where the
// approval allows [DecisionAlways], a person makes a [Rule], and calls that fit
// it are not asked about. The third rejection of the same call in a run ends it
// with [ErrRejected].
//
// Who may answer is checked against the answer's By and Groups, which are what
// the program says: it has to know by itself who its users are.
//
// [AskPerson] lets the model ask. A [Credential] that a tool [Needs] is asked for
// once; [Provide] answers with the secret, which goes into a sealed cell and
// never into the journal. That needs a sealed store or the environment variable
// PERDURE_KEYS, see package agent/credentials.
//
// # More agents
//
// [Sequential], [Loop], [Parallel] and [Func] compose agents, [AsTool] and
// [Delegate] make agents tools of others, with a context of their own, and
// Options.Transfer lets a model hand the conversation over: the other agent
// answers the next messages too, until it hands it on. A user's message
// that arrives while an agent is busy, with the policy [perdure.Steer], reaches
// it before its next reply.
//
// # Working state
//
// [TodoTools] keep a list of tasks, [FileTools] files, and [MemoryTools] what is
// to be known on other threads. Package agent/files says where files can be: in
// the state, where they fork and rewind with the thread, on a disk, or where
// threads share them. Package agent/memory is for code that uses memory itself.
//
// # Limits
//
// [Limits] of turns, tokens, cost and time are counted from what is recorded:
// a resume does not begin anew. The run's budget (Budget of
// [perdure.StartRequest]), of the units "tokens" and "cost", counts too and ends
// the run with [perdure.ErrBudget]. A conversation that grows too long is trimmed or
// summarised as [Context] says.
//
// # Models
//
// Packages llm/openai, llm/anthropic and llm/gemini have models of the services,
// llm/script one for tests that needs no network. Retrying is the runtime's: a provider that is overloaded, or says when to come
// back, is asked again by a durable timer; meanwhile the run is suspended and
// costs nothing. While a reply comes in, [perdure.Runtime.Deltas] yields its
// pieces, each a [Delta], with pass, attempt and offset; they are void when
// the reply is recorded.
package agent
