package seal_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// A store is sealed, and its key changed.
func Example() {
	ctx := context.Background()
	inner := memstore.New() // any store

	ring, err := seal.ParseRing("2026-05:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := seal.New(ctx, inner, ring)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = s.Append(ctx, "thread", 0, []byte("hello"))

	// Half a year later there is a new key, in front of the old one.
	ring, _ = seal.ParseRing("2026-11:ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=,2026-05:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	s, _ = seal.New(ctx, inner, ring)
	rotated, err := s.Rotate(ctx)
	fmt.Println(ring, rotated, err)

	// And the old one can go.
	ring, _ = seal.ParseRing("2026-11:ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=")
	s, err = seal.New(ctx, inner, ring)
	if err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range s.Read(ctx, "thread", 0) {
		fmt.Println(e.Seq, string(e.Data), err)
	}
	// Output:
	// seal.Ring(primary 2026-11 of 2026-05, 2026-11) 2 <nil>
	// 1 hello <nil>
}
