package scrub

import (
	"context"
	"fmt"
)

// maxError is how much of the text of an error or a panic is kept.
const maxError = 64 << 10

// Guard calls fn with a new set, and removes the secrets added to it from fn's
// error and panic. The error still matches the same errors.
func Guard(ctx context.Context, fn func(ctx context.Context, secrets *Set) error) error {
	ctx, secrets := With(ctx)
	defer func() {
		if v := recover(); v != nil {
			panic(secrets.cleanPanic(v)) // the stack stays that of the first panic
		}
	}()
	if err := fn(ctx, secrets); err != nil {
		return &cleanError{secrets.Limited(err.Error(), maxError), err}
	}
	return nil
}

// cleanPanic returns the value of a panic without the secrets, unchanged if it has
// none.
func (s *Set) cleanPanic(v any) any {
	text := fmt.Sprint(v)
	clean := s.Limited(text, maxError)
	err, isError := v.(error)
	switch {
	case clean == text && !isError:
		return v
	case isError:
		return &cleanError{clean, err}
	}
	return clean
}

// cleanError is an error whose message may have held a secret.
type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.err }

// Format implements fmt.Formatter: %+v does not look inside.
func (e *cleanError) Format(f fmt.State, _ rune) { fmt.Fprint(f, e.text) }
