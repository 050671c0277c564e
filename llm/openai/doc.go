// Package openai is an [llm.Model] for OpenAI's chat completions, and for every server
// that speaks that protocol: Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and others.
//
//	var model = openai.Model("gpt-5")
//
//	reply, err := llm.Collect(model.Generate(ctx, &llm.Request{
//		Messages: []llm.Message{llm.User("Name a river.")},
//	}))
//
// # Servers and keys
//
// The key comes from [Key], or else from the environment variable OPENAI_API_KEY.
// The server comes from [BaseURL], or else from OPENAI_BASE_URL; the default is
// OpenAI. Both variables are read for each request; no others are. A server that
// is not OpenAI's needs no key:
//
//	local := openai.Model("qwen3", openai.BaseURL("http://localhost:11434/v1"))
//
// If the environment has a key, however, that server is sent it; Key("") prevents that.
// No key appears in errors or in a printed Client.
//
// # How a conversation is sent
//
// Tool calls keep their arguments exactly as the model wrote them. A result
// that is an error begins with "Error: ", since the protocol has no flag for it.
// Media in a result follow in a user message, the only place where the protocol
// allows them. Images are sent as bytes or as a URL, text files as text, others
// as files. Media that are only named by a blob must be loaded beforehand, as
// package agent does.
//
// OpenAI enforces the JSON Schema of an [llm.Output] if each object in it requires
// all its properties and allows no others. With any other schema the model is only
// told about it, and its output has to be checked.
//
// OpenAI does not show reasoning in this protocol, but other servers do, and some
// want it back. It is a part of the reply, with whatever is needed to send it back
// as its [llm.Opaque].
//
// # Errors
//
// Each error of the server or the connection is an [*llm.Error]. The client does
// not retry: [llm.Temporary] says whether a retry makes sense. A stream that is
// cut off never counts as a reply: the server has to say why it stopped, and
// OpenAI also has to count the tokens or say that it is done. When the context
// ends, the error is the context's.
package openai
