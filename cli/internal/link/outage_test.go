package link

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// TestAFullStoreIsTold to the person whose command waits for it, and when it is over.
func TestAFullStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := false
		store.Register("fills", func(context.Context, string) (store.Store, error) {
			return &filled{memstore.New(), &full}, nil
		})
		hints := make(chan string, 9)
		c := &Connector{Store: "fills:", Verb: "run", Hint: func(format string, args ...any) { hints <- fmt.Sprintf(format, args...) }}
		rt, closeStore, err := c.OpenRuntime(t.Context(), c.Store, perdure.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer closeStore()
		write := func() { _, _ = rt.Create(t.Context(), perdure.CreateRequest{}) }
		full = true
		write() // gives up sooner
		if len(hints) != 0 {
			t.Errorf("a command that ends says %q", <-hints)
		}
		time.Sleep(outage)
		synctest.Wait()
		full = false
		time.Sleep(2 * time.Second)
		write()
		synctest.Wait()
		close(hints)
		if down, up := <-hints, <-hints; !strings.Contains(down, "no space left") || !strings.Contains(up, "again") || len(hints) != 0 {
			t.Errorf("a command that waits says %q and %q, and %d more", down, up, len(hints))
		}
	})
}

// filled is a store that is full now and then.
type filled struct {
	store.Store
	full *bool
}

func (f *filled) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if *f.full {
		return "", store.ErrFull
	}
	return f.Store.Put(ctx, key, value, prev)
}

func (f *filled) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if *f.full {
		return 0, store.ErrFull
	}
	return f.Store.Append(ctx, journal, after, entries...)
}
