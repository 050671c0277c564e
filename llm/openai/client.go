package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
)

const (
	provider = "openai"
	openAI   = "https://api.openai.com/v1"
)

// Client is a model of a server. Make one with [Model].
type Client struct {
	name string
	http *http.Client

	// Functions, so that printing a Client shows neither a key nor the password
	// in a URL.
	key        func() string
	base       func() string
	compatible func(host string) bool
}

var _ llm.Model = (*Client)(nil)

// Option changes how a [Client] reaches its server.
type Option func(*Client)

// Key sets the key. Without it the environment variable OPENAI_API_KEY is read
// for each request; Key("") sends none, whatever the environment says.
func Key(key string) Option {
	return func(c *Client) { c.key = func() string { return strings.TrimSpace(key) } }
}

// BaseURL sets the URL of the server, including the version:
// "http://localhost:11434/v1". Without it the environment variable
// OPENAI_BASE_URL is read for each request; if that is empty too, OpenAI is used.
func BaseURL(url string) Option {
	return func(c *Client) { c.base = func() string { return url } }
}

// HTTPClient sets the client that makes the requests. The default is a copy of
// [http.DefaultClient] that keeps more idle connections. A timeout of the client
// limits the whole reply.
func HTTPClient(client *http.Client) Option {
	return func(c *Client) { c.http = client }
}

// Compatible says whether the server is merely compatible: it may lack features of
// OpenAI and have others. By default every server but OpenAI's and Azure's counts as
// compatible. Compatible(false) is for a proxy in front of OpenAI.
//
// A compatible server is sent max_tokens instead of max_completion_tokens, needs
// no key, gets its reasoning back, and may end a stream without saying so.
func Compatible(yes bool) Option {
	return func(c *Client) { c.compatible = func(string) bool { return yes } }
}

// foreign reports whether a host is not OpenAI's own.
func foreign(host string) bool {
	host = "." + strings.ToLower(host)
	return !strings.HasSuffix(host, ".openai.com") && !strings.HasSuffix(host, ".openai.azure.com")
}

// Model returns the model with a name: "gpt-5", or whatever the server calls it.
// It never fails, so that a package-level variable can hold it: each request reports
// wrong options and a wrong environment.
func Model(name string, opts ...Option) *Client {
	c := &Client{name: name, compatible: foreign,
		key:  func() string { return strings.TrimSpace(os.Getenv("OPENAI_API_KEY")) },
		base: func() string { return os.Getenv("OPENAI_BASE_URL") }}
	for _, o := range opts {
		o(c)
	}
	return c
}

// String returns the name of the model.
func (c Client) String() string { return "openai:" + c.name }

// GoString returns the name of the model, without the key.
func (c Client) GoString() string { return fmt.Sprintf("openai.Model(%q)", c.name) }

// MarshalJSON returns the name of the model, without the key.
func (c Client) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// LogValue returns the name of the model, without the key.
func (c Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Generate asks the model. It makes one request and streams the reply.
func (c *Client) Generate(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
	return answers.Deltas(ctx, provider, func(emit func(llm.Delta) error) error { return c.generate(ctx, r, emit) })
}

func (c *Client) generate(ctx context.Context, r *llm.Request, emit func(llm.Delta) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.server()
	if err != nil {
		return err
	}
	body, err := s.body(c.name, r)
	if err != nil {
		return err
	}
	res, err := s.post(ctx, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := s.read(res, emit); err != nil {
		return err
	}
	// The connection can be used again only once the response has ended, for which
	// few servers let one wait.
	defer time.AfterFunc(endTime, cancel).Stop()
	_, _ = io.CopyN(io.Discard, res.Body, maxBody)
	return nil
}

// endTime is how long to wait for the end of a response whose reply is complete.
const endTime = 50 * time.Millisecond

// server is what one request knows about its server.
type server struct {
	url        string
	query      url.Values // of the base URL
	key        string
	http       *http.Client
	compatible bool
	secrets    []string // that no error may quote
}

// server returns the server that the options and the environment name.
func (c *Client) server() (*server, error) {
	s := &server{url: cmp.Or(c.base(), openAI), key: c.key(), http: cmp.Or(c.http, answers.Client())}
	u, err := url.Parse(s.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, invalid("the base URL is not valid: it has to look like https://host/v1")
	}
	s.compatible = c.compatible(u.Hostname())
	if s.key == "" && !s.compatible {
		return nil, &llm.Error{Kind: llm.ErrAuth, Provider: provider, Message: "there is no key: set OPENAI_API_KEY, or use openai.Key"}
	}
	s.secrets = []string{s.key}
	if password, ok := u.User.Password(); ok {
		s.secrets = append(s.secrets, password, url.QueryEscape(password))
	}
	s.query = u.Query()
	for _, values := range s.query {
		s.secrets = append(s.secrets, values...)
	}
	return s, nil
}

// post sends a request. Responses other than 200 are errors.
func (s *server) post(ctx context.Context, body []byte) (*http.Response, error) {
	// Not sdk.NewClient, which also reads keys, headers and projects from the
	// environment.
	client := sdk.Client{Options: []option.RequestOption{
		option.WithBaseURL(s.url),
		option.WithHTTPClient(s.http),
		option.WithMaxRetries(0),
		option.WithHeader("Accept", "text/event-stream"),
	}}
	if s.key != "" {
		client.Options = append(client.Options, option.WithAPIKey(s.key))
	}
	for name, values := range s.query {
		for _, v := range values {
			client.Options = append(client.Options, option.WithQueryAdd(name, v))
		}
	}
	var res *http.Response
	if err := client.Post(ctx, "chat/completions", body, &res); err != nil {
		if res != nil && res.StatusCode >= 400 {
			return nil, s.refusal(res)
		}
		return nil, s.interrupted(err)
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, s.refusal(res)
	}
	return res, nil
}
