package shelf_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// TestNoIncrementIsLost lets two writers add one each by version, in every
// order, with conflicts for no reason and lost answers. One who is told that
// nobody knows stops, and may have added.
func TestNoIncrementIsLost(t *testing.T) {
	explore.Run(t, explore.Config{Unknowns: 1, Conflicts: 1}, func(w *explore.World) {
		unknown := 0
		add := func(name string) func(context.Context, store.Store) error {
			return func(ctx context.Context, st store.Store) error {
				s := shelf.New(hostOf(st, ""), shelf.Memory)
				for range 4 {
					n, o := 0, shelf.PutOptions{Create: true}
					item, err := s.Get(ctx, nil, "n")
					if err == nil {
						n, err = strconv.Atoi(string(item.Value))
						o = shelf.PutOptions{Version: item.Version}
					}
					if err != nil && !errors.Is(err, shelf.ErrNotFound) {
						return err
					}
					o.Once = name
					_, err = s.Put(ctx, nil, "n", []byte(strconv.Itoa(n+1)), o)
					if errors.Is(err, store.ErrUnknown) {
						unknown++ // there is at most one
						return nil
					}
					if !errors.Is(err, shelf.ErrConflict) {
						return err
					}
				}
				return errors.New("too many conflicts")
			}
		}
		w.Actor("a", add("a"))
		w.Actor("b", add("b"))
		w.Check(func(ctx context.Context, st store.Store) error {
			item, err := shelf.New(hostOf(st, ""), shelf.Memory).Get(ctx, nil, "n")
			if err != nil {
				return err
			}
			if n, err := strconv.Atoi(string(item.Value)); err != nil || n > 2 || n < 2-unknown {
				return fmt.Errorf("two increments, %d of them unknown, make %s", unknown, item.Value)
			}
			return w.Settled()
		})
	})
}

func TestOfManyCreatorsOneWins(t *testing.T) {
	s := shelf.New(hostOf(memstore.New(), ""), shelf.Memory)
	const writers = 16
	won := make(chan bool, writers)
	free := make(chan error, writers)
	for i := range writers {
		go func() {
			_, err := s.Put(t.Context(), nil, "k", []byte(strconv.Itoa(i)), shelf.PutOptions{Create: true})
			won <- err == nil
			_, err = s.Put(t.Context(), nil, "free", []byte(strconv.Itoa(i)), shelf.PutOptions{})
			free <- err
		}()
	}
	n := 0
	for range writers {
		if <-won {
			n++
		}
		if err := <-free; err != nil {
			t.Errorf("a writer that expects nothing: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d of %d creators won", n, writers)
	}
}
