package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
)

func Example() {
	ctx := context.Background()
	s, err := redisstore.Open(ctx, "redis://:password@redis.example:6379/0", redisstore.Options{Prefix: "agents"})
	if err != nil {
		log.Fatal(err) // says what to do about it
	}
	defer s.Close()
	fmt.Println("acknowledged writes survive:", s.Durability(), s.Weakness())
	if _, err := store.AppendOnce(ctx, s, "journal", 0, []byte(`{"id":"first"}`)); err != nil {
		log.Fatal(err)
	}
}
