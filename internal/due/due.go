package due

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/perdure/perdure/store"
)

// ErrUnreadable is what Hint.Err matches.
var ErrUnreadable = errors.New("due: hint is unreadable")

// Hint says that a thread is due at a time.
type Hint struct {
	Flow, Thread string

	// Seq is the sequence that the thread's journal has to reach before the
	// hint may be settled.
	Seq uint64

	// Due is a time in microseconds since 1970.
	Due int64

	// Version is the write of the hint's cell that was seen.
	Version store.Version

	// Err is not nil if the cell holds something else than this package
	// writes, for example a newer version's. Seq and Due are 0 then, which is
	// due now, and neither Announce nor Settle touches the cell.
	Err error
}

// value is what a hint's cell holds.
type value struct {
	Seq uint64 `json:"s"`
	Due int64  `json:"d"`
}

func (v value) encode() []byte {
	data, _ := json.Marshal(v) // two integers cannot fail
	return data
}

// Prefix returns what the keys of a flow's hints begin with, to watch them.
func Prefix(flow string) string {
	// Escaped, a flow's name holds no slash, so that the hints of one flow
	// are never below the prefix of another.
	return "due/" + url.PathEscape(flow) + "/"
}

// keyOf returns the key of a thread's hint.
func keyOf(flow, thread string) (string, error) {
	key := Prefix(flow) + thread
	if thread == "" || strings.Contains(thread, "/") {
		return "", fmt.Errorf("due: thread %q of flow %q: %w: a thread's name is not empty and holds no slash", thread, flow, store.ErrInvalid)
	}
	return key, store.CheckName("cell", key)
}

// parse returns the hint that a cell below the flow's prefix holds.
func parse(flow string, cell store.Cell) Hint {
	h := Hint{Flow: flow, Thread: strings.TrimPrefix(cell.Key, Prefix(flow)), Version: cell.Version}
	var v value
	err := json.Unmarshal(cell.Value, &v)
	if err == nil && !bytes.Equal(v.encode(), cell.Value) {
		// A field more or less would be lost by writing the hint again.
		err = errors.New("it has an unknown shape")
	}
	if err == nil {
		_, err = keyOf(flow, h.Thread)
	}
	if err != nil {
		h.Err = fmt.Errorf("%w: cell %q: %w; a newer version may have written it, else delete it and rebuild the hints", ErrUnreadable, cell.Key, err)
		return h
	}
	h.Seq, h.Due = v.Seq, v.Due
	return h
}

// Get returns the hint of a thread, and whether there is one.
func Get(ctx context.Context, s store.Store, flow, thread string) (Hint, bool, error) {
	key, err := keyOf(flow, thread)
	if err != nil {
		return Hint{}, false, err
	}
	cell, err := s.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Hint{}, false, nil
	case err != nil:
		return Hint{}, false, fmt.Errorf("due: hint of %q: %w", thread, err)
	}
	return parse(flow, cell), true, nil
}

// List yields the hints of a flow, whenever they are due, ordered by thread.
// An error is the last thing yielded; a hint that cannot be read is not one,
// see Hint.Err. A hint that is written during the loop may be left out, but
// not by a loop that starts afterwards. The body of the loop may call Settle.
func List(ctx context.Context, s store.Store, flow string) iter.Seq2[Hint, error] {
	return func(yield func(Hint, error) bool) {
		for cell, err := range s.List(ctx, Prefix(flow), "") {
			if err != nil {
				yield(Hint{}, fmt.Errorf("due: hints of flow %q: %w", flow, err))
				return
			}
			if !yield(parse(flow, cell), nil) {
				return
			}
		}
	}
}
