package anthropic

import (
	"encoding/json"
	"regexp"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/history"
)

// params translates a request.
func (c *Client) params(r *llm.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: c.name, MaxTokens: r.MaxTokens, StopSequences: r.Stop}
	if c.name == "" {
		return p, invalid("the model has no name")
	}
	messages, err := conversation(history.IDs(history.Names(r)))
	if err != nil {
		return p, err
	}
	if len(messages) == 0 {
		return p, invalid("the request has no messages")
	}
	p.Messages = messages
	if p.Tools, err = tools(r.Tools); err != nil {
		return p, err
	}
	choice := r.Choice
	if len(p.Tools) == 0 {
		// The API wants the tools of earlier calls to be declared.
		choice = llm.ChoiceNone
		if p.Tools, err = called(p.Messages); err != nil {
			return p, err
		}
	}
	if len(p.Tools) > 0 {
		switch choice {
		case llm.ChoiceNone:
			p.ToolChoice.OfNone = new(sdk.ToolChoiceNoneParam)
		case llm.ChoiceRequired:
			p.ToolChoice.OfAny = new(sdk.ToolChoiceAnyParam)
		}
	}
	system := r.System
	if r.Output != nil {
		var schema map[string]json.RawMessage
		if json.Unmarshal(r.Output.Schema, &schema) != nil || schema == nil {
			return p, invalid("the schema of the output is not a JSON object")
		}
		if free.MatchString(c.name) {
			system = strings.TrimSpace(system + "\n\nWhen you call no tool, answer with JSON of this schema and nothing else:\n" + string(r.Output.Schema))
		} else {
			// The values stay as they are written, so that numbers lose nothing.
			p.OutputConfig.Format.Schema = make(map[string]any, len(schema))
			for k, v := range schema {
				p.OutputConfig.Format.Schema[k] = v
			}
		}
	}
	if system != "" {
		p.System = []sdk.TextBlockParam{{Text: system}}
	}
	c.think(&p, r)
	if p.MaxTokens <= 0 {
		p.MaxTokens = maxTokens(c.name)
	}
	if r.Temperature != nil && p.Thinking.OfEnabled == nil && p.Thinking.OfAdaptive == nil {
		p.Temperature = param.NewOpt(*r.Temperature) // models that think take none
	}
	if !c.noCache {
		mark(&p)
	}
	return p, nil
}

// tools translates the tools, with their schemas as they are written.
func tools(list []llm.Tool) ([]sdk.ToolUnionParam, error) {
	var out []sdk.ToolUnionParam
	for _, t := range list {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		if !history.IsObject(string(schema)) {
			return nil, invalid("the schema of tool %q is not a JSON object", t.Name)
		}
		p := &sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema)}
		if t.Description != "" {
			p.Description = param.NewOpt(t.Description)
		}
		out = append(out, sdk.ToolUnionParam{OfTool: p})
	}
	return out, nil
}

// called returns the tools that the messages call.
func called(messages []sdk.MessageParam) ([]sdk.ToolUnionParam, error) {
	var out []llm.Tool
	seen := make(map[string]bool)
	for _, m := range messages {
		for _, b := range m.Content {
			if b.OfToolUse != nil && !seen[b.OfToolUse.Name] {
				seen[b.OfToolUse.Name] = true
				out = append(out, llm.Tool{Name: b.OfToolUse.Name})
			}
		}
	}
	return tools(out)
}

// mark lets the API cache the prompt up to the end of its stable part (the tools
// come before the system prompt), and up to the last message for the next turn.
func mark(p *sdk.MessageNewParams) {
	control := sdk.NewCacheControlEphemeralParam()
	switch {
	case len(p.System) > 0:
		p.System[len(p.System)-1].CacheControl = control
	case len(p.Tools) > 0:
		p.Tools[len(p.Tools)-1].OfTool.CacheControl = control
	}
	last := p.Messages[len(p.Messages)-1].Content
	for i := len(last) - 1; i >= 0; i-- {
		if at := last[i].GetCacheControl(); at != nil { // thinking takes no mark
			*at = control
			return
		}
	}
}

var (
	// Models that think with a budget of tokens.
	budgeted = regexp.MustCompile(`^claude-(3-7-|(opus|sonnet|haiku)-4(-[0-5])?(-[0-9]{8}|-latest)?$)`)
	// Models that take no output schema.
	free = regexp.MustCompile(`^claude-(2|instant|3|(opus|sonnet)-4(-0)?(-[0-9]{8}|-latest)?$)`)
	// Models that do not think.
	plain = regexp.MustCompile(`^claude-(2|instant|3-[^7])`)
)

// think sets how long the model may think. Current models decide by themselves,
// given an effort; older ones have a budget.
func (c *Client) think(p *sdk.MessageNewParams, r *llm.Request) {
	if r.Effort == llm.EffortDefault || plain.MatchString(c.name) {
		return
	}
	// The API allows no thinking if a tool must be called.
	forced := p.ToolChoice.OfAny != nil
	if !budgeted.MatchString(c.name) {
		p.OutputConfig.Effort = sdk.OutputConfigEffort(r.Effort)
		if !forced {
			p.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{Display: sdk.ThinkingConfigAdaptiveDisplaySummarized}
		}
		return
	}
	if forced || !continues(p.Messages) {
		return
	}
	budget := map[llm.Effort]int64{llm.EffortLow: 2048, llm.EffortMedium: 8192, llm.EffortHigh: 16384}[r.Effort]
	if p.MaxTokens > 0 {
		budget = min(budget, p.MaxTokens/2) // the rest is for the answer
	}
	if budget >= 1024 { // the API's minimum
		p.Thinking = sdk.ThinkingConfigParamOfEnabled(budget)
	}
}

// continues reports whether a model with a budget may think here: the message that
// made the last tool calls has to start with its thinking, which is missing if
// another model wrote it.
func continues(ms []sdk.MessageParam) bool {
	if len(ms) < 2 || ms[len(ms)-1].Content[0].OfToolResult == nil {
		return true
	}
	first := ms[len(ms)-2].Content[0]
	return first.OfThinking != nil || first.OfRedactedThinking != nil
}

// maxTokens returns the limit of a request without one, since the API demands it:
// the most that every model of the generation takes.
func maxTokens(model string) int64 {
	switch {
	case strings.HasPrefix(model, "claude-3-5"):
		return 8192
	case plain.MatchString(model):
		return 4096
	}
	return 32000
}
