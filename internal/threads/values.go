package threads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Load returns the JSON of a value, nil if there is none. It finds the blobs that a
// fork shares with its parents.
func (c *Threads) Load(ctx context.Context, name string, v journal.Value) ([]byte, error) {
	if v.Elsewhere() {
		var err error
		if v, err = c.elsewhere(ctx, name, v.At); err != nil {
			return nil, err
		}
	}
	if v.Blob == nil {
		return v.JSON, nil
	}
	if err := scaleOf(ctx).Value(ctx, v.Blob.Size); err != nil {
		return nil, err
	}
	raw, err := c.loadBlob(ctx, name, *v.Blob)
	if DamagedBlob(err) {
		c.MarkDamaged(ctx, Empty(name))
		err = fmt.Errorf("%w: a value of %d bytes: %w", fault.ErrCorrupt, v.Blob.Size, err)
	}
	return raw, err
}

func (c *Threads) loadBlob(ctx context.Context, name string, ref blob.Ref) (raw []byte, err error) {
	_, err = c.blobHome(ctx, name, func(name string) error {
		raw, err = blob.Bytes(ctx, c.Store, BlobPrefix(name), ref)
		return err
	})
	return raw, err
}

// blobHome calls read with a thread's name, and then with those of the threads it
// was forked from until one has the blob intact. It returns the last name.
func (c *Threads) blobHome(ctx context.Context, name string, read func(name string) error) (string, error) {
	for {
		err := read(name)
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrCorrupt) || !IsFork(name) {
			return name, err
		}
		r, rootErr := c.RootOf(ctx, name)
		if rootErr != nil || r.Parent == "" {
			return name, errors.Join(err, rootErr)
		}
		name = r.Parent
	}
}

// IsSmall reports whether a value is stored in its entry rather than as a blob.
func IsSmall(raw []byte) bool { return len(raw) <= blob.Inline }

// Value returns a value for an entry. It writes a large one as a blob.
func (c *Threads) Value(ctx context.Context, name string, raw json.RawMessage) (journal.Value, error) {
	return c.ValueIn(ctx, c.Store, name, raw)
}

// ValueIn is Value with a blob in s: the store, or a TxCells.
func (c *Threads) ValueIn(ctx context.Context, s store.Store, name string, raw json.RawMessage) (journal.Value, error) {
	if IsSmall(raw) {
		return journal.Value{JSON: raw}, nil
	}
	return c.StoreBlob(ctx, s, name, raw)
}

// StoreBlob writes a value as a blob, whatever its size, to s, which is the store
// or a transaction of it.
func (c *Threads) StoreBlob(ctx context.Context, s store.Store, name string, raw json.RawMessage) (journal.Value, error) {
	ref, err := blob.Put(ctx, s, BlobPrefix(name), bytes.NewReader(raw))
	if err != nil {
		return journal.Value{}, fmt.Errorf("perdure: keeping a value of %d bytes: %w", len(raw), err)
	}
	return journal.Value{Blob: &ref}, nil
}

// Fit makes a body small enough for an entry: values that are too large, and then
// the largest ones, become blobs in s, as in StoreBlob.
func (c *Threads) Fit(ctx context.Context, s store.Store, name string, b *journal.Body) error {
	const room = 160 << 10
	values := []*journal.Value{&b.Value}
	for i := range b.State {
		if b.State[i].Set != nil {
			values = append(values, b.State[i].Set)
		}
		for j := range b.State[i].Append {
			values = append(values, &b.State[i].Append[j])
		}
	}
	for {
		total := 0
		var largest *journal.Value
		for _, v := range values {
			total += len(v.JSON)
			if largest == nil || len(v.JSON) > len(largest.JSON) {
				largest = v
			}
		}
		if len(largest.JSON) <= blob.Inline && (total <= room || len(largest.JSON) < 256) {
			return nil
		}
		kept, err := c.StoreBlob(ctx, s, name, largest.JSON)
		if err != nil {
			return err
		}
		*largest = kept
	}
}

// Item returns the JSON of an item: its value, or a list that was appended to.
func (c *Threads) Item(ctx context.Context, thread string, item journal.Item) (json.RawMessage, error) {
	base, err := c.Load(ctx, thread, item.Base)
	if err != nil || item.Tail == nil {
		return base, err
	}
	if item.Text {
		return applyEdits(base, item.Values())
	}
	var buf bytes.Buffer
	buf.WriteByte('[')
	if exact.KindOfJSON(base) == "array" {
		buf.Write(bytes.TrimSpace(base[1 : len(base)-1]))
	}
	var values [][]byte // newest first, the order in which LoadLink reads ahead
	for l := item.Tail; l != nil; l = l.Prev {
		raw, err := c.LoadLink(ctx, thread, l)
		if err != nil {
			return nil, err
		}
		values = append(values, raw)
	}
	for _, raw := range slices.Backward(values) {
		if buf.Len() > 1 {
			buf.WriteByte(',')
		}
		buf.Write(raw)
	}
	buf.WriteByte(']')
	return buf.Bytes(), nil
}

// applyEdits returns the text of an item: its base with the edits applied.
func applyEdits(base json.RawMessage, edits []journal.Value) (json.RawMessage, error) {
	var text string
	if err := json.Unmarshal(base, &text); err != nil {
		return nil, fmt.Errorf("%w: an edit of a value that is not text", fault.ErrCorrupt)
	}
	b := []byte(text)
	for _, v := range edits {
		var list []journal.Edit
		if err := json.Unmarshal(v.JSON, &list); err != nil {
			return nil, fmt.Errorf("%w: an edit of a text: %w", fault.ErrCorrupt, err)
		}
		var err error
		if b, err = splice(b, list); err != nil {
			return nil, err
		}
	}
	return exact.Encode(string(b), reflect.TypeFor[string]())
}

// splice applies edits one after the other. Edits in ascending order, such as those
// of a Replace, share one copy.
func splice(b []byte, edits []journal.Edit) ([]byte, error) {
	var made []byte // the finished text
	from := 0       // how much of b it has consumed
	for _, e := range edits {
		if e.At < len(made) { // it goes back into the finished text
			b, made, from = append(made, b[from:]...), nil, 0
		}
		at := e.At - len(made) + from // in b
		if e.At < 0 || e.Del < 0 || at > len(b) || e.Del > len(b)-at {
			return nil, fmt.Errorf("%w: an edit of a text at %d, which has %d bytes", fault.ErrCorrupt, e.At, len(made)+len(b)-from)
		}
		if len(edits) == 1 {
			return slices.Replace(b, at, at+e.Del, []byte(e.Ins)...), nil
		}
		if made == nil {
			made = make([]byte, 0, len(b)+len(b)/8)
		}
		made = append(append(made, b[from:at]...), e.Ins...)
		from = at + e.Del
	}
	return append(made, b[from:]...), nil
}

// BlobHome reads a blob to its end, and returns the name of the thread that holds
// it: the given one or one that it was forked from.
func (c *Threads) BlobHome(ctx context.Context, name string, ref blob.Ref) (string, error) {
	return c.blobHome(ctx, name, func(name string) error {
		_, chunks, err := blob.Chunks(ctx, c.Store, BlobPrefix(name), ref)
		if err != nil {
			return err
		}
		for _, err := range chunks {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// DamagedBlob reports whether an error means that a blob is not what its entry
// says, rather than that it cannot be read at the moment.
func DamagedBlob(err error) bool {
	damages := []error{store.ErrNotFound, store.ErrCorrupt, store.ErrInvalid, store.ErrTooLarge}
	return slices.ContainsFunc(damages, func(damage error) bool { return errors.Is(err, damage) })
}
