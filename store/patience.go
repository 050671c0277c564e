package store

import (
	"context"
	"time"
)

// patience is how long a caller waits for a store that is unavailable.
const patience = 3 * time.Second

type patientKey struct{}

// Patient returns a context for work that no caller is waiting for: with it
// AppendOnce and Update retry on an unavailable store until ctx ends. With any
// other context they give up after a few seconds.
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

// OutOfPatience reports whether to give up on a call that has been failing since the
// given time. It is for loops that repeat such calls.
func OutOfPatience(ctx context.Context, since time.Time) bool {
	return ctx.Value(patientKey{}) == nil && time.Since(since) > patience
}

// Notifier is implemented by stores that know when they are unavailable, such
// as those of Reopen.
type Notifier interface {
	// Notify arranges for tell to be called with an error when writes begin to
	// fail, and with nil when they succeed again.
	Notify(tell func(error))
}
