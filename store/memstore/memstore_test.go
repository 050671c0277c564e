package memstore_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(ctx context.Context, dir string) (store.Store, error) {
		return store.Open(ctx, "memory:"+dir)
	})
}

func TestNamedMemoryEndsWithItsLastHandle(t *testing.T) {
	ctx := t.Context()
	a, b := memstore.Open(t.Name()), memstore.Open(t.Name())
	if _, err := a.Append(ctx, "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a.Close()
	if entries, err := store.ReadAll(ctx, b, "j", 0); err != nil || len(entries) != 1 {
		t.Fatalf("the other handle reads %d entries, %v", len(entries), err)
	}
	b.Close()
	c := memstore.Open(t.Name())
	defer c.Close()
	if entries, err := store.ReadAll(ctx, c, "j", 0); err != nil || len(entries) != 0 {
		t.Fatalf("a memory without handles kept %d entries, %v", len(entries), err)
	}
	if entries, err := store.ReadAll(ctx, memstore.New(), "j", 0); err != nil || len(entries) != 0 {
		t.Fatalf("a memory of its own has %d entries, %v", len(entries), err)
	}
}
