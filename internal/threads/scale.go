package threads

import "context"

// Scale weighs what a caller makes the kernel keep in memory. Its errors end
// what the caller asked for.
type Scale interface {
	// Value is asked before a value of so many bytes is read.
	Value(ctx context.Context, bytes int64) error
	// Fold is asked while a thread is folded from entries that have so many
	// bytes so far. A fold does not outlive the next one.
	Fold(ctx context.Context, bytes int64) error
}

type scaleKey struct{}

// WithScale returns a context whose reads are weighed.
func WithScale(ctx context.Context, s Scale) context.Context {
	return context.WithValue(ctx, scaleKey{}, s)
}

// ScaleOf returns the scale of a context, one that lets everything pass if there
// is none.
func ScaleOf(ctx context.Context) Scale {
	if s, ok := ctx.Value(scaleKey{}).(Scale); ok {
		return s
	}
	return noScale{}
}

type noScale struct{}

func (noScale) Value(context.Context, int64) error { return nil }
func (noScale) Fold(context.Context, int64) error  { return nil }
