package faulty_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// An append whose answer is lost: AppendOnce looks, and finds its entry.
func Example() {
	ctx := context.Background()
	s := faulty.New(memstore.New(), faulty.AtWrite(1, faulty.FailAfter))
	last, err := store.AppendOnce(ctx, s, "thread", 0, []byte("entry-7c1f"))
	fmt.Println(last, err)
	// Output: 1 <nil>
}

// A program is cut before and after each of its writes, and must end with one
// entry and one cell when it is run again.
func ExampleSweep() {
	ctx := context.Background()
	program := func(s store.Store) error {
		_, err := store.AppendOnce(ctx, s, "thread", 0, []byte("entry-7c1f"))
		if err != nil {
			return err
		}
		_, err = s.Put(ctx, "done", nil, "")
		if errors.Is(err, store.ErrConflict) {
			return nil
		}
		return err
	}
	for cut, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter) {
		inner := memstore.New()
		died := program(faulty.New(inner, plan)) != nil
		fmt.Println(cut, "died:", died, "run again:", program(inner))
	}
	// Output:
	// crash before at write 1 died: true run again: <nil>
	// crash after at write 1 died: true run again: <nil>
	// crash before at write 2 died: true run again: <nil>
	// crash after at write 2 died: true run again: <nil>
	// crash before at write 3 died: false run again: <nil>
	// crash after at write 3 died: false run again: <nil>
}
