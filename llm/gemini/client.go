package gemini

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"os"
	"sync"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
	"google.golang.org/genai"
)

// provider is the name of this package in errors and opaque data.
const provider = "gemini"

const defaultURL = "https://generativelanguage.googleapis.com/"

// Client is a model of Google. It is safe for use by several goroutines.
type Client struct {
	name string
	http *http.Client
	// Functions, so that printing the struct shows no secret.
	key, base func() string
	sdk       func(key string) (*genai.Client, error)
}

var _ llm.Model = (*Client)(nil)

// Option changes how a [Client] reaches its model.
type Option func(*Client)

// Key is used instead of the environment variables GOOGLE_API_KEY and
// GEMINI_API_KEY.
func Key(key string) Option { return func(c *Client) { c.key = func() string { return key } } }

// BaseURL is where the API is, without the /v1beta. The default is Google's.
func BaseURL(url string) Option { return func(c *Client) { c.base = func() string { return url } } }

// HTTPClient makes the requests. The default is a copy of http.DefaultClient that
// keeps more idle connections.
func HTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// Model returns the model with a name, such as "gemini-2.5-flash". It never
// fails: a wrong name or a missing key is an error of Generate.
func Model(name string, opts ...Option) *Client {
	c := &Client{
		name: name,
		key:  func() string { return cmp.Or(os.Getenv("GOOGLE_API_KEY"), os.Getenv("GEMINI_API_KEY")) },
		base: func() string { return defaultURL },
	}
	for _, o := range opts {
		o(c)
	}
	c.http = cmp.Or(c.http, answers.Client())
	c.sdk = connect(c.http, cmp.Or(c.base(), defaultURL))
	return c
}

// String returns the name of the model.
func (c Client) String() string { return provider + ":" + c.name }

// GoString is String, so that %#v shows nothing else.
func (c Client) GoString() string { return c.String() }

// connect returns a function that returns a client of the SDK, a new one only for
// a new key: the SDK logs what it finds in the environment each time.
func connect(h *http.Client, base string) func(string) (*genai.Client, error) {
	wrapped := answers.Stay(h)
	wrapped.Transport = diverted{cmp.Or[http.RoundTripper](h.Transport, http.DefaultTransport)}
	var mu sync.Mutex
	var client *genai.Client
	var last string
	return func(key string) (*genai.Client, error) {
		mu.Lock()
		defer mu.Unlock()
		if client != nil && key == last {
			return client, nil
		}
		// Everything that the SDK would otherwise take from the environment.
		c, err := genai.NewClient(context.Background(), &genai.ClientConfig{
			APIKey:      key,
			Backend:     genai.BackendGeminiAPI,
			HTTPClient:  wrapped,
			HTTPOptions: genai.HTTPOptions{BaseURL: base, APIVersion: "v1beta"},
		})
		if err == nil {
			client, last = c, key
		}
		return c, err
	}
}

// Generate asks the model. It makes one request.
func (c *Client) Generate(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
	return answers.Deltas(ctx, provider, func(emit func(llm.Delta) error) error {
		var got answer
		key := c.key()
		return problem(c.generate(context.WithValue(ctx, answerKey{}, &got), key, r, &got, emit), &got, key)
	})
}

func (c *Client) generate(ctx context.Context, key string, r *llm.Request, got *answer, emit func(llm.Delta) error) error {
	if key == "" {
		return &llm.Error{Kind: llm.ErrAuth, Provider: provider, Message: "no key: set GEMINI_API_KEY, or use the option Key"}
	}
	config, ids, err := c.config(r)
	if err != nil {
		return err
	}
	client, err := c.sdk(key)
	if err != nil {
		return invalid("%v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, err := range client.Models.GenerateContentStream(ctx, c.name, nil, config) {
		if err != nil {
			return err
		}
		return (&turn{ids: ids, emit: emit}).read(got.stream)
	}
	return interrupted("the SDK did not answer")
}

// interrupted is the error of a reply that makes no sense.
func interrupted(format string, args ...any) error {
	return &llm.Error{Kind: llm.ErrInterrupted, Provider: provider, Message: fmt.Sprintf(format, args...)}
}

// invalid is the error of a request that cannot be sent.
func invalid(format string, args ...any) error {
	return &llm.Error{Kind: llm.ErrInvalid, Provider: provider, Message: fmt.Sprintf(format, args...)}
}
