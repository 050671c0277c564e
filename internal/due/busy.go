package due

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/perdure/perdure/store"
)

// Busy yields the threads that are due at a time in microseconds since 1970, or
// are being worked on, of all flows. One with runs of several flows may come more
// than once.
func Busy(ctx context.Context, s store.Store, by int64) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for cell, err := range s.List(ctx, "due/", "") {
			if err != nil {
				yield("", fmt.Errorf("due: looking for busy threads: %w", err))
				return
			}
			escaped, _, _ := strings.Cut(strings.TrimPrefix(cell.Key, "due/"), "/")
			flow, err := url.PathUnescape(escaped)
			if err != nil {
				continue
			}
			if h := parse(flow, cell); h.Due <= by && !yield(h.Thread, nil) {
				return
			}
		}
	}
}
