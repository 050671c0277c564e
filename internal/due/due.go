package due

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	// due now, and neither Announce nor Settle touches the cell. Where its
	// key is not one of this package, Thread is what follows the prefix.
	Err error

	owner string // as the key has it
}

// ownerSize is how many bytes at the end of a thread's name are its owner's.
const ownerSize = 8

// Owner returns whom a thread belongs to: the last 8 bytes of its name, or all
// of a name that is shorter. Hints are ordered by it, so that a reader can give
// each owner a turn, see Page and NextOwner.
func Owner(thread string) string { return thread[max(0, len(thread)-ownerSize):] }

// Owner returns whom the hint's thread belongs to. Of a key that is not one of
// this package it is the part where the owner should be, so that NextOwner
// leads on in any case.
func (h Hint) Owner() string {
	if h.owner != "" {
		return h.owner
	}
	return Owner(h.Thread)
}

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

func keyOf(flow, thread string) (string, error) {
	if thread == "" || strings.Contains(thread, "/") {
		return "", fmt.Errorf("due: thread %q of flow %q: %w: a thread's name is not empty and holds no slash", thread, flow, store.ErrInvalid)
	}
	// An alarm's key is the longer one, and who has a hint may need it.
	return Prefix(flow) + Owner(thread) + "/" + thread, store.CheckName("cell", alarmKey(flow, thread, 0))
}

// parse returns the hint that a cell below the flow's prefix holds.
func parse(flow string, cell store.Cell) Hint {
	rest := strings.TrimPrefix(cell.Key, Prefix(flow))
	owner, thread, ok := strings.Cut(rest, "/")
	h := Hint{Flow: flow, Thread: rest, Version: cell.Version, owner: owner}
	if ok && thread != "" && owner == Owner(thread) {
		h.Thread = thread
	}
	var v value
	err := json.Unmarshal(cell.Value, &v)
	if err == nil && !bytes.Equal(v.encode(), cell.Value) {
		// A field more or less would be lost by writing the hint again.
		err = errors.New("it has an unknown shape")
	}
	if key, keyErr := keyOf(flow, h.Thread); err == nil && keyErr != nil {
		err = keyErr
	} else if err == nil && key != cell.Key {
		err = errors.New("its key does not begin with its owner")
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
		return nil, after, false, fmt.Errorf("due: a page of %d hints: %w: ask for at least one", limit, store.ErrInvalid)
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
