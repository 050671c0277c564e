package due

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/perdure/perdure/store"
)

// ErrUnreadable is matched by the Err of a hint that cannot be read.
var ErrUnreadable = errors.New("due: hint is unreadable")

// Hint says that a thread is due at a time.
type Hint struct {
	Flow, Thread string

	// Seq is the sequence that the thread's journal has to reach before the
	// hint may be settled.
	Seq uint64

	// Due is a time in microseconds since 1970.
	Due int64

	// Version is the version of the hint's cell that was read.
	Version store.Version

	// Err is not nil if the cell holds something that this package did not
	// write, for example a newer version's hint. Then Seq and Due are 0, which
	// means due now, and neither Announce nor Settle touches the cell. If the
	// key is not one of this package's, Thread is whatever follows the prefix.
	Err error

	owner string // as in the key
}

// ownerSize is how many bytes at the end of a thread's name identify its owner.
const ownerSize = 8

// Owner returns the owner of a thread: the last 8 bytes of its name, or all of
// a shorter name. Hints are ordered by owner, so that a reader can give each a
// turn, see Page and NextOwner.
func Owner(thread string) string { return thread[max(0, len(thread)-ownerSize):] }

// Owner returns the owner of the hint's thread. For a key that is not one of
// this package's, it is the part where the owner should be, so that NextOwner
// always advances.
func (h Hint) Owner() string {
	if h.owner != "" {
		return h.owner
	}
	return Owner(h.Thread)
}

type value struct {
	Seq uint64
	Due int64
}

// encode returns the JSON of a value.
func (v value) encode() []byte {
	data := strconv.AppendUint([]byte(`{"s":`), v.Seq, 10)
	return append(strconv.AppendInt(append(data, `,"d":`...), v.Due, 10), '}')
}

// decode reads what encode writes.
func (v *value) decode(data []byte) error {
	seq, due, ok := strings.Cut(strings.TrimPrefix(string(data), `{"s":`), `,"d":`)
	v.Seq, _ = strconv.ParseUint(seq, 10, 64)
	v.Due, _ = strconv.ParseInt(strings.TrimSuffix(due, "}"), 10, 64)
	if !ok || !bytes.Equal(v.encode(), data) {
		// Writing the hint again would lose fields that we do not know.
		return errors.New("it has an unknown shape")
	}
	return nil
}

// Prefix returns the prefix of the keys of a flow's hints, to watch them.
func Prefix(flow string) string {
	// An escaped flow name contains no slash, so the hints of one flow never
	// fall under the prefix of another.
	return "due/" + url.PathEscape(flow) + "/"
}

func keyOf(flow, thread string) (string, error) {
	if thread == "" || strings.Contains(thread, "/") {
		return "", fmt.Errorf("due: thread %q of flow %q: %w: a thread's name is not empty and holds no slash", thread, flow, store.ErrInvalid)
	}
	key := Prefix(flow) + Owner(thread) + "/" + thread
	if len(key)+20 < store.MaxName {
		return key, nil
	}
	// An alarm's key is longer, by up to 18 bytes, and a thread with a hint may
	// need an alarm later.
	return key, store.CheckName("cell", alarmKey(flow, thread, 0))
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
	err := v.decode(cell.Value)
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
// owner and then by thread, that follow the cursor after; "" is the beginning.
// Pass last to get the next page; more is false if nothing follows this one.
//
// A hint that cannot be read is not an error, see Hint.Err. A hint that is
// written during the call may be missed, but not by a call that starts
// afterwards. If the store finds damaged cells, the error matches
// store.ErrCorrupt, and the page holds the intact ones.
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

// NextOwner returns a cursor for Page that is past all hints of one owner. It
// takes a cursor of Page, which names the last hint and its owner, or just an
// owner, see Hint.Owner.
func NextOwner(cursor string) string {
	owner, _, _ := strings.Cut(cursor, "/")
	// The keys that begin with the owner and a slash all sort before the owner
	// followed by the byte after a slash, and no other owner's keys lie
	// between.
	return owner + string(rune('/'+1))
}
