package due

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/store"
)

// Page returns up to limit hints of a flow, whenever they are due, ordered by
// owner and then by thread, that are behind the cursor after; "" is the begin.
// The cursor last leads to the next page, and more is false if there was
// nothing behind this one.
//
// A hint that cannot be read is no error, see Hint.Err. A hint that is written
// during the call may be left out, but not by a call that starts afterwards.
// Where the store finds cells damaged, the error matches store.ErrCorrupt, and
// the page holds those that are sound.
func Page(ctx context.Context, s store.Store, flow, after string, limit int) (hints []Hint, last string, more bool, err error) {
	if limit < 1 {
		return nil, after, false, fmt.Errorf("due: a page of %d hints: %w: it has at least one", limit, store.ErrInvalid)
	}
	prefix := Prefix(flow)
	last = after
	for cell, err := range s.List(ctx, prefix, prefix+after) {
		if errors.Is(err, store.ErrCorrupt) {
			return hints, last, false, fmt.Errorf("due: hints of flow %q: %w", flow, err)
		}
		if err != nil {
			return nil, after, false, fmt.Errorf("due: hints of flow %q: %w", flow, err)
		}
		if len(hints) == limit {
			return hints, last, true, nil
		}
		hints = append(hints, parse(flow, cell))
		last = strings.TrimPrefix(cell.Key, prefix)
	}
	return hints, last, false, nil
}

// NextOwner returns a cursor for Page that is behind all hints of one owner:
// that of the last hint before the cursor it is given, or the one it is given
// by name, see Hint.Owner.
func NextOwner(cursor string) string {
	owner, _, _ := strings.Cut(cursor, "/")
	// All that begins with the owner and a slash, and nothing else, is
	// between these and the owner with the byte behind a slash.
	return owner + string(rune('/'+1))
}
