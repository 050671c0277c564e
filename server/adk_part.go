package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// adkParts returns the parts of a message as a client reads them.
func adkParts(parts []llm.Part) []adkPart {
	out := []adkPart{}
	for _, p := range parts {
		switch {
		case p.Call != nil:
			out = append(out, adkPart{Call: &adkCall{ID: p.Call.ID, Name: p.Call.Name, Args: object(json.RawMessage(p.Call.Args))}})
		case p.Result != nil:
			var response any = map[string]any{"result": p.Result.Text}
			if p.Result.Error {
				response = map[string]any{"error": p.Result.Text}
			} else if strings.HasPrefix(p.Result.Text, "{") && json.Valid([]byte(p.Result.Text)) {
				response = json.RawMessage(p.Result.Text)
			}
			out = append(out, adkPart{Response: &adkResponse{ID: p.Result.Call, Name: p.Result.Name, Response: response}})
			for _, m := range p.Result.Media {
				out = append(out, adkMedia(m))
			}
		case p.Reasoning != nil:
			if p.Reasoning.Text != "" {
				out = append(out, adkPart{Text: p.Reasoning.Text, Thought: true})
			}
		case p.Media != nil:
			out = append(out, adkMedia(*p.Media))
		case p.Text != "":
			out = append(out, adkPart{Text: p.Text})
		}
	}
	return out
}

// adkMedia shows media: what is small by its bytes, what the thread keeps by its
// name.
func adkMedia(m llm.Media) adkPart {
	switch {
	case m.URL != "":
		return adkPart{File: &adkFile{MIME: m.MIME, URI: m.URL, Name: m.Name}}
	case m.Blob != "":
		return adkPart{File: &adkFile{MIME: m.MIME, URI: "blob:" + m.Blob, Name: m.Name}}
	}
	return adkPart{Data: &adkData{MIME: m.MIME, Data: m.Data, Name: m.Name}}
}

// adkInputParts shows the input of a run.
func adkInputParts(raw json.RawMessage) []adkPart {
	var in agent.Content
	if json.Unmarshal(raw, &in) != nil {
		return []adkPart{{Text: string(raw)}} // of a flow that takes something else
	}
	parts := []adkPart{}
	for _, m := range in {
		parts = append(parts, adkParts(m.Parts)...)
	}
	return parts
}

// adkPartial shows a piece of a reply that is being written, nil if there is
// nothing to show.
func adkPartial(thread string, d perdure.DeltaEvent, now time.Time) *adkEvent {
	names := strings.Split(d.Path, "/")
	if len(names) < 3 || !strings.HasPrefix(names[len(names)-2], "turn-") || !strings.HasPrefix(names[len(names)-1], "reply") {
		return nil
	}
	var piece agent.Delta
	if json.Unmarshal(d.Data, &piece) != nil || piece.Text == "" && piece.Reasoning == "" {
		return nil
	}
	part := adkPart{Text: piece.Text}
	if piece.Reasoning != "" {
		part = adkPart{Text: piece.Reasoning, Thought: true}
	}
	return &adkEvent{
		ID:           fmt.Sprintf("%s-%s%s-%d-%d-%d", thread, d.Run, d.Path, d.Pass, d.Attempt, d.Offset),
		InvocationID: d.Run, Author: piece.Agent, Timestamp: float64(now.UnixMicro()) / 1e6, Partial: true,
		Content: &adkContent{Role: "model", Parts: []adkPart{part}},
		Actions: adkActions{StateDelta: map[string]any{}, ArtifactDelta: map[string]any{}},
	}
}
