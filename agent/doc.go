// Package agent makes durable agents from language models and tools: after a crash
// or a deployment in the middle of a turn, any process can continue the turn. Finished
// steps are not repeated; only a step that was cut off runs again. The package builds
// on agent/files, agent/memory, agent/credentials, llm and perdure.
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
// Run is called in a flow, so a program with this agent looks like any program of
// package perdure. It imports a driver, such as store/sqlitestore, opens a
// runtime, works, starts runs and answers asks:
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
// [NewFlow] makes a flow that only runs an agent. A later run on the same thread
// continues the conversation, see [History].
//
// An input is a text, or parts, for example with an image:
//
//	agent.Run(ctx, clerk, []llm.Part{
//		llm.Text("What does this invoice say?"),
//		llm.Image("image/png", png), // or llm.ImageURL("https://…")
//	})
//
// # Steps
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
// There is no resume code: when a run continues, recorded steps are not repeated. The
// calls of one message run concurrently, each durable on its own: after a crash,
// finished calls are not repeated, even if another one still waits for a person. The
// model is asked again when every call has exactly one result. If a run was cancelled
// before that, the next run on the thread tells the model that there is no result, so
// that providers accept the conversation.
//
// The whole conversation is in the thread's state as a transcript, a list of values
// of type [Record]: it forks and rewinds with the thread, and [Transcript] reads it
// from outside. Only new records are written. Keys of the state that begin with
// "agent." are reserved for this package.
//
// # Tools
//
// [NewTool] makes a tool from a typed function; the model sees a JSON Schema of the
// type. Calls with wrong arguments never reach the function: the model is told, and
// after a few mistakes in a row the run fails with [ErrMistakes]. An error of the
// function is reported to the model; [Fatal] ends the run. [AtMostOnce], [Reconcile],
// [Retry] and [Timeout] work as in package perdure. If the function returns [Pending],
// the call continues elsewhere, and any process can deliver its result later.
// [UsesVerbs] makes the function flow code. [Normalize] brings arguments into one
// form before anything looks at them.
//
// # People
//
// A tool with [NeedsApproval] or [WithApproval] is not called before a person has
// decided: approve, edit the arguments, reject with a message to the model, or
// respond in the tool's place. The runtime enforces it. Each call has an ask of its
// own that carries the call's hash; asks are answered in any order, one by one or
// together, from any process, with [perdure.Runtime.Answer]. Where the approval
// allows [DecisionAlways], a person can make a [Rule], and calls that fit it run
// without asking. The third rejection of the same call ends the run with
// [ErrRejected].
//
// Who may answer is checked against the answer's By and Groups, which the program
// sets: it has to know who its users are.
//
// [AskPerson] lets the model ask a person. A [Credential] that a tool [Needs] is
// requested once; [Provide] answers with the secret, which goes into a sealed cell
// and never into the journal. This requires a sealed store or the environment
// variable PERDURE_KEYS, see package agent/credentials.
//
// # More agents
//
// [Sequential], [Loop], [Parallel] and [Func] compose agents. [AsTool] and
// [Delegate] make agents tools of others, in a context of their own.
// Options.Transfer lets a model hand over the conversation: the other agent also
// answers the next messages, until it hands over in turn. With the policy
// [perdure.Steer], a user's message that arrives while an agent is busy reaches it
// before its next reply.
//
// # Working state
//
// [TodoTools] keep a list of tasks, [FileTools] files, and [MemoryTools] facts for
// use on other threads. Package agent/files keeps files in the state, where they fork
// and rewind with the thread, on a disk, or where threads share them. Package
// agent/memory is for code that uses memory itself.
//
// # Limits
//
// [Limits] of turns, tokens, cost and time count what is recorded, so resuming does
// not reset them. The run's budget (Budget of [perdure.StartRequest]),
// in the units "tokens" and "cost", counts too and ends the run with
// [perdure.ErrBudget]. A conversation that grows too long is trimmed or summarised
// as [Context] says.
//
// # Models
//
// Packages llm/openai, llm/anthropic and llm/gemini have the models of these
// services; llm/script has one for tests that needs no network. The runtime
// retries: if a provider is overloaded, or says when to try again, the next attempt
// follows a durable timer; meanwhile the run is suspended and costs nothing. While a
// reply arrives, [perdure.Runtime.Deltas] yields its pieces, each a [Delta], with
// pass, attempt and offset; the recorded reply replaces them.
package agent
