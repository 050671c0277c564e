// Package llm is what Perdure knows about language models: messages that
// belong to no provider, a [Model] that answers them, and errors that say
// whether trying again can help.
//
// A model is one method. It yields deltas, which a [Fold] puts together:
//
//	reply, err := llm.Collect(model.Generate(ctx, &llm.Request{
//		System:   "Answer in one word.",
//		Messages: []llm.Message{llm.User("What is the capital of France?")},
//	}))
//
// # Messages
//
// A [Message] has a role and parts: text, media, tool calls, results of tool
// calls, reasoning. What a provider wants back exactly as it gave it, such as
// the signature of a thinking block, stands beside the part as [Opaque]. All of
// it that is UTF-8 survives encoding/json byte for byte: arguments and opaque
// data are kept as text, not as JSON that an encoder may write in another way. So
// a conversation that was recorded and is sent again is the same request, which
// its provider accepts and finds in its prompt cache.
//
// A name of a tool or an id of a call that a provider would refuse, because a
// model made it up or another provider gave it, is sent in another spelling, the
// same each time. The message keeps what the model said.
//
// An image or another file is a part with [Media], by its bytes or its URL:
//
//	llm.Message{Role: llm.RoleUser, Parts: []llm.Part{
//		llm.Text("What is on this picture?"),
//		llm.Image("image/png", png),
//	}}
//
// # Errors
//
// An [*Error] matches one of the sentinels, so that whoever retries need not
// know the provider. Models do not try again by themselves: [Temporary] says
// whether it makes sense and [RetryAfter] how long the provider wants to be
// left alone.
//
// # Providers
//
// Packages llm/openai, llm/anthropic and llm/gemini speak to the services, and
// to everything that is compatible with them. Their keys are in the environment,
// as OPENAI_API_KEY, ANTHROPIC_API_KEY, and GOOGLE_API_KEY or GEMINI_API_KEY, or
// are given by the option Key of each package. Package llm/script is a model
// that follows a script, without a network. Package llm/llmtest records the
// traffic of a real model and plays it back.
package llm
