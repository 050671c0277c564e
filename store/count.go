package store

import (
	"bytes"
	"context"
)

// Counter is the upgrade of stores that can count cells without reading them.
type Counter interface {
	// Count returns how many cells have a key that begins with prefix, damaged
	// ones included.
	Count(ctx context.Context, prefix string) (int, error)
}

// Count returns how many cells of a store have a key that begins with prefix. If the
// store is not a Counter, Count lists the cells; if some are damaged, it then returns the
// number of intact ones and ErrCorrupt.
func Count(ctx context.Context, s Store, prefix string) (n int, err error) {
	if c, ok := As[Counter](s); ok {
		if n, err = c.Count(ctx, prefix); err == nil {
			return n, nil
		}
		n = 0 // a wrapper may know what to do about it
	}
	for _, err := range s.List(ctx, prefix, "") {
		if err != nil {
			return n, err // damage is what List reports last
		}
		n++
	}
	return n, ctx.Err()
}

// PrefixEnd returns a key greater than all that begin with prefix. It is for authors
// of drivers.
func PrefixEnd(prefix string) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := []byte(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return bytes.Repeat([]byte{0xff}, MaxName+1)
}
