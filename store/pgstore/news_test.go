package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/storetest"
)

// openSchema opens another handle on a store.
func openSchema(t *testing.T, url string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// follow watches a journal until it has the given number of entries.
func follow(t *testing.T, s store.Store, journal string, until int, saw func(n int)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range store.Watch(ctx, s, journal) {
		entries, err := store.ReadAll(ctx, s, journal, 0)
		if err != nil && !strings.Contains(err.Error(), "unavailable") && !strings.Contains(err.Error(), "57P01") {
			t.Fatal(err)
		}
		if saw(len(entries)); len(entries) >= until {
			return
		}
	}
	t.Fatalf("no wake-up came within a minute")
}

// TestNotifications uses handles that do not poll: they see what others notify.
func TestNotifications(t *testing.T) {
	pgstore.StopPolling(t)
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
	reader, writer := openSchema(t, url), openSchema(t, url)
	next := 0
	follow(t, reader, "j", 20, func(n int) {
		if n < next {
			return
		}
		if next = n + 1; n == 10 { // the connection that listens is lost, when it is no longer new
			time.Sleep(pgstore.SettledAfter())
			admin(t, url2(url), "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
		}
		if _, err := store.AppendOnce(t.Context(), writer, "j", uint64(n), []byte("x"+string(rune('a'+n)))); err != nil {
			t.Fatal(err)
		}
	})
}

// url2 returns a URL without the parameters of pgstore.
func url2(url string) string {
	before, _, _ := strings.Cut(url, "schema=")
	return before + "sslmode=disable"
}

// TestCastsBetweenHandles sends messages of all sizes from one handle to another.
func TestCastsBetweenHandles(t *testing.T) {
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
	listener, sender := openSchema(t, url), openSchema(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, size := range []int{0, 1, 5000, 5830, 5840, 5900, 100_000, 700_000} {
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

// TestListenersAnnounceThemselves has a sender that has seen nobody listen and does
// not look again: it listens too, as workers do, and is told.
func TestListenersAnnounceThemselves(t *testing.T) {
	pgstore.LookOnce(t)
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sender := openSchema(t, url)
	// until returns when hears hears what others cast.
	until := func(hears store.Store, from func() store.Store) {
		heard := make(chan struct{}, 1)
		go store.Hear(ctx, hears, "topic", func([]byte) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		for {
			if err := store.Cast(ctx, from(), "topic", []byte("hello")); err != nil {
				t.Fatal(err)
			}
			select {
			case <-heard:
				return
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("the sender does not know that somebody listens")
			}
		}
	}
	for !pgstore.Unheard(sender) {
		if err := store.Cast(ctx, sender, "topic", []byte("nobody hears this")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	until(sender, func() store.Store { return openSchema(t, url) }) // the sender listens
	until(openSchema(t, url), func() store.Store { return sender })
}

// TestAttend has a sender that has just seen that nobody listens, and would not send for
// a while. What it casts once the listener has attended arrives nevertheless, all of it.
func TestAttend(t *testing.T) {
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sender, listener := openSchema(t, url), openSchema(t, url)
	heard := make(chan string, 1000)
	go listener.Hub.Hear(ctx, "topic", func(m []byte) { heard <- string(m) })
	for got := false; !got; { // what a handle casts itself is heard before Cast returns
		if err := listener.Hub.Cast(ctx, "topic", []byte("own")); err != nil {
			t.Fatal(err)
		}
		got = len(heard) > 0
	}
	for !pgstore.Unheard(sender) {
		if err := store.Cast(ctx, sender, "topic", []byte("nobody hears this")); err != nil {
			t.Fatal(err)
		}
	}
	store.Attend(ctx, listener)
	if err := store.Cast(ctx, sender, "topic", []byte("first")); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case m := <-heard:
			if m == "first" {
				return
			}
		case <-ctx.Done():
			t.Fatal("a message that was cast after the listener attended is lost")
		}
	}
}

// TestBouncer runs the contract, or with -short its hardest case, through a pooler
// that may run each transaction on another connection.
func TestBouncer(t *testing.T) {
	t.Parallel()
	url := pgtest.Bouncer(t)
	open := func(ctx context.Context, dir string) (store.Store, error) {
		return pgstore.Open(ctx, pgtest.Schema(url, dir), pgstore.Options{})
	}
	if testing.Short() {
		storetest.Linearize(t, open, storetest.LinearizeOptions{})
		return
	}
	storetest.Run(t, open)
}

// TestBouncerDirect listens on a connection that bypasses the pooler.
func TestBouncerDirect(t *testing.T) {
	pgstore.StopPolling(t)
	url := pgtest.With(pgtest.Schema(pgtest.Bouncer(t), t.TempDir()), "direct", pgtest.URL(t))
	reader, writer := openSchema(t, url), openSchema(t, url)
	next := 0
	follow(t, reader, "j", 5, func(n int) {
		if n < next {
			return
		}
		next = n + 1
		if _, err := store.AppendOnce(t.Context(), writer, "j", uint64(n), []byte("x"+string(rune('a'+n)))); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBouncerDirectElsewhere: a direct URL that cannot work is refused, and a handle that
// cannot listen says so.
func TestBouncerDirectElsewhere(t *testing.T) {
	bouncer := pgtest.Schema(pgtest.Bouncer(t), t.TempDir())
	for database, want := range map[string]error{"template1": store.ErrInvalid, "none": pgstore.ErrNoDatabase} {
		direct, err := neturl.Parse(pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		direct.Path = "/" + database
		s, err := pgstore.Open(t.Context(), pgtest.With(bouncer, "direct", direct.String()), pgstore.Options{})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "direct URL") {
			t.Errorf("a direct URL of %s: %v, want %v", database, err, want)
		}
		if err == nil {
			s.Close()
		}
	}
	for text, want := range map[string]int{bouncer: 1, pgtest.With(bouncer, "direct", pgtest.URL(t)): 0, pgtest.Schema(pgtest.URL(t), t.TempDir()): 0} {
		found, err := store.Warnings(t.Context(), openSchema(t, text))
		if err != nil || len(found) != want || want == 1 && (found[0].Kind != store.WarnNews || !strings.Contains(found[0].Fix, "?direct=")) {
			t.Errorf("%s: warnings %v, %v; want %d", text, found, err, want)
		}
	}
}
