package answers

import (
	"net/http"
	"sync"
)

// maxIdle is how many connections are kept for the next requests: one for each run
// that a worker executes at a time by default.
const maxIdle = 1000

// Client returns the client of the models that were given none: a copy of
// [http.DefaultClient] that keeps more connections. That one keeps two to a server,
// so with HTTP/1 most requests of many agents would begin with a new connection and
// its TLS handshake.
func Client() *http.Client {
	c := *http.DefaultClient
	if c.Transport == nil {
		c.Transport = transport()
	}
	return &c
}

var transport = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has one of its own
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = maxIdle, maxIdle
	return t
})
