package openai

import (
	"net/http"
	"os"
	"strings"
)

const openAI = "https://api.openai.com/v1"

// Option changes how a [Client] reaches its server.
type Option func(*Client)

// Key sets the key. Without it the environment variable OPENAI_API_KEY is read
// for each request; Key("") sends none, whatever the environment says.
func Key(key string) Option {
	return func(c *Client) { c.key = func() string { return strings.TrimSpace(key) } }
}

// BaseURL sets the server, up to and with its version:
// "http://localhost:11434/v1". Without it the environment variable
// OPENAI_BASE_URL is read for each request; without that either, it is OpenAI.
func BaseURL(url string) Option {
	return func(c *Client) { c.base = func() string { return url } }
}

// HTTPClient sets the client that makes the requests. Without it, it is
// [http.DefaultClient]. A timeout of the client counts for a whole reply.
func HTTPClient(client *http.Client) Option {
	return func(c *Client) { c.http = client }
}

// Compatible says whether the server is a compatible one that may lack what
// OpenAI has and have what OpenAI lacks. Without it, every server but OpenAI's
// and Azure's is. Compatible(false) is for a proxy in front of OpenAI.
//
// A compatible server is told max_tokens instead of max_completion_tokens,
// needs no key, gets its reasoning back, and may end a stream without saying
// so.
func Compatible(yes bool) Option {
	return func(c *Client) { c.compatible = func(string) bool { return yes } }
}

func envKey() string { return strings.TrimSpace(os.Getenv("OPENAI_API_KEY")) }

func envBase() string { return os.Getenv("OPENAI_BASE_URL") }

// foreign reports whether a host is not OpenAI's own.
func foreign(host string) bool {
	host = strings.ToLower(host)
	for _, own := range []string{"openai.com", "openai.azure.com"} {
		if host == own || strings.HasSuffix(host, "."+own) {
			return false
		}
	}
	return true
}
