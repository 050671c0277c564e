// Package anthropic is an [llm.Model] for Anthropic's Messages API.
//
//	var claude = anthropic.Model("claude-sonnet-4-5")
//
//	reply, err := llm.Collect(claude.Generate(ctx, &llm.Request{
//		Messages: []llm.Message{llm.User("What is the capital of France?")},
//	}))
//
// [Model] never fails, so that a model may be a package-level variable. The key
// is read from the environment variable ANTHROPIC_API_KEY when a request is
// made, unless the option [Key] gives one; no other variable is used. [BaseURL]
// points to a gateway or to a server that speaks the same protocol, and
// [HTTPClient] sets proxies and timeouts.
//
// # How a request is sent
//
// Consecutive messages of a user and of tools are sent as one, with the results
// first, as the API demands. Images and PDF files are sent as bytes or as a URL,
// text files as bytes; the bytes of a blob must be loaded beforehand. Text that
// is only white space is left out, because the API refuses it. Arguments of a
// tool call that are not a JSON object, which the API demands, are sent back as
// {"invalid_json": "…"}. A request without MaxTokens gets the largest value that
// the models of its generation accept.
//
// Output becomes output_config, whose schema is sent unchanged: the API requires
// additionalProperties to be false in its objects. Models that do not support it
// get the schema in the system prompt. If a request has no tools but its messages
// contain calls, it declares their tools, because the API demands it, and forbids
// calling them.
//
// The ends of the system prompt (of the tools, without one) and of the last
// message are marked for Anthropic's prompt cache, unless the option [NoCache]
// is given.
//
// # Thinking
//
// Effort is passed to models that choose the length of their thinking themselves.
// Older ones get a budget: 2048, 8192 or 16384 tokens, and at most half of
// MaxTokens. Thinking is off if a tool must be called ([llm.ChoiceRequired]), and
// Temperature is left out if the model thinks: the API refuses both.
//
// A model's thinking is a part with [llm.Reasoning]. Its signature is kept in the
// part's [llm.Opaque], and so are redacted thinking and blocks that this package
// does not know. All of it is sent back unchanged. Reasoning of other providers
// is left out.
//
// # Errors
//
// Every failure is an [*llm.Error], except that of a context that ended, which
// matches context.Canceled or context.DeadlineExceeded. The SDK's own retries
// are off. A reply counts only once its last event has arrived: one that is cut
// off anywhere is [llm.ErrInterrupted].
package anthropic
