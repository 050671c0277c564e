// Package llm defines what Perdure knows about language models:
// provider-independent messages, a [Model] that answers them, and errors that say
// whether a retry can help.
//
// A model is one method. It yields deltas, which a [Fold] joins:
//
//	reply, err := llm.Collect(model.Generate(ctx, &llm.Request{
//		System:   "Answer in one word.",
//		Messages: []llm.Message{llm.User("What is the capital of France?")},
//	}))
//
// # Messages
//
// A [Message] has a role and parts: text, media, tool calls, results of tool
// calls, reasoning. Data that a provider wants back unchanged, such as the
// signature of a thinking block, is kept in the part's [Opaque]. Everything that
// is UTF-8 survives encoding/json byte for byte: arguments and opaque data are
// kept as text, not as JSON that an encoder may write differently. So a recorded
// conversation that is sent again is the same request, which its provider accepts
// and finds in its prompt cache.
//
// If a provider would refuse a tool name or call id, because a model made it up or
// another provider assigned it, it is sent in another spelling, the same each time.
// The message keeps the original.
//
// An image or another file is a part with [Media], as bytes or a URL:
//
//	llm.Message{Role: llm.RoleUser, Parts: []llm.Part{
//		llm.Text("What is in this picture?"),
//		llm.Image("image/png", png),
//	}}
//
// # Errors
//
// An [*Error] matches one of the sentinels, so that code that retries does not
// depend on the provider. Models themselves do not retry: [Temporary] says whether
// a retry makes sense, and [RetryAfter] how long to wait.
//
// # Providers
//
// Packages llm/openai, llm/anthropic and llm/gemini talk to the services, and to
// everything compatible with them. Their keys come from the environment variables
// OPENAI_API_KEY, ANTHROPIC_API_KEY, and GOOGLE_API_KEY or GEMINI_API_KEY, or from
// each package's option Key. Package llm/script is a model that follows a script,
// without a network. Package llm/llmtest records the traffic of a real model and
// plays it back.
package llm
