package shelf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/store"
)

// record is what a cell holds. Write names the write that made it, so that who
// does not know what became of a write recognises it.
type record struct {
	Namespace []string        `json:"ns"`
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value"`
	Created   int64           `json:"created"` // microseconds since 1970, as all times here
	Updated   int64           `json:"updated"`
	Expires   int64           `json:"expires,omitempty"`
	Write     string          `json:"write"`
}

func (r *record) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // which would let values grow
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("%w: the value is no JSON: %w", ErrInvalid, err)
	}
	if b.Len() > store.MaxEntry {
		return nil, fmt.Errorf("%w: the record has %d bytes", ErrTooLarge, b.Len())
	}
	return b.Bytes(), nil
}

// parse reads a cell, and refuses one that belongs to another place.
func (s *Shelf) parse(cell store.Cell) (*Item, *record, error) {
	var r record
	if err := json.Unmarshal(cell.Value, &r); err != nil {
		return nil, nil, &store.CorruptError{Cell: cell.Key, Reason: "it is no record of a shelf"}
	}
	place := strings.TrimPrefix(cell.Key, s.root)
	if Check(r.Namespace, r.Key) != nil || s.Place(r.Namespace, r.Key) != place {
		return nil, nil, &store.CorruptError{Cell: cell.Key, Reason: "it holds the record of another place"}
	}
	return &Item{
		Namespace: r.Namespace, Key: r.Key, Value: r.Value, Version: cell.Version, Place: place,
		Created: stamp(r.Created), Updated: stamp(r.Updated), Expires: stamp(r.Expires),
	}, &r, nil
}

func stamp(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}
