package s3store_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store/s3store"
)

func ExampleOpen() {
	ctx := context.Background()
	server := httptest.NewServer(s3test.NewFake()) // or https://s3.eu-west-1.amazonaws.com
	defer server.Close()
	s, err := s3store.Open(ctx, "s3://"+s3test.Bucket+"/agents", s3store.Options{
		Endpoint: server.URL, Region: "us-east-1", AccessKey: "key", SecretKey: "secret",
	})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	last, err := s.Append(ctx, "thread", 0, []byte("hello"), []byte("world"))
	fmt.Println(last, err, s.Durability())
	// Output: 2 <nil> power
}
