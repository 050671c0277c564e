package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
)

const provider = "openai"

// Client is a model of a server. Its zero value is of no use; see [Model].
type Client struct {
	name string
	http *http.Client

	// Functions, so that nothing that prints a Client can print a key or the
	// password in a URL.
	key        func() string
	base       func() string
	compatible func(host string) bool
}

var _ llm.Model = (*Client)(nil)

// Model returns the model of this name: "gpt-5", or as the server calls it. It
// does not fail, so that it may stand in a package's variable; what is wrong
// with the options or the environment is an error of each request.
func Model(name string, opts ...Option) *Client {
	c := &Client{name: name, key: envKey, base: envBase, compatible: foreign}
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
	return s.read(res, emit)
}

// server is what one request knows about its server.
type server struct {
	url        string
	query      url.Values // of the base URL
	key        string
	http       *http.Client
	compatible bool
	secrets    []string // that no error may quote
}

// server looks at the options and the environment.
func (c *Client) server() (*server, error) {
	s := &server{url: c.base(), key: c.key(), http: c.http}
	if s.url == "" {
		s.url = openAI
	}
	if s.http == nil {
		s.http = http.DefaultClient
	}
	u, err := url.Parse(s.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, invalid("the base URL is none: it has to look like https://host/v1")
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

// post sends a request. A response is one of success.
func (s *server) post(ctx context.Context, body []byte) (*http.Response, error) {
	// A client of its own options, not one of sdk.NewClient: that one also
	// reads keys, headers and projects from the environment.
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
