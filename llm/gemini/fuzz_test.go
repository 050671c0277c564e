package gemini

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
)

// transport answers without a network, which is faster.
type transport string

func (b transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {"text/event-stream"}}
	return &http.Response{StatusCode: 200, Status: "200 OK", Header: h, Body: io.NopCloser(strings.NewReader(string(b))), Request: r}, nil
}

// FuzzStream holds that whatever a server sends ends in a reply that can be
// sent back, or in an error of package llm.
func FuzzStream(f *testing.F) {
	f.Add(textStream)
	f.Add(callStream)
	f.Add(sent(apiError(503, "UNAVAILABLE", "x", retryInfo)))
	f.Add(apiError(503, "UNAVAILABLE", "x", ""))
	f.Add("event: error\ndata: {\n\n")
	f.Add(strings.ReplaceAll(callStream, "\r\n", "\n"))
	f.Fuzz(func(t *testing.T, stream string) {
		m := Model("gemini-2.5-flash", Key(testKey), HTTPClient(&http.Client{Transport: transport(stream)}))
		reply, err := llm.Collect(m.Generate(t.Context(), hello()))
		if err != nil {
			if _, ok := errors.AsType[*llm.Error](err); !ok {
				t.Fatalf("no error of llm: %v", err)
			}
			return
		}
		r := hello()
		r.Messages = append(r.Messages, reply.Message, llm.User("And?"))
		if _, _, err := m.config(r); err != nil {
			t.Fatalf("the reply cannot be sent back: %v", err)
		}
	})
}
