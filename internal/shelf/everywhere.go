package shelf

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"

	"github.com/perdure/perdure/store"
)

// Value is a value of any tenant.
type Value struct {
	Cell      string // its name
	Namespace []string
	Key       string
	Value     json.RawMessage
}

// OfTenant returns the shelf of the same kind of another tenant.
func (s *Shelf) OfTenant(tenant string) *Shelf {
	host := *s.host
	host.Tenant = tenant
	return New(&host, s.kind)
}

// Holds reports whether a cell belongs to the shelf's tenant.
func (s *Shelf) Holds(cell string) bool { return strings.HasPrefix(cell, s.root) }

// Everywhere yields the values of the shelf's kind of all tenants, whose cells come
// after the given one. An error is the last thing yielded; damaged records are
// reported after all intact ones.
func (s *Shelf) Everywhere(ctx context.Context, after string) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		var damaged error
		for {
			cells, err := s.cells(ctx, "shelf/"+string(s.kind)+"/", after)
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				yield(Value{}, err)
				return
			}
			damaged = errors.Join(damaged, err)
			for _, cell := range cells {
				after = cell.Key
				v, _, err := valueIn(cell)
				if err != nil {
					damaged = errors.Join(damaged, err)
				} else if !yield(v, nil) {
					return
				}
			}
			if len(cells) < page {
				break
			}
		}
		if damaged != nil {
			yield(Value{}, damaged)
		}
	}
}

func valueIn(cell store.Cell) (Value, *record, error) {
	r := new(record)
	if err := json.Unmarshal(cell.Value, r); err != nil || Check(r.Namespace, r.Key) != nil {
		return Value{}, nil, &store.CorruptError{Cell: cell.Key, Reason: "it is no record of a shelf"}
	}
	return Value{Cell: cell.Key, Namespace: r.Namespace, Key: r.Key, Value: r.Value}, r, nil
}

// errUnchanged ends a rewrite that has nothing to write.
var errUnchanged = errors.New("shelf: nothing to write")

// Rewrite replaces a value that Everywhere yielded by another form of the same, unless
// it is gone or change returns nil. The value keeps its times, and whoever waits for
// the write that made it still recognises it.
func (s *Shelf) Rewrite(ctx context.Context, cell string, change func(Value) (json.RawMessage, error)) (done bool, err error) {
	if err := s.checkMoved(ctx); err != nil {
		return false, err
	}
	_, err = store.Update(ctx, s.host.Store, cell, func(old store.Cell) ([]byte, error) {
		if old.Version == "" {
			return nil, errUnchanged
		}
		old.Key = cell
		v, r, err := valueIn(old)
		if err != nil {
			return nil, err
		}
		r.Value, err = change(v)
		if err == nil && r.Value == nil {
			err = errUnchanged
		}
		if err != nil {
			return nil, err
		}
		return r.encode()
	})
	if errors.Is(err, errUnchanged) {
		return false, nil
	}
	if err == nil {
		err = s.checkKept(ctx)
	}
	return err == nil, err
}
