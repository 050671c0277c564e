// Package aimock runs a server that speaks the protocols of OpenAI, Anthropic
// and Gemini, for tests of the packages that talk to them over real HTTP.
//
// The server is the npm package @copilotkit/aimock. It is not written by who
// writes the clients, so that a protocol that was misread on one side does not
// agree with itself on the other.
//
//	func TestHello(t *testing.T) {
//		s := aimock.Start(t, aimock.Fixture{
//			Match:    aimock.Match{UserMessage: "hello"},
//			Response: aimock.Response{Content: "Hello there"},
//		})
//		model := openai.Model("m", openai.BaseURL(s.URL+"/v1"))
//		…
//	}
//
// The server answers each request with the first fixture that matches, in the
// protocol of its path: /v1/chat/completions, /v1/messages,
// /v1beta/models/{model}:streamGenerateContent. A request that no fixture
// matches gets status 503 and the code no_fixture_match.
//
// It needs Node.js 20.15 and npm. Without them a test says what is missing and is
// skipped; where the environment has CI=true it fails. The package is installed
// once per user into the cache folder, from the lock file that is part of this
// package, without running its scripts.
package aimock
