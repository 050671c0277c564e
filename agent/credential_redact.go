package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/perdure/perdure/internal/scrub"
)

const redacted = scrub.Mark

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

// guarded calls the function of a tool and takes the secrets that it was given
// out of its output, its error and its panic.
func guarded(ctx context.Context, fn func(context.Context) (Output, error)) (out Output, err error) {
	ctx, secrets := scrub.With(ctx)
	defer func() {
		if v := recover(); v != nil {
			panic(scrubPanic(secrets, v)) // the stack stays that of the first panic
		}
	}()
	out, err = fn(ctx)
	out.Text = secrets.Text(out.Text)
	return out, scrubError(secrets, err)
}

// maxError is how much is read of the text of an error or a panic.
const maxError = 64 << 10

// scrubPanic returns what a panic says, without the secrets. A value that says
// none stays what it is.
func scrubPanic(secrets *scrub.Set, v any) any {
	text := fmt.Sprint(v)
	clean := secrets.Limited(text, maxError)
	err, isError := v.(error)
	switch {
	case clean == text && !isError:
		return v
	case isError:
		return &scrubbed{clean, err}
	}
	return clean
}

// scrubError takes the secrets out of what an error says. It still is what it
// was.
func scrubError(secrets *scrub.Set, err error) error {
	if err == nil {
		return nil
	}
	return &scrubbed{secrets.Limited(err.Error(), maxError), err}
}

// scrubbed is an error whose message may have held a secret.
type scrubbed struct {
	text string
	err  error
}

func (e *scrubbed) Error() string { return e.text }
func (e *scrubbed) Unwrap() error { return e.err }

// Format implements fmt.Formatter: %+v does not look inside.
func (e *scrubbed) Format(f fmt.State, _ rune) { fmt.Fprint(f, e.text) }
