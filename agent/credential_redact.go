package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

const redacted = "[redacted]"

// Redacted is a text that does not show: printed, logged or encoded as JSON it
// is "[redacted]". Hold a secret in it, in a config or a client. Make one with
// [Redact].
type Redacted struct{ text *string } // printed as an address where no method is called

// Redact hides a text.
func Redact(text string) Redacted { return Redacted{&text} }

// Reveal returns the text.
func (r Redacted) Reveal() string {
	if r.text == nil {
		return ""
	}
	return *r.text
}

var (
	_ fmt.Formatter  = Redacted{}
	_ slog.LogValuer = Redacted{}
	_ json.Marshaler = Redacted{}
)

// Format implements fmt.Formatter, for every verb.
func (Redacted) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// String implements fmt.Stringer.
func (Redacted) String() string { return redacted }

// LogValue implements slog.LogValuer.
func (Redacted) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON implements json.Marshaler.
func (Redacted) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Redacted) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// seenSecrets are the secrets that a tool was given during a call.
type seenSecrets struct {
	mu    sync.Mutex
	texts []string
}

type seenKey struct{}

// withSecrets returns a context in which the secrets that [Secret] returns are
// noted, so that they can be taken out of what the call gives.
func withSecrets(ctx context.Context) (context.Context, *seenSecrets) {
	s := &seenSecrets{}
	return context.WithValue(ctx, seenKey{}, s), s
}

// minScrubbed is the length from which on a secret is taken out of texts. What
// is shorter stands in many by chance.
const minScrubbed = 4

func noteSecret(ctx context.Context, secret string) {
	s, ok := ctx.Value(seenKey{}).(*seenSecrets)
	if !ok || len(secret) < minScrubbed {
		return
	}
	escaped, _ := json.Marshal(secret)
	quoted, _ := encodeValue(secret)
	inner := func(s string) string { return s[1 : len(s)-1] }
	forms := []string{secret, inner(string(escaped)), inner(strconv.Quote(secret)), url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret))}
	if len(quoted) > 0 { // it is UTF-8
		forms = append(forms, inner(string(quoted)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, forms...)
}

// scrub takes the secrets out of a text.
func (s *seenSecrets) scrub(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.texts {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	return text
}

// scrubError takes the secrets out of what an error says. It still is what it
// was.
func (s *seenSecrets) scrubError(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); s.scrub(text) != text {
		return &scrubbed{s.scrub(text), err}
	}
	return err
}

// scrubbed is an error whose message held a secret.
type scrubbed struct {
	text string
	err  error
}

func (e *scrubbed) Error() string { return e.text }
func (e *scrubbed) Unwrap() error { return e.err }

// Format implements fmt.Formatter: %+v does not look inside.
func (e *scrubbed) Format(f fmt.State, _ rune) { fmt.Fprint(f, e.text) }
