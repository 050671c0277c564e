package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/history"
)

// conversation translates the messages. In the API a user and an assistant speak in
// turn, so messages of one side that follow each other become one.
func conversation(messages []llm.Message) ([]sdk.MessageParam, error) {
	var out []sdk.MessageParam
	for i, m := range messages {
		role := sdk.MessageParamRoleUser
		switch m.Role {
		case llm.RoleUser, llm.RoleTool:
		case llm.RoleAssistant:
			role = sdk.MessageParamRoleAssistant
		default:
			return nil, invalid("message %d has the role %q", i, m.Role)
		}
		for _, part := range m.Parts {
			b, ok, err := content(m.Role, part)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			if n := len(out); n == 0 || out[n-1].Role != role {
				out = append(out, sdk.MessageParam{Role: role})
			}
			last := &out[len(out)-1]
			at := len(last.Content)
			if b.OfToolResult != nil {
				// Results come first: the API wants them right after the calls, even
				// if a user said something in between.
				for at > 0 && last.Content[at-1].OfToolResult == nil {
					at--
				}
			}
			last.Content = slices.Insert(last.Content, at, b)
		}
	}
	return out, nil
}

// content translates a part. It reports false for a part that is left out: empty
// text, which the API refuses, and data of another provider.
func content(role llm.Role, part llm.Part) (sdk.ContentBlockParamUnion, bool, error) {
	var b sdk.ContentBlockParamUnion
	switch {
	case part.Text != "":
		b.OfText = &sdk.TextBlockParam{Text: part.Text}
		return b, strings.TrimSpace(part.Text) != "", nil
	case part.Media != nil:
		if role == llm.RoleAssistant {
			return b, false, invalid("an assistant's message cannot hold media")
		}
		image, document, err := media(part.Media)
		b.OfImage, b.OfDocument = image, document
		return b, true, err
	case part.Call != nil:
		b.OfToolUse = &sdk.ToolUseBlockParam{ID: part.Call.ID, Name: part.Call.Name, Input: history.Arguments(part.Call.Args)}
		return b, true, nil
	case part.Result != nil:
		r, err := result(part.Result)
		b.OfToolResult = r
		return b, true, err
	}
	if part.Opaque == nil || part.Opaque.Provider != provider {
		return b, false, nil // also thinking without its signature, which the API refuses
	}
	var k kept
	if err := json.Unmarshal([]byte(part.Opaque.Data), &k); err != nil {
		return b, false, invalid("opaque data of a part is damaged: %v", err)
	}
	switch k.Type {
	case "thinking":
		text := ""
		if part.Reasoning != nil {
			text = part.Reasoning.Text
		}
		if k.Signature == "" {
			return b, false, nil
		}
		b.OfThinking = &sdk.ThinkingBlockParam{Signature: k.Signature, Thinking: text}
	case "redacted_thinking":
		b.OfRedactedThinking = &sdk.RedactedThinkingBlockParam{Data: k.Data}
	default:
		b = param.Override[sdk.ContentBlockParamUnion](json.RawMessage(part.Opaque.Data))
	}
	return b, true, nil
}

// result translates the result of a call.
func result(r *llm.Result) (*sdk.ToolResultBlockParam, error) {
	b := &sdk.ToolResultBlockParam{ToolUseID: r.Call}
	if r.Error {
		b.IsError = param.NewOpt(true)
	}
	if strings.TrimSpace(r.Text) != "" {
		b.Content = append(b.Content, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: r.Text}})
	}
	for i := range r.Media {
		image, document, err := media(&r.Media[i])
		if err != nil {
			return nil, err
		}
		b.Content = append(b.Content, sdk.ToolResultBlockParamContentUnion{OfImage: image, OfDocument: document})
	}
	return b, nil
}

// media translates an image or a file. One of the results is nil.
func media(m *llm.Media) (*sdk.ImageBlockParam, *sdk.DocumentBlockParam, error) {
	mime, _, _ := strings.Cut(m.MIME, ";")
	byURL := len(m.Data) == 0 && m.URL != ""
	switch {
	case len(m.Data) == 0 && m.URL == "" && m.Blob != "":
		return nil, nil, invalid("media %q is kept in blob %q: its bytes have to be put in before a model is asked", m.Name, m.Blob)
	case len(m.Data) == 0 && m.URL == "":
		return nil, nil, invalid("media %q has neither bytes nor a URL", m.Name)
	case m.Image() && byURL:
		return &sdk.ImageBlockParam{Source: sdk.ImageBlockParamSourceUnion{OfURL: &sdk.URLImageSourceParam{URL: m.URL}}}, nil, nil
	case m.Image():
		src := &sdk.Base64ImageSourceParam{Data: base64.StdEncoding.EncodeToString(m.Data), MediaType: sdk.Base64ImageSourceMediaType(mime)}
		return &sdk.ImageBlockParam{Source: sdk.ImageBlockParamSourceUnion{OfBase64: src}}, nil, nil
	}
	doc := &sdk.DocumentBlockParam{}
	if m.Name != "" {
		doc.Title = param.NewOpt(m.Name)
	}
	switch {
	case mime == "application/pdf" && byURL:
		doc.Source.OfURL = &sdk.URLPDFSourceParam{URL: m.URL}
	case mime == "application/pdf":
		doc.Source.OfBase64 = &sdk.Base64PDFSourceParam{Data: base64.StdEncoding.EncodeToString(m.Data)}
	case strings.HasPrefix(mime, "text/") && !byURL:
		doc.Source.OfText = &sdk.PlainTextSourceParam{Data: string(m.Data)}
	default:
		return nil, nil, invalid("media of type %q cannot be sent: images, PDF and text can", m.MIME)
	}
	return nil, doc, nil
}
