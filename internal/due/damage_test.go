package due_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// rotten is a store in which a cell without a value is damaged.
type rotten struct{ store.Store }

func (s rotten) Get(ctx context.Context, key string) (store.Cell, error) {
	cell, err := s.Store.Get(ctx, key)
	if err == nil && len(cell.Value) == 0 {
		return store.Cell{}, &store.CorruptError{Cell: key, Version: cell.Version, Reason: "it is rotten"}
	}
	return cell, err
}

// TestADamagedHintIsWrittenAnew: what it said may be due by now.
func TestADamagedHintIsWrittenAnew(t *testing.T) {
	const thread = "0123456789abcdef.0sg63dxnmse10re39rpp0e818kg5qga2apry6mgy"
	ctx, s := t.Context(), rotten{memstore.New()}
	if err := due.Announce(ctx, s, "flow", thread, 1, 50); err != nil {
		t.Fatal(err)
	}
	rot := func() {
		for cell, err := range s.List(ctx, due.Prefix("flow"), "") {
			if _, putErr := s.Put(ctx, cell.Key, nil, cell.Version); putErr != nil || err != nil {
				t.Fatal(putErr, err)
			}
		}
	}
	rot()
	if err := due.Announce(ctx, s, "flow", thread, 2, 100); err != nil {
		t.Fatal(err)
	}
	if h, there, err := due.Get(ctx, s, "flow", thread); err != nil || !there || h.Err != nil || h.Seq != 2 || h.Due != 1 {
		t.Errorf("%+v, %v, %v", h, there, err)
	}
	rot()
	if err := due.Forget(ctx, s, "flow", thread); err != nil {
		t.Error(err)
	}
}
