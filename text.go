package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Text is a key of the state that holds a text, such as a file. Of a change
// only what is new is written. Of several branches that write it the last one
// in the order of the journal wins, as with [State].
type Text struct{ key string }

// NewText returns the text of a key.
func NewText(key string) Text { return Text{key} }

// Get returns the text, "" if there is none.
func (t Text) Get(ctx context.Context) (string, error) { return State[string](t).Get(ctx) }

// Lookup returns the text and whether there is one.
func (t Text) Lookup(ctx context.Context) (string, bool, error) {
	return State[string](t).Lookup(ctx)
}

// Delete removes the text.
func (t Text) Delete(ctx context.Context) error { return State[string](t).Delete(ctx) }

// Set writes the text. What it shares with the one before at the beginning and
// at the end is not written again.
func (t Text) Set(ctx context.Context, text string) error {
	return engine.SetText(ctx, t.key, text)
}

// Replace replaces every old by new and returns how many there were. Only the
// replacements are written.
func (t Text) Replace(ctx context.Context, old, new string) (int, error) {
	return engine.ReplaceText(ctx, t.key, old, new)
}
