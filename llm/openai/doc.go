// Package openai is OpenAI, and every server that speaks its chat completions,
// as an [llm.Model]: Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and others.
//
//	var model = openai.Model("gpt-5")
//
//	reply, err := llm.Collect(model.Generate(ctx, &llm.Request{
//		Messages: []llm.Message{llm.User("Name a river.")},
//	}))
//
// # Servers and keys
//
// The key is that of [Key], else of the environment variable OPENAI_API_KEY.
// The server is that of [BaseURL], else of OPENAI_BASE_URL, else OpenAI. Both
// variables are read for each request; no others are. A server that is not
// OpenAI's needs no key:
//
//	local := openai.Model("qwen3", openai.BaseURL("http://localhost:11434/v1"))
//
// It does get the key of the environment, though, if there is one; Key("")
// keeps that at home. No key appears in errors or in a Client that is printed.
//
// # What a conversation becomes
//
// Tool calls keep their arguments exactly as the model wrote them. A result
// that is an error begins with "Error: ", as the protocol has no mark for it.
// Media in a result follow in a message of the user, the only place where the
// protocol takes them. Images are sent as they are or by their URL, text files
// as text, others as files. Media that are only named by a blob have to be
// loaded before, as package agent does.
//
// An [llm.Output] is a JSON Schema that OpenAI holds the model to, if it is one
// that it can: each object requires all its properties and allows no others.
// With any other schema the model is told of it, and what it writes needs a
// check.
//
// OpenAI does not show reasoning in this protocol, but other servers do, and
// some want it back. It is a part of the reply, and what is needed to send it
// back stands beside it as [llm.Opaque].
//
// # Errors
//
// Each error of the server or of the way to it is an [*llm.Error]. The client
// does not try again by itself: [llm.Temporary] says whether to. A stream that
// is cut off is never taken for a reply: the server has to say why it stopped,
// and OpenAI also has to count the tokens or to say that it is done. When the
// context ends, the error is the context's.
package openai
