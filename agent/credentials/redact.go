package credentials

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/perdure/perdure/internal/scrub"
)

const redacted = scrub.Mark

// Redacted hides a text: printed, logged or encoded as JSON it is "[redacted]". Use it
// to hold a secret in a config or a client. Make one with [Redact].
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
