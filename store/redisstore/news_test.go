package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
)

// TestNotifications uses handles that do not poll: they see what others tell, also
// after the connection that listens was lost.
func TestNotifications(t *testing.T) {
	redisstore.StopPolling(t)
	server := redistest.Start(t)
	reader, writer := openURL(t, server.URL), openURL(t, server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := 0
	for range store.Watch(ctx, reader, "j") {
		entries, err := store.ReadAll(ctx, reader, "j", 0)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		n := len(entries)
		if n >= 20 {
			return
		}
		if n < next {
			continue
		}
		if next = n + 1; n == 10 { // the connection that listens is lost, when it is no longer new
			time.Sleep(redisstore.SettledAfter)
			admin(t, server.URL, "CLIENT KILL TYPE pubsub")
		}
		if _, err := store.AppendOnce(ctx, writer, "j", uint64(n), fmt.Appendf(nil, "entry %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no wake-up came within a minute")
}

// TestCastsBetweenHandles sends messages of all sizes from one handle to another.
func TestCastsBetweenHandles(t *testing.T) {
	url := redistest.Prefix(redistest.URL(t), t.TempDir())
	listener, sender := openURL(t, url), openURL(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, size := range []int{0, 1, 5000, 100_000, 700_000} {
		want := bytes.Repeat([]byte{0, 0xff, 'x'}, size/3+1)[:size]
		topic, heard := fmt.Sprintf("topic\x00%d", size), make(chan []byte, 1000)
		hearing, stop := context.WithCancel(ctx)
		go store.Hear(hearing, listener, topic, func(m []byte) { heard <- bytes.Clone(m) })
		for got := false; !got; { // messages may be lost, such as the first ones before the listener is known
			if err := store.Cast(ctx, sender, topic, want); err != nil {
				t.Fatal(err)
			}
			select {
			case m := <-heard:
				if got = true; !bytes.Equal(m, want) {
					t.Fatalf("a message of %d bytes arrived with %d", size, len(m))
				}
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("a message of %d bytes did not arrive", size)
			}
		}
		stop()
	}
}
