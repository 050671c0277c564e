package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// What agents say about their steps, by the names of OpenTelemetry's conventions for
// generative AI. An observer that is no perdure.Tracer sees none of it, and what was
// said in a conversation is made only for one that wants it.
const (
	attrOperation = "gen_ai.operation.name"
	attrAgent     = "gen_ai.agent.name"
	attrTool      = "gen_ai.tool.name"
	attrModel     = "gen_ai.request.model"
)

// describeAgent says which agent a step is.
func describeAgent(name string) perdure.StepOption {
	return perdure.Describe(slog.String(attrOperation, "invoke_agent"), slog.String(attrAgent, name))
}

// describeCall says which call of a tool a step makes.
func describeCall(t Tool, call ToolCall) perdure.StepOption {
	return perdure.Describe(slog.String(attrOperation, "execute_tool"), slog.String(attrAgent, call.Agent), slog.String(attrTool, t.name),
		slog.String("gen_ai.tool.type", "function"), slog.String("gen_ai.tool.call.id", call.ID),
		slog.Any("gen_ai.tool.call.arguments", content(func() any { return call.Args })))
}

// annotateResult says what came of the call.
func annotateResult(ctx context.Context, out Output) {
	perdure.Annotate(ctx, slog.Any("gen_ai.tool.call.result", content(func() any { return out.Text })))
}

// describeModel says which model a step asks.
func describeModel(agent string, m llm.Model) perdure.StepOption {
	attrs := []slog.Attr{slog.String(attrOperation, "chat"), slog.String(attrAgent, agent)}
	if named, ok := m.(fmt.Stringer); ok {
		if provider, model, ok := strings.Cut(named.String(), ":"); ok {
			attrs = append(attrs, slog.String("gen_ai.provider.name", provider), slog.String(attrModel, model))
		}
	}
	return perdure.Describe(attrs...)
}

// annotateRequest says what a model is asked.
func annotateRequest(ctx context.Context, req *llm.Request) {
	var attrs []slog.Attr
	if req.MaxTokens > 0 {
		attrs = append(attrs, slog.Int64("gen_ai.request.max_tokens", req.MaxTokens))
	}
	if req.Temperature != nil {
		attrs = append(attrs, slog.Float64("gen_ai.request.temperature", *req.Temperature))
	}
	messages := req.Messages
	if req.System != "" {
		attrs = append(attrs, slog.Any("gen_ai.system_instructions", content(func() any { return []spokenPart{{Type: "text", Content: req.System}} })))
	}
	attrs = append(attrs, slog.Any("gen_ai.input.messages", content(func() any { return spokenMessages(messages) })))
	perdure.Annotate(ctx, attrs...)
}

// annotateReply says what a model replied. The usage has been checked.
func annotateReply(ctx context.Context, r *llm.Reply, cost int64) {
	attrs := []slog.Attr{slog.Any("gen_ai.response.finish_reasons", []string{string(r.Stop)}),
		slog.Any("gen_ai.output.messages", content(func() any { return spokenMessages([]llm.Message{r.Message}) }))}
	for _, a := range []slog.Attr{slog.Int64("gen_ai.usage.input_tokens", r.Usage.Input), slog.Int64("gen_ai.usage.output_tokens", r.Usage.Output),
		slog.Int64("gen_ai.usage.cache_read.input_tokens", r.Usage.CacheRead),
		slog.Int64("gen_ai.usage.cache_creation.input_tokens", r.Usage.CacheWrite), slog.Int64("perdure.cost", cost)} {
		if a.Value.Int64() != 0 {
			attrs = append(attrs, a)
		}
	}
	for _, a := range []slog.Attr{slog.String("gen_ai.response.id", r.ID), slog.String("gen_ai.response.model", r.Model)} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	perdure.Annotate(ctx, attrs...)
}

// content is something that was said. Its JSON is made when it is asked for.
type content func() any

// LogValue implements slog.LogValuer.
func (c content) LogValue() slog.Value {
	raw, err := json.Marshal(c())
	if err != nil {
		return slog.StringValue(err.Error())
	}
	return slog.StringValue(string(raw))
}

// spoken is a message as the conventions write it, and spokenPart a part of one. Media
// and what only the provider understands are left out.
type spoken struct {
	Role  string       `json:"role"`
	Parts []spokenPart `json:"parts"`
}

type spokenPart struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

func spokenMessages(messages []llm.Message) []spoken {
	out := make([]spoken, 0, len(messages))
	for _, m := range messages {
		s := spoken{Role: string(m.Role), Parts: []spokenPart{}}
		for _, p := range m.Parts {
			switch {
			case p.Call != nil:
				args := json.RawMessage(p.Call.Args)
				if !json.Valid(args) {
					args, _ = json.Marshal(p.Call.Args)
				}
				s.Parts = append(s.Parts, spokenPart{Type: "tool_call", ID: p.Call.ID, Name: p.Call.Name, Arguments: args})
			case p.Result != nil:
				s.Parts = append(s.Parts, spokenPart{Type: "tool_call_response", ID: p.Result.Call, Response: p.Result.Text})
			case p.Text != "":
				s.Parts = append(s.Parts, spokenPart{Type: "text", Content: p.Text})
			}
		}
		out = append(out, s)
	}
	return out
}
