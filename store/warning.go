package store

import "context"

// Warning is a problem of a store's engine that its operator should fix, although the
// store works.
type Warning struct {
	Kind   string `json:"kind"`   // one of the Warn constants
	Detail string `json:"detail"` // what is wrong; it may name machines
	Fix    string `json:"fix"`    // what to do
}

// The kinds of warnings.
const (
	WarnNode  = "node"  // a server that keeps a copy of the store is down
	WarnSpace = "space" // there is little space left, or none
	WarnNews  = "news"  // processes do not learn at once what others write
)

// WarningKinds are all kinds of warnings.
var WarningKinds = []string{WarnNode, WarnSpace, WarnNews}

// Warner is the upgrade of stores that can check the condition of their engine.
type Warner interface {
	Warnings(ctx context.Context) ([]Warning, error)
}

// Warnings returns the problems of s's engine, or nothing if s does not implement
// Warner.
func Warnings(ctx context.Context, s Store) ([]Warning, error) {
	if w, ok := As[Warner](s); ok {
		return w.Warnings(ctx)
	}
	return nil, nil
}
