package upstashstore_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/store/upstashstore"
)

func ExampleOpen() {
	_, err := upstashstore.Open(context.Background(), "upstash://:token@merry-cat-32748.upstash.io", upstashstore.Options{})
	fmt.Println(err)
	// Output: store: invalid call: upstashstore: the URL of merry-cat-32748.upstash.io holds a token, which would end up in logs; set UPSTASH_REDIS_REST_TOKEN instead; write it like upstash://HOST?prefix=NAME
}
