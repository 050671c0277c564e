package pgstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
)

func Example() {
	ctx := context.Background()
	s, err := pgstore.Open(ctx, "postgres://app@db.example/app", pgstore.Options{Schema: "agents"})
	if err != nil {
		log.Fatal(err) // says what to do about it
	}
	defer s.Close()
	fmt.Println("acknowledged writes survive:", s.Durability())
	if _, err := store.AppendOnce(ctx, s, "journal", 0, []byte(`{"id":"first"}`)); err != nil {
		log.Fatal(err)
	}
}
