// Package llmtest tests models: it records the traffic of a real one and plays
// it back, and it holds any model to what package llm promises.
//
// # Record and replay
//
// [Client] returns an *http.Client for a provider's package. It answers from a
// file, without a network:
//
//	client := llmtest.Client(t, "testdata/weather.json", llmtest.Options{})
//
// With the variable PERDURE_LLMTEST=record in the environment it asks the real
// service and writes the file:
//
//	PERDURE_LLMTEST=record OPENAI_API_KEY=… go test -run TestWeather ./…
//
// A failing test does not write, so an existing file is kept. The file is JSON
// that can be read and reviewed. It has the pieces of a streamed reply as they
// arrived, recorded while they are passed on.
//
// A request is answered by the first recorded one that has the same method, path,
// query and body and has not been played yet; JSON bodies may differ in the order
// of keys and in white space. Each is played once: a model that repeats a request
// gets an error. If no recorded request matches, the error shows the difference
// to the nearest one.
//
// # Secrets
//
// Only a few headers that matter for a reply are written, and none that could hold
// a key, a cookie or the name of an organisation. The values of those that do
// (Authorization, X-Api-Key, X-Goog-Api-Key, Api-Key, Cookie, Openai-Organization,
// Openai-Project, Set-Cookie and the query's key) are removed wherever else they
// appear: in the path and in bodies, even across two pieces, plain, escaped or in
// base64. So are [Options.Secrets], and anything that looks like a known
// provider's key or organisation. Hosts are not written. Otherwise bodies are
// written unchanged: review what you commit.
//
// # Conformance
//
// [Run] checks the rules that every model must follow.
package llmtest
