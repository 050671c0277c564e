package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/store/memstore"
)

// Values have versions: a writer learns if another has changed the value in the
// meantime.
func ExampleMemory() {
	ctx := context.Background()
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{})
	if err != nil {
		panic(err)
	}
	m := memory.Of(rt)
	ann := memory.User("ann")
	version, err := m.Put(ctx, ann, "diet", "vegetarian", memory.PutOptions{})
	fmt.Println(err)
	_, err = m.Put(ctx, ann, "diet", "vegan", memory.PutOptions{Version: version})
	fmt.Println(err)
	_, err = m.Put(ctx, ann, "diet", "all", memory.PutOptions{Version: version})
	fmt.Println(errors.Is(err, memory.ErrConflict))
	for item, err := range m.List(ctx, ann, memory.ListOptions{Query: "vegan"}) {
		fmt.Println(item.Key, string(item.Value), err)
	}
	// Output:
	// <nil>
	// <nil>
	// true
	// diet "vegan" <nil>
}
