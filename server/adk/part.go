package adk

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// showParts returns the parts of a message as a client reads them.
func showParts(parts []llm.Part) []wirePart {
	out := []wirePart{}
	for _, p := range parts {
		switch {
		case p.Call != nil:
			out = append(out, wirePart{Call: &wireCall{ID: p.Call.ID, Name: p.Call.Name, Args: objectOrEmpty(json.RawMessage(p.Call.Args))}})
		case p.Result != nil:
			var response any = map[string]any{"result": p.Result.Text}
			if p.Result.Error {
				response = map[string]any{"error": p.Result.Text}
			} else if strings.HasPrefix(p.Result.Text, "{") && json.Valid([]byte(p.Result.Text)) {
				response = json.RawMessage(p.Result.Text)
			}
			out = append(out, wirePart{Response: &wireResponse{ID: p.Result.Call, Name: p.Result.Name, Response: response}})
			for _, m := range p.Result.Media {
				out = append(out, showMedia(m))
			}
		case p.Reasoning != nil:
			if p.Reasoning.Text != "" {
				out = append(out, wirePart{Text: p.Reasoning.Text, Thought: true})
			}
		case p.Media != nil:
			out = append(out, showMedia(*p.Media))
		case p.Text != "":
			out = append(out, wirePart{Text: p.Text})
		}
	}
	return out
}

// showMedia shows media: small ones as bytes, those that the thread stores by name.
func showMedia(m llm.Media) wirePart {
	switch {
	case m.URL != "":
		return wirePart{File: &wireFile{MIME: m.MIME, URI: m.URL, Name: m.Name}}
	case m.Blob != "":
		return wirePart{File: &wireFile{MIME: m.MIME, URI: "blob:" + m.Blob, Name: m.Name}}
	}
	return wirePart{Data: &wireData{MIME: m.MIME, Data: m.Data, Name: m.Name}}
}

// showInput shows the input of a run.
func showInput(raw json.RawMessage) []wirePart {
	var in agent.Content
	if json.Unmarshal(raw, &in) != nil {
		return []wirePart{{Text: string(raw)}} // of a flow that takes something else
	}
	parts := []wirePart{}
	for _, m := range in {
		parts = append(parts, showParts(m.Parts)...)
	}
	return parts
}

// showPiece shows a piece of a reply that is being written, nil if there is
// nothing to show.
func showPiece(thread string, d perdure.DeltaEvent, now time.Time) *wireEvent {
	names := strings.Split(d.Path, "/")
	if len(names) < 3 || !strings.HasPrefix(names[len(names)-2], "turn-") || !strings.HasPrefix(names[len(names)-1], "reply") {
		return nil
	}
	var piece agent.Delta
	if json.Unmarshal(d.Data, &piece) != nil || piece.Text == "" && piece.Reasoning == "" {
		return nil
	}
	part := wirePart{Text: piece.Text}
	if piece.Reasoning != "" {
		part = wirePart{Text: piece.Reasoning, Thought: true}
	}
	return &wireEvent{
		ID:           fmt.Sprintf("%s-%s%s-%d-%d-%d", thread, d.Run, d.Path, d.Pass, d.Attempt, d.Offset),
		InvocationID: d.Run, Author: piece.Agent, Timestamp: float64(now.UnixMicro()) / 1e6, Partial: true,
		Content: &wireContent{Role: "model", Parts: []wirePart{part}},
		Actions: wireActions{StateDelta: map[string]any{}, ArtifactDelta: map[string]any{}},
	}
}
