package store

import "context"

// Warning is something about the engine of a store that its operator should mend,
// although the store works.
type Warning struct {
	Kind   string `json:"kind"`   // one of the Warn constants
	Detail string `json:"detail"` // what it is; it may name machines
	Fix    string `json:"fix"`    // what to do
}

// The kinds of warnings.
const (
	WarnNode  = "node"  // a server that keeps a copy of the store is down
	WarnSpace = "space" // there is little space left, or none
	WarnNews  = "news"  // processes do not hear at once what others write
)

// WarningKinds are all kinds of warnings.
var WarningKinds = []string{WarnNode, WarnSpace, WarnNews}

// Warner is the upgrade of stores that ask their engine how it is.
type Warner interface {
	Warnings(ctx context.Context) ([]Warning, error)
}

// Warnings returns what the engine of s should be mended for; nothing if s does not
// implement Warner.
func Warnings(ctx context.Context, s Store) ([]Warning, error) {
	if w, ok := As[Warner](s); ok {
		return w.Warnings(ctx)
	}
	return nil, nil
}
