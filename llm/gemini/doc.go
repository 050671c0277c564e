// Package gemini is an [llm.Model] for the Gemini API.
//
//	var flash = gemini.Model("gemini-2.5-flash")
//
//	reply, err := llm.Collect(flash.Generate(ctx, &llm.Request{
//		Messages: []llm.Message{llm.User("What is the capital of France?")},
//	}))
//
// [Model] never fails, so that a model may be a package-level variable. The key
// is read from the environment when a request is made, unless the option [Key]
// gives one: GOOGLE_API_KEY, and GEMINI_API_KEY without it. No other variable is
// used. [BaseURL] points to a gateway or to a server that speaks the same
// protocol, and [HTTPClient] sets proxies and timeouts.
//
// # How a request is sent
//
// Consecutive messages of a user and of tools are sent as one, with the results
// first, as the API demands. Images and files are sent as bytes, or as a URL if
// Google can read it; the bytes of a blob must be loaded beforehand. Arguments of
// a tool call that are not a JSON object, which the API demands, are sent back as
// {"invalid_json": "…"}.
//
// Output asks for JSON that fits the schema. Models before the third generation
// do not accept a schema and tools together: they get it in the system prompt.
//
// # Calls
//
// The arguments of a call are the bytes that the model sent, whatever their
// numbers. Calls that come without an id get one, which is the same when the
// same request is made again, and is not sent to the API.
//
// # Thinking
//
// Effort becomes a level if the model has levels, and a budget of 1024,
// 8192 or 24576 tokens in the 2.5 models. Older ones do not think.
//
// A model's thinking is a part with [llm.Reasoning]. Signatures of thoughts, texts
// and calls are kept in the [llm.Opaque] of their parts and sent back unchanged; a
// text with a signature stays a separate part. Thoughts without a signature are
// not sent back, nor is data of other providers. Calls that another model made are
// marked as such for models that check signatures.
//
// # Errors
//
// Every failure is an [*llm.Error], except that of a context that ended, which
// matches context.Canceled or context.DeadlineExceeded. The SDK's own retries
// and continuations are off. A blocked prompt is [llm.ErrRefused]; a reply ended
// by a filter has [llm.StopRefused]. The protocol has no last event: a reply that
// does not say why it ended is [llm.ErrInterrupted].
package gemini
