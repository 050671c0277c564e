package llmtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/anthropic"
	"github.com/perdure/perdure/llm/gemini"
	"github.com/perdure/perdure/llm/llmtest"
	"github.com/perdure/perdure/llm/openai"
)

const providerKey, providerModel = "sk-canary-0123456789abcdef", "model-1"

// provider is what the tests of all clients need to know about one.
type provider struct {
	name    string
	model   func(name, url string) llm.Model // with the key
	path    string                           // that its server puts before its own
	begin   string                           // of a stream, in which "Hel" is said
	end     string                           // of one with two calls, behind begin
	spare   int                              // bytes at the end that a whole reply may lack
	refusal func(code, message string) string
	event   string // format of an event
}

var providers = []provider{
	{
		name: "anthropic",
		model: func(name, url string) llm.Model {
			return anthropic.Model(name, anthropic.Key(providerKey), anthropic.BaseURL(url))
		},
		begin: anthropicEvent("message_start", `"message":{"model":"m","id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":12,"output_tokens":1}}`) +
			anthropicEvent("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`) +
			anthropicEvent("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":"Hel"}`),
		end: anthropicEvent("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":"lo \ud83d\ude00é"}`) +
			anthropicEvent("content_block_stop", `"index":0`) +
			anthropicEvent("content_block_start", `"index":1,"content_block":{"type":"tool_use","id":"a","name":"add","input":{}}`) +
			anthropicEvent("content_block_delta", `"index":1,"delta":{"type":"input_json_delta","partial_json":"{\"x\":1}"}`) +
			anthropicEvent("content_block_stop", `"index":1`) +
			anthropicEvent("content_block_start", `"index":2,"content_block":{"type":"tool_use","id":"b","name":"sub","input":{}}`) +
			anthropicEvent("content_block_stop", `"index":2`) +
			anthropicEvent("message_delta", `"delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}`) +
			anthropicEvent("message_stop", `"x":0`),
		spare: 1,
		refusal: func(code, message string) string {
			return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, code, message)
		},
		event: "event: error\ndata: %s\n\n",
	},
	{
		name: "gemini",
		model: func(name, url string) llm.Model {
			return gemini.Model(name, gemini.Key(providerKey), gemini.BaseURL(url))
		},
		begin: "data: " + `{"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"}}],"modelVersion":"m","responseId":"r"}` + "\r\n\r\n",
		end: "data: " + `{"candidates":[{"content":{"parts":[{"text":"lo \ud83d\ude00é"},{"functionCall":{"id":"a","name":"add","args":{"x":1}}}],"role":"model"}}]}` + "\r\n\r\n" +
			"data: " + `{"candidates":[{"content":{"parts":[{"functionCall":{"id":"b","name":"sub"}}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":15,"totalTokenCount":27}}` + "\r\n\r\n",
		spare: 4,
		refusal: func(code, message string) string {
			return fmt.Sprintf(`{"error":{"code":400,"message":%q,"status":%q,"details":[]}}`, message, code)
		},
		event: "data: %s\n\n",
	},
	{
		name: "openai",
		path: "/v1",
		model: func(name, url string) llm.Model {
			return openai.Model(name, openai.Key(providerKey), openai.BaseURL(url), openai.Compatible(false))
		},
		begin: openAIChunk(`{"role":"assistant","content":""}`, "") + openAIChunk(`{"content":"Hel"}`, ""),
		end: openAIChunk(`{"reasoning":"Hm","reasoning_details":[{"type":"reasoning.text","text":"Hm","index":0}]}`, "") + openAIChunk(`{"content":"lo \ud83d\ude00é"}`, "") +
			openAIChunk(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"add","arguments":""}}]}`, "") +
			openAIChunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":1}"}}]}`, "") +
			openAIChunk(`{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"sub","arguments":"{}"}}]}`, "") +
			openAIChunk(`{}`, `,"finish_reason":"tool_calls"`) +
			`data: {"id":"c","model":"m","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":15,"total_tokens":27}}` + "\n\ndata: [DONE]\n\n",
		spare: len("data: [DONE]\n\n"),
		refusal: func(code, message string) string {
			return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"code":%q}}`, message, code, code)
		},
		event: "data: %s\n\n",
	},
}

func anthropicEvent(name, rest string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q,%s}\n\n", name, name, rest)
}

func openAIChunk(delta, more string) string {
	return `data: {"id":"c","model":"m","choices":[{"index":0,"delta":` + delta + more + `}]}` + "\n\n"
}

var hello = &llm.Request{Messages: []llm.Message{llm.User("Hello")}}

// serve starts a server and returns a model that asks it.
func (p provider) serve(t *testing.T, answer http.HandlerFunc) llm.Model {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return p.model(providerModel, s.URL+p.path)
}

// stream answers with a stream.
func stream(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
}

// refuse answers with an error.
func refuse(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// forProviders runs a test for each of the clients.
func forProviders(t *testing.T, test func(t *testing.T, p provider)) {
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) { test(t, p) })
	}
}

func TestProvidersHoldWhatEveryModelMust(t *testing.T) {
	forProviders(t, func(t *testing.T, p provider) {
		llmtest.Run(t, func(t *testing.T) llm.Model { return p.serve(t, stream(p.begin+p.end)) })
	})
}

// TestAStreamCutAtAnyByteIsNoReply cuts the stream in the three ways in which a
// connection ends early: in a body of a known length, in chunks, and where the
// end of the connection is the end of the body, which looks like a proper end.
// Nothing is logged about it.
func TestAStreamCutAtAnyByteIsNoReply(t *testing.T) {
	var logged bytes.Buffer
	before := log.Writer()
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(before) })
	abort := func(w http.ResponseWriter, part string) {
		_, _ = io.WriteString(w, part)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	forProviders(t, func(t *testing.T, p provider) {
		all, n := p.begin+p.end, 0
		whole, err := llm.Collect(p.serve(t, stream(all)).Generate(t.Context(), hello))
		if err != nil || len(whole.Message.Calls()) != 2 || whole.Message.Text() != "Hello 😀é" {
			t.Fatalf("the whole stream: %+v, %v", whole, err)
		}
		for name, cut := range map[string]func(w http.ResponseWriter, part string){
			"length": func(w http.ResponseWriter, part string) {
				w.Header().Set("Content-Length", fmt.Sprint(len(all)))
				abort(w, part)
			},
			"chunks": abort,
			"close": func(w http.ResponseWriter, part string) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"+part)
			},
		} {
			m := p.serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				cut(w, all[:n])
			})
			replies := 0
			for n = range len(all) + 1 {
				if testing.Short() && n%7 != 0 && n < len(all)-7 {
					continue
				}
				got, err := llm.Collect(m.Generate(t.Context(), hello))
				_, typed := errors.AsType[*llm.Error](err)
				switch {
				case err != nil && (!typed || !llm.Temporary(err)):
					t.Fatalf("%s: cut at byte %d of %d: %v is not temporary", name, n, len(all), err)
				case err == nil && !cmp.Equal(got, whole):
					t.Fatalf("%s: cut at byte %d of %d, it is another reply:\n%s", name, n, len(all), cmp.Diff(whole, got))
				case err == nil:
					replies++
				}
			}
			if replies > p.spare+1 || name == "close" && replies == 0 {
				t.Errorf("%s: %d cuts gave the whole reply", name, replies)
			}
		}
	})
	if logged.Len() > 0 {
		t.Errorf("logged: %.500s", logged.Bytes())
	}
}

// TestLeavingAReplyCancelsTheRequest leaves in both ways: by a break, and by
// the end of the context.
func TestLeavingAReplyCancelsTheRequest(t *testing.T) {
	forProviders(t, func(t *testing.T, p provider) {
		ended := make(chan struct{}, 1)
		m := p.serve(t, func(w http.ResponseWriter, r *http.Request) {
			stream(p.begin)(w, r)
			<-r.Context().Done() // the end of the request on the server's side
			ended <- struct{}{}
		})
		for d := range m.Generate(t.Context(), hello) {
			if d.Text != "" {
				break
			}
		}
		<-ended
		ctx, cancel := context.WithCancel(t.Context())
		var last error
		for d, err := range m.Generate(ctx, hello) {
			last = err
			if d.Text != "" {
				cancel()
			}
		}
		cancel()
		if !errors.Is(last, context.Canceled) || llm.Temporary(last) {
			t.Errorf("after a cancel: %v", last)
		}
		<-ended
	})
}

// TestPiecesComeAtOnce: the server sends the rest only when the first piece was
// seen.
func TestPiecesComeAtOnce(t *testing.T) {
	forProviders(t, func(t *testing.T, p provider) {
		seen := make(chan struct{})
		m := p.serve(t, func(w http.ResponseWriter, r *http.Request) {
			stream(p.begin)(w, r)
			select {
			case <-seen:
			case <-r.Context().Done():
			}
			stream(p.end)(w, r)
		})
		var pieces []string
		for d, err := range m.Generate(t.Context(), hello) {
			if err != nil {
				t.Fatal(err)
			}
			if d.Text != "" {
				pieces = append(pieces, d.Text)
			}
			if d.Text == "Hel" {
				close(seen)
			}
		}
		if diff := cmp.Diff([]string{"Hel", "lo 😀é"}, pieces); diff != "" {
			t.Error(diff)
		}
	})
}

// TestSameRequestIsTheSameBytes: a prompt cache finds only what begins with the
// same bytes. They are UTF-8 whatever the request holds, and hold nothing that
// another provider wants back.
func TestSameRequestIsTheSameBytes(t *testing.T) {
	forProviders(t, func(t *testing.T, p provider) {
		var sent []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent = append(sent, strings.ReplaceAll(string(body), `\ufffd`, "\uFFFD"))
			stream(p.begin+p.end)(w, r)
		}))
		defer s.Close()
		ask := func(r *llm.Request) *llm.Reply {
			t.Helper()
			reply, err := llm.Collect(p.model(providerModel, s.URL+p.path).Generate(t.Context(), r))
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		other := &llm.Opaque{Provider: "another", Data: "theirs"}
		r := &llm.Request{System: "s", Output: &llm.Output{Name: "o", Schema: json.RawMessage(`{"z":1,"type":"object","b":{"y":1,"x":2},"a":2,"c":3}`)}, Tools: []llm.Tool{{Name: "add", Schema: json.RawMessage(`{"type":"object","b":1,"a":2}`)}, {Name: "sub"}}, Messages: []llm.Message{
			llm.User("a\xff"),
			{Role: llm.RoleAssistant, Parts: []llm.Part{
				{Reasoning: &llm.Reasoning{Text: "musing"}, Opaque: other}, {Opaque: other}, {Reasoning: &llm.Reasoning{Text: "musing"}}, {Text: "x", Opaque: other},
				{Call: &llm.Call{ID: "1", Name: "add", Args: "{\"x\":\"b\xff\"}"}},
			}},
			{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: "1", Name: "add", Text: "c\xff"}}}},
		}}
		reply := ask(r)
		results := llm.Message{Role: llm.RoleTool}
		for _, c := range reply.Message.Calls() {
			results.Parts = append(results.Parts, llm.Part{Result: &llm.Result{Call: c.ID, Name: c.Name, Text: "3"}})
		}
		r.Messages = append(r.Messages, reply.Message, results)
		sent = nil
		for range 10 {
			ask(r)
		}
		for _, body := range sent {
			if body != sent[0] || !utf8.ValidString(body) {
				t.Fatalf("the same request is\n%s\nand\n%s", sent[0], body)
			}
		}
		for _, want := range []string{"a\uFFFD", "b\uFFFD", "c\uFFFD"} {
			if !strings.Contains(sent[0], want) {
				t.Errorf("%q is not in %s", want, sent[0])
			}
		}
		if strings.Contains(sent[0], "theirs") || p.name != "openai" && strings.Contains(sent[0], "musing") {
			t.Errorf("it sends what another provider wants back: %s", sent[0])
		}
	})
}

// TestProvidersAgreeOnErrors: which error it is does not depend on whose client
// it is, and none is longer than a person reads.
func TestProvidersAgreeOnErrors(t *testing.T) {
	forProviders(t, func(t *testing.T, p provider) {
		for name, tt := range map[string]struct {
			answer http.HandlerFunc
			kind   error
			says   string
			after  time.Duration
		}{
			"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://127.0.0.2:1/v1", http.StatusTemporaryRedirect)
			}, llm.ErrInvalid, "", 0},
			"a huge error": {refuse(400, p.refusal("invalid_request_error", "bad "+strings.Repeat("x", 1<<20))), llm.ErrInvalid, "", 7 * time.Second},
			"too fast":     {refuse(429, p.refusal("", "slow down")), llm.ErrRateLimited, "slow down", 7 * time.Second},
			"a page": {func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "<!doctype html>\n<html><title>Sign in</title></html>")
			}, llm.ErrInterrupted, "Sign in", 0},
		} {
			requests := 0
			_, err := llm.Collect(p.serve(t, func(w http.ResponseWriter, r *http.Request) { requests++; tt.answer(w, r) }).Generate(t.Context(), hello))
			if e, ok := errors.AsType[*llm.Error](err); !ok || e.Provider != p.name || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) || len(err.Error()) > 2000 {
				t.Errorf("%s: %.300v", name, err)
			}
			if got := llm.RetryAfter(err); got != tt.after || requests != 1 {
				t.Errorf("%s: again after %v, want %v; %d requests were made", name, got, tt.after, requests)
			}
		}
		for _, url := range []string{"http://[", "http://%zz", "ftp://127.0.0.1/", "127.0.0.1:80"} {
			_, err := llm.Collect(p.model(providerModel, url).Generate(t.Context(), hello))
			if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrInvalid {
				t.Errorf("%s: %#v", url, err)
			}
		}
		if _, err := llm.Collect(p.model("", "http://127.0.0.1:1").Generate(t.Context(), hello)); p.name != "openai" && !errors.Is(err, llm.ErrInvalid) { // some servers have one model
			t.Errorf("without a name: %v", err)
		}
		_, err := llm.Collect(p.model(providerModel, "http://127.0.0.1:1").Generate(t.Context(), hello))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrInterrupted || e.Status != 0 || !llm.Temporary(err) {
			t.Errorf("no server: %v", err)
		}
	})
}

func TestKeyStaysWithItsServer(t *testing.T) {
	forProviders(t, func(t *testing.T, p provider) {
		stolen := 0
		thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen++ }))
		defer thief.Close()
		to, requests := thief.URL, 0
		m := p.serve(t, func(w http.ResponseWriter, r *http.Request) {
			if requests++; requests > 2 {
				stream(p.begin+p.end)(w, r)
				return
			}
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		})
		if _, err := llm.Collect(m.Generate(t.Context(), hello)); !errors.Is(err, llm.ErrInvalid) || stolen > 0 {
			t.Errorf("the other server was asked %d times: %v", stolen, err)
		}
		to = "/elsewhere"
		if _, err := llm.Collect(m.Generate(t.Context(), hello)); err != nil {
			t.Errorf("on the same server: %v", err)
		}
	})
}

func TestNobodyShowsTheKey(t *testing.T) {
	const password = "hunter2-hunter2"
	forProviders(t, func(t *testing.T, p provider) {
		m := p.model(providerModel, "http://user:"+password+"@127.0.0.1:1/"+providerKey)
		value := reflect.ValueOf(m).Elem().Interface()
		var out strings.Builder
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "client", m, "copy", value)
		if err := json.NewEncoder(&out).Encode([]any{m, value}); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			for _, v := range []any{m, value, []any{m, value}, struct{ M llm.Model }{m}, struct{ m any }{value}} {
				fmt.Fprintf(&out, format+"\n", v)
			}
		}
		if !strings.Contains(fmt.Sprint(m), providerModel) {
			t.Errorf("it is printed as %v, without the model", m)
		}
		show := func(err error) {
			if err == nil {
				t.Error("there is no error")
			}
			for ; err != nil; err = errors.Unwrap(err) {
				fmt.Fprintf(&out, "%v %+v %#v\n", err, err, err)
			}
		}
		_, err := llm.Collect(m.Generate(t.Context(), hello))
		show(err)
		for _, answer := range []http.HandlerFunc{
			refuse(401, p.refusal("authentication_error", "bad key "+providerKey)),
			refuse(401, p.refusal(providerKey, "bad")),
			refuse(500, "you sent "+providerKey),
			stream(fmt.Sprintf(p.event, p.refusal("api_error", "your key "+providerKey))),
			stream(fmt.Sprintf(p.event, "no JSON "+providerKey)),
			stream(providerKey),
		} {
			_, err := llm.Collect(p.serve(t, answer).Generate(t.Context(), hello))
			show(err)
		}
		for _, secret := range []string{providerKey, password, fmt.Sprintf("%x", providerKey), fmt.Sprint([]byte(providerKey))} {
			if i := strings.Index(out.String(), secret); i >= 0 {
				t.Errorf("a secret is shown in %s", out.String()[max(0, i-100):i+20])
			}
		}
	})
}

// TestAgainstAimock talks to a server that somebody else wrote.
func TestAgainstAimock(t *testing.T) {
	yes := true
	s := startAimock(t,
		fixture{Match: fixtureMatch{HasToolResult: &yes}, Response: fixtureResponse{Content: "It rains in Köln."}},
		fixture{Match: fixtureMatch{UserMessage: "hello"}, Response: fixtureResponse{Content: "Good day, dear friend"}, ChunkSize: 4},
		fixture{Match: fixtureMatch{UserMessage: "weather"}, Response: fixtureResponse{
			Reasoning: "Two cities.", ReasoningSignature: "c2ln/+==", RedactedThinking: []string{"cmVk"},
			ToolCalls: []fixtureCall{{ID: "call_1", Name: "weather", Arguments: `{"city":"Köln 😀"}`}, {ID: "call_2", Name: "weather", Arguments: `{}`}},
		}},
		fixture{Match: fixtureMatch{UserMessage: "slow"}, Response: fixtureResponse{Status: 429, RetryAfter: 3, Error: &fixtureError{Message: "slow down", Type: "rate_limit_error"}}},
		fixture{Match: fixtureMatch{UserMessage: "cut"}, Response: fixtureResponse{Content: "A long answer that never ends"}, ChunkSize: 4, TruncateAfterChunks: 4},
	)
	forProviders(t, func(t *testing.T, p provider) {
		m := p.model(map[string]string{"anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash", "openai": "gpt-5"}[p.name], s.URL+p.path)
		get := func(messages ...llm.Message) (*llm.Reply, error) {
			return llm.Collect(m.Generate(t.Context(), &llm.Request{Messages: messages, Tools: []llm.Tool{{Name: "weather", Schema: []byte(`{"type":"object"}`)}}}))
		}
		reply, err := get(llm.User("hello"))
		if err != nil || reply.Message.Text() != "Good day, dear friend" || reply.Stop != llm.StopEnd {
			t.Errorf("text: %+v, %v", reply, err)
		}
		if reply, err = get(llm.User("weather")); err != nil {
			t.Fatal(err)
		}
		want := []llm.Call{{ID: "call_1", Name: "weather", Args: `{"city":"Köln 😀"}`}, {ID: "call_2", Name: "weather", Args: `{}`}}
		if diff := cmp.Diff(want, reply.Message.Calls()); diff != "" || reply.Stop != llm.StopCalls ||
			!slices.ContainsFunc(reply.Message.Parts, func(p llm.Part) bool { return p.Reasoning != nil && p.Reasoning.Text == "Two cities." }) {
			t.Errorf("calls: %s, reply %+v", diff, reply)
		}
		reply, err = get(llm.User("weather"), reply.Message, llm.Message{Role: llm.RoleTool, Parts: []llm.Part{
			{Result: &llm.Result{Call: "call_1", Name: "weather", Text: "rain"}},
			{Result: &llm.Result{Call: "call_2", Name: "weather", Text: "no city", Error: true}},
		}})
		if err != nil || reply.Message.Text() != "It rains in Köln." {
			t.Errorf("after results: %+v, %v", reply, err)
		}
		if _, err = get(llm.User("slow")); !errors.Is(err, llm.ErrRateLimited) || llm.RetryAfter(err) != 3*time.Second {
			t.Errorf("error: %v, retry after %v", err, llm.RetryAfter(err))
		}
		if _, err = get(llm.User("cut")); !errors.Is(err, llm.ErrInterrupted) {
			t.Errorf("cut: %v", err)
		}
		if _, err = get(llm.User("unknown")); !llm.Temporary(err) {
			t.Errorf("no fixture, which is status 503: %v", err)
		}
	})
}
