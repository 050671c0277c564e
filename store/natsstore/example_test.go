package natsstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
)

func Example() {
	ctx := context.Background()
	s, err := natsstore.Open(ctx, "nats://app:secret@a.example,b.example,c.example", natsstore.Options{Replicas: 3})
	if err != nil {
		log.Fatal(err) // says what to do about it
	}
	defer s.Close()
	fmt.Println("acknowledged writes survive:", s.Durability())
	if _, err := store.AppendOnce(ctx, s, "journal", 0, []byte(`{"id":"first"}`)); err != nil {
		log.Fatal(err)
	}
}
