package store_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// A journal is appended to by naming the last sequence that one has seen.
func Example() {
	ctx := context.Background()
	s, err := store.Open(ctx, "memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	last, _ := s.Append(ctx, "greetings", 0, []byte("hello"), []byte("good morning"))
	fmt.Println("the journal ends at", last)

	// Another writer that saw nothing yet loses.
	_, err = s.Append(ctx, "greetings", 0, []byte("good evening"))
	fmt.Println("conflict:", errors.Is(err, store.ErrConflict))

	for e, err := range s.Read(ctx, "greetings", 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s\n", e.Seq, e.Data)
	}
	// Output:
	// the journal ends at 2
	// conflict: true
	// 1 hello
	// 2 good morning
}

// AppendOnce tells for sure whether an append happened.
func ExampleAppendOnce() {
	ctx := context.Background()
	s := memstore.New()
	defer s.Close()
	last, err := store.AppendOnce(ctx, s, "j", 0, []byte(`{"id":"5f0c","kind":"started"}`))
	fmt.Println(last, err)
	// Output: 1 <nil>
}

// A cell is written over the version that one has seen.
func ExampleUpdate() {
	ctx := context.Background()
	s := memstore.New()
	defer s.Close()
	for range 3 {
		_, err := store.Update(ctx, s, "visits", func(old store.Cell) ([]byte, error) {
			return append(old.Value, '|'), nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	cell, _ := s.Get(ctx, "visits")
	fmt.Printf("%s\n", cell.Value)
	// Output: |||
}

// Watch and Read together follow a journal without missing an entry.
func ExampleWatch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := memstore.New()
	defer s.Close()
	_, _ = s.Append(ctx, "j", 0, []byte("there before"))

	var seen uint64
	for range store.Watch(ctx, s, "j") {
		for e, err := range s.Read(ctx, "j", seen) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%s\n", e.Data)
			seen = e.Seq
		}
		if seen == 2 {
			cancel() // ends the loop
			continue
		}
		_, _ = s.Append(ctx, "j", seen, []byte("came while watching"))
	}
	// Output:
	// there before
	// came while watching
}

// A thread is dropped for ever: its name cannot be used again.
func ExampleStore_drop() {
	ctx := context.Background()
	s := memstore.New()
	defer s.Close()
	_, _ = s.Append(ctx, "j", 0, []byte("secret"))
	_ = s.Drop(ctx, "j")
	_, err := s.Append(ctx, "j", 0, []byte("again"))
	fmt.Println(errors.Is(err, store.ErrDropped))
	// Output: true
}
