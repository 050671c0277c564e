package anthropic

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
)

// provider is the name of this package in errors and opaque data.
const provider = "anthropic"

// Client is a model of Anthropic. It is safe for use by several goroutines.
type Client struct {
	name    string
	http    *http.Client
	noCache bool
	// Functions, so that printing the struct shows no secret.
	key, base func() string
}

var _ llm.Model = (*Client)(nil)

// Option changes how a [Client] reaches its model.
type Option func(*Client)

// Key is used instead of the environment variable ANTHROPIC_API_KEY.
func Key(key string) Option { return func(c *Client) { c.key = func() string { return key } } }

// BaseURL is where the API is, without the /v1. The default is Anthropic's.
func BaseURL(url string) Option { return func(c *Client) { c.base = func() string { return url } } }

// HTTPClient makes the requests. The default is a copy of http.DefaultClient that
// keeps more idle connections.
func HTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// NoCache leaves out the marks that let Anthropic cache the prompt for the next
// request. Without it, the tools, the system prompt and the messages are marked,
// which makes long conversations cheaper and single requests slightly more
// expensive.
func NoCache() Option { return func(c *Client) { c.noCache = true } }

// Model returns the model with a name, such as "claude-sonnet-4-5". It never
// fails: a wrong name or a missing key is an error of Generate.
func Model(name string, opts ...Option) *Client {
	c := &Client{name: name, key: func() string { return os.Getenv("ANTHROPIC_API_KEY") }, base: func() string { return "" }}
	for _, o := range opts {
		o(c)
	}
	return c
}

// String returns the name of the model.
func (c Client) String() string { return provider + ":" + c.name }

// GoString is String, so that %#v shows nothing else.
func (c Client) GoString() string { return c.String() }

// Generate asks the model. It makes one request.
func (c *Client) Generate(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
	return answers.Deltas(ctx, provider, func(emit func(llm.Delta) error) error {
		key := c.key()
		return problem(c.generate(ctx, key, r, emit), key)
	})
}

func (c *Client) generate(ctx context.Context, key string, r *llm.Request, emit func(llm.Delta) error) error {
	if key == "" {
		return &llm.Error{Kind: llm.ErrAuth, Provider: provider, Message: "no key: set ANTHROPIC_API_KEY, or use the option Key"}
	}
	if _, err := url.Parse(c.base()); err != nil {
		return err
	}
	params, err := c.params(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := c.sdk(key).Messages.NewStreaming(ctx, params)
	defer stream.Close()
	t := turn{emit: emit}
	for stream.Next() {
		if err := t.event(stream.Current()); err != nil || t.done {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return interrupted("the reply ended in the middle")
}

// sdk returns a client of the SDK that takes nothing from the environment and
// does not retry.
func (c *Client) sdk(key string) *sdk.Client {
	opts := []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithoutOpenTelemetry(),
		option.WithHTTPClient(answers.Stay(cmp.Or(c.http, answers.Client()))),
		option.WithMaxRetries(0),
		option.WithAPIKey(key),
		option.WithMiddleware(noPage),
	}
	if base := c.base(); base != "" {
		opts = append(opts, option.WithBaseURL(base))
	}
	s := sdk.NewClient(opts...)
	return &s
}

// noPage rejects the page of a proxy, which the SDK would read as a stream without
// events.
func noPage(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(r)
	if err != nil || res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		return res, err
	}
	page, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	res.Body.Close()
	return nil, interrupted("expected a stream, but the server sent %q", answers.Short(string(page)))
}

// interrupted is the error of a reply that makes no sense.
func interrupted(format string, args ...any) error {
	return &llm.Error{Kind: llm.ErrInterrupted, Provider: provider, Message: fmt.Sprintf(format, args...)}
}

// invalid is the error of a request that cannot be sent.
func invalid(format string, args ...any) error {
	return &llm.Error{Kind: llm.ErrInvalid, Provider: provider, Message: fmt.Sprintf(format, args...)}
}
