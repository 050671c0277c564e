package otel

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/scrub"
	"go.opentelemetry.io/otel/attribute"
)

// providers has the names that the conventions give to providers, where they differ
// from those of the packages of llm.
var providers = map[string]string{"gemini": "gcp.gemini"}

// contents are the attributes that hold what was said.
var contents = map[string]bool{
	"gen_ai.system_instructions":  true,
	"gen_ai.input.messages":       true,
	"gen_ai.output.messages":      true,
	"gen_ai.tool.call.arguments":  true,
	"gen_ai.tool.call.result":     true,
	"gen_ai.tool.definitions":     true,
	"gen_ai.retrieval.documents":  true,
	"gen_ai.retrieval.query.text": true,
}

// attributes converts attributes, without secrets of the context. What was said is left
// out, unless it is wanted.
func (t *Telemetry) attributes(ctx context.Context, attrs []slog.Attr) []attribute.KeyValue {
	secrets := scrub.From(ctx)
	out := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		limit := maxText
		if contents[a.Key] {
			if !t.opts.Content {
				continue
			}
			limit = t.opts.ContentLimit
		}
		out = append(out, keyValue(a, func(text string) string { return clip(secrets.Text(text), limit) }))
	}
	return out
}

func keyValue(a slog.Attr, clean func(string) string) attribute.KeyValue {
	key := attribute.Key(a.Key)
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindBool:
		return key.Bool(v.Bool())
	case slog.KindInt64:
		return key.Int64(v.Int64())
	case slog.KindFloat64:
		return key.Float64(v.Float64())
	case slog.KindDuration:
		return key.Float64(v.Duration().Seconds())
	case slog.KindTime:
		return key.String(v.Time().UTC().Format(time.RFC3339Nano))
	default:
		if texts, ok := v.Any().([]string); ok {
			clear := make([]string, len(texts))
			for i, text := range texts {
				clear[i] = clean(text)
			}
			return key.StringSlice(clear)
		}
		text := clean(v.String())
		if name, ok := providers[text]; ok && a.Key == "gen_ai.provider.name" {
			text = name
		}
		return key.String(text)
	}
}

// maxText is how long a text is in a span, but for what was said.
const maxText = 1024

// clip returns the beginning of a text, which is valid UTF-8.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
