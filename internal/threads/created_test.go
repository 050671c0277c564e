package threads_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// counting counts the cells of the index that lists read, and fails appends.
type counting struct {
	store.Store
	cells atomic.Int64
	fails atomic.Bool
}

func (c *counting) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if c.fails.Load() {
		return 0, errors.New("the process dies")
	}
	return c.Store.Append(ctx, journal, after, entries...)
}

func (c *counting) Unwrap() store.Store { return c.Store }

func (c *counting) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		for cell, err := range c.Store.List(ctx, prefix, after) {
			if strings.HasPrefix(cell.Key, "index/") {
				c.cells.Add(1)
			}
			if !yield(cell, err) {
				return
			}
		}
	}
}

// TestListsByCreation: a list of threads that were created within a time has all of
// them, also those whose name was made long before, and reads few others.
func TestListsByCreation(t *testing.T) {
	kit.Bubble(t, "plain", func(t *testing.T) {
		const n, strays = 200, 5
		s := &counting{Store: memstore.New()}
		k := kit.New(t, kit.Plain(s), perdure.Options{}, kit.EchoFlow("echo"))
		k.Stop() // it would do nothing for days
		created := map[string]time.Time{}
		began := time.Now()
		for i := range n {
			id := fmt.Sprint("t", i)
			th, err := k.Create(t.Context(), perdure.CreateRequest{Thread: id, User: []string{"ann", "bob"}[i%2]})
			kit.NoErr(t, err)
			created[id] = th.Created
			if i%40 == 20 {
				var file bytes.Buffer
				kit.NoErr(t, k.Export(t.Context(), fmt.Sprint("t", i/2), &file, perdure.ExportOptions{}))
				in, err := k.Import(t.Context(), &file, perdure.ImportOptions{As: fmt.Sprint("import", i)})
				kit.NoErr(t, err)
				th, err := k.Get(t.Context(), in)
				kit.NoErr(t, err)
				created[in] = th.Created
			}
			if i < strays { // their names are of the first hours
				s.fails.Store(true)
				if _, err := k.Create(t.Context(), perdure.CreateRequest{Thread: fmt.Sprint("stray", i), User: "ann"}); err == nil {
					t.Fatal("nothing has failed")
				}
				s.fails.Store(false)
			}
			if i%20 == 7 && i/20 < strays {
				th, err := k.Create(t.Context(), perdure.CreateRequest{Thread: fmt.Sprint("stray", i/20), User: "ann"})
				kit.NoErr(t, err)
				created[th.ID] = th.Created
			}
			time.Sleep(time.Duration(rand.IntN(int(2 * time.Hour))))
		}
		span := time.Since(began)
		for range 60 {
			from := began.Add(time.Duration(rand.Int64N(int64(span))))
			if rand.IntN(2) == 0 { // the very moment of a creation
				from = created[fmt.Sprint("t", rand.IntN(n))]
			}
			o := perdure.ListOptions{Created: from, CreatedBefore: from.Add(time.Duration(rand.Int64N(int64(12 * time.Hour))))}
			switch rand.IntN(8) {
			case 0:
				o.Created = time.Time{}
			case 1:
				o.CreatedBefore = time.Time{}
			case 2, 3:
				o.User = "ann"
			}
			want := map[string]bool{}
			for s, err := range k.List(t.Context(), perdure.ListOptions{User: o.User}) {
				kit.NoErr(t, err)
				if at := created[s.ID]; !at.Before(o.Created) && (o.CreatedBefore.IsZero() || at.Before(o.CreatedBefore)) {
					want[s.ID] = true
				}
			}
			read := s.cells.Load()
			got := map[string]bool{}
			for o.After, o.Limit = "", 1+rand.IntN(10); ; {
				found := 0
				for s, err := range k.List(t.Context(), o) {
					kit.NoErr(t, err)
					if got[s.ID] {
						t.Errorf("%s is there twice", s.ID)
					}
					got[s.ID], o.After = true, s.Cursor
					found++
				}
				if found < o.Limit {
					break
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%v to %v of %q: %s", o.Created, o.CreatedBefore, o.User, d)
			}
			read = s.cells.Load() - read
			if pages := int64(len(want)/o.Limit + 1); !o.Created.IsZero() && !o.CreatedBefore.IsZero() && read > 2*int64(len(want))+20*pages {
				t.Errorf("%d cells of the index were read for %d threads in %d pages", read, len(want), pages)
			}
		}
	})
}

// TestABurstByCreation: a page of a list by creation reads what it shows and little more,
// however many threads were created around its time.
func TestABurstByCreation(t *testing.T) {
	kit.Bubble(t, "plain", func(t *testing.T) {
		const n, pause, limit = 400, 20 * time.Millisecond, 5
		s := &counting{Store: memstore.New()}
		k := kit.New(t, kit.Plain(s), perdure.Options{}, kit.EchoFlow("echo"))
		k.Stop()
		created := make([]time.Time, n)
		for i := range n {
			th, err := k.Create(t.Context(), perdure.CreateRequest{Thread: fmt.Sprint("t", i)})
			kit.NoErr(t, err)
			created[i] = th.Created
			time.Sleep(pause)
		}
		beyond := int64(time.Second / pause)
		for _, c := range []struct {
			o    perdure.ListOptions
			want int // the first thread of the list
			most int64
		}{
			{perdure.ListOptions{CreatedBefore: created[n/2]}, n/2 - 1, 8 * limit},
			{perdure.ListOptions{Created: created[n-limit+1]}, n - 1, 8*limit + beyond},
			{perdure.ListOptions{Created: created[n/2], CreatedBefore: created[n/2+limit-1]}, n/2 + limit - 2, 8*limit + beyond},
		} {
			c.o.Limit = limit
			before, first := s.cells.Load(), ""
			for s, err := range k.List(t.Context(), c.o) {
				kit.NoErr(t, err)
				if first == "" {
					first = s.ID
				}
			}
			if read := s.cells.Load() - before; read > c.most || first != fmt.Sprint("t", c.want) {
				t.Errorf("%v: %d cells of the index were read, at most %d should be; the first thread is %s, want t%d", c.o, read, c.most, first, c.want)
			}
		}
	})
}

// TestCreatedWhenItWasAskedFor: a thread is as old as its name, by which lists find it,
// also if the store is slow.
func TestCreatedWhenItWasAskedFor(t *testing.T) {
	kit.Bubble(t, "slow", func(t *testing.T) {
		k := kit.New(t, hesitant{memstore.New()}, perdure.Options{}, kit.EchoFlow("echo"))
		for i := range 20 {
			asked := time.Now().Truncate(time.Microsecond)
			th, err := k.Create(t.Context(), perdure.CreateRequest{Thread: fmt.Sprint("t", i)})
			kit.NoErr(t, err)
			if !th.Created.Equal(asked) {
				t.Errorf("thread %d was created %v after it was asked for", i, th.Created.Sub(asked))
			}
		}
	})
}
