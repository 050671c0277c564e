// Package anthropic is Anthropic's Messages API as an [llm.Model].
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
// leads to a gateway or to a server that speaks the same protocol, and
// [HTTPClient] sets proxies and timeouts.
//
// # What becomes of a request
//
// Messages of a user and of tools that follow each other are sent as one, with
// the results first, as the API demands. Images go by their bytes or URL, PDF
// files likewise, text files by their bytes; the bytes of a blob have to be put
// in before. Text that is only white space is left out, because the API refuses
// it. Arguments of a tool call that are no JSON object, which the API demands,
// go back as {"invalid_json": "…"}. A request without MaxTokens gets the most
// that the models of its generation take.
//
// Output asks for output_config, whose schema is sent as it is: the API wants
// additionalProperties to be false in its objects. Models that do not know it
// find the schema in the system prompt. A request without tools whose messages
// speak of calls names their tools, because the API demands it, and forbids to
// call them.
//
// The ends of the system prompt (of the tools, without one) and of the last
// message are marked for Anthropic's prompt cache, unless the option [NoCache]
// is given.
//
// # Thinking
//
// Effort is told to models that set the length of their thinking by themselves.
// Older ones get a budget: 2048, 8192 or 16384 tokens, and at most half of
// MaxTokens. Nobody thinks when a tool has to be called ([llm.ChoiceRequired]),
// and Temperature is left out where a model thinks: the API refuses both.
//
// What a model thought is a part with [llm.Reasoning]. Its signature is beside
// it as [llm.Opaque], in which also redacted thinking stands, and blocks that
// this package does not know. All of it goes back as it came. Reasoning of other
// providers is left out.
//
// # Errors
//
// Every failure is an [*llm.Error], except that of a context that ended, which
// matches context.Canceled or context.DeadlineExceeded. The SDK's own retries
// are off. A reply counts only when its last event has come: one that is cut off
// is [llm.ErrInterrupted], wherever the cut is.
package anthropic
