// Package llmtest tests models: it records the traffic of a real one and plays
// it back, and it holds any model to what package llm promises.
//
// # Record and replay
//
// [Client] is an *http.Client for a package of a provider. It answers from a
// file, without a network:
//
//	client := llmtest.Client(t, "testdata/weather.json", llmtest.Options{})
//
// With the variable PERDURE_LLMTEST=record in the environment it asks the real
// service and writes the file:
//
//	PERDURE_LLMTEST=record OPENAI_API_KEY=… go test -run TestWeather ./…
//
// A test that fails does not write, so that the file that was there stays. The
// file is JSON to be read and reviewed. It has the pieces of a streamed reply
// as they came, and is recorded while they are passed on.
//
// A request is answered by the first recorded one that has the same method,
// path, query and body, and was not played yet; bodies in JSON may differ in
// the order of keys and in space. Each is played once: a model that asks twice
// is told so. If there is none, the error has the difference to the nearest.
//
// # Secrets
//
// Of headers only a few that matter for a reply are written, and none that
// could hold a key, a cookie or the name of an organisation. The values of
// those that do (Authorization, X-Api-Key, X-Goog-Api-Key, Api-Key, Cookie,
// Openai-Organization, Openai-Project, Set-Cookie and the query's key) are
// taken out wherever else they stand: in the path, in bodies, also over the
// edge of two pieces, as they are or escaped or in base64. So are
// [Options.Secrets], and what looks like a key or an organisation of a known
// provider. Hosts are not written. Bodies are else written as they are: look at
// what you commit.
//
// # Conformance
//
// [Run] checks what every model must hold, whatever it says.
package llmtest
