package duty_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/duty"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

const (
	key   = "duty"
	lease = 4 * time.Second
)

// newHold returns a hold of the cell as it is, whose content is the name and the number
// of the write.
func newHold(t *testing.T, s store.Store, name string) *duty.Hold {
	t.Helper()
	cell, err := s.Get(t.Context(), key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	writes := 0
	return &duty.Hold{Store: s, Key: key, Version: cell.Version, Lease: lease, Encode: func() ([]byte, error) {
		writes++
		return fmt.Appendf(nil, "%s %d", name, writes), nil
	}}
}

// content returns what the cell holds.
func content(t *testing.T, s store.Store) string {
	t.Helper()
	cell, err := s.Get(t.Context(), key)
	kit.NoErr(t, err)
	return string(cell.Value)
}

// TestOneOfTwoHolds has two that saw the same cell, at first and later, and one whose
// cell is removed.
func TestOneOfTwoHolds(t *testing.T) {
	s := memstore.New()
	for _, want := range []string{"a 1", "b 1"} {
		first, second := newHold(t, s, want[:1]), newHold(t, s, "late")
		kit.NoErr(t, first.Save(t.Context()))
		kit.WantErr(t, "the second", second.Save(t.Context()), duty.ErrLost)
		if got := content(t, s); got != want {
			t.Errorf("the cell holds %q, want %q", got, want)
		}
	}
	h := newHold(t, s, "c")
	kit.NoErr(t, s.Delete(t.Context(), key, h.Version))
	kit.WantErr(t, "a cell that was removed", h.Save(t.Context()), duty.ErrLost)
}

// broken is a store of which some puts fail, before or after they have happened.
type broken struct {
	store.Store
	err   error
	fails func(put int) bool
	after bool
	puts  int
}

func (b *broken) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	b.puts++
	if !b.fails(b.puts) {
		return b.Store.Put(ctx, key, value, prev)
	}
	if b.after {
		if _, err := b.Store.Put(ctx, key, value, prev); err != nil {
			return "", err
		}
	}
	return "", b.err
}

// TestSaveKnowsItsOwnWrite fails puts in every way that leaves the cell held.
func TestSaveKnowsItsOwnWrite(t *testing.T) {
	for name, how := range map[string]broken{
		"refused without a reason": {err: store.ErrConflict},
		"not possible for now":     {err: store.ErrUnavailable},
		"unanswered":               {err: errors.New("the line is dead"), after: true},
		"refused though it was":    {err: store.ErrConflict, after: true},
	} {
		for at := range 3 {
			kit.Bubble(t, fmt.Sprint(name, " ", at), func(t *testing.T) {
				s := how
				s.Store, s.fails = memstore.New(), func(put int) bool { return put == at+1 }
				h := newHold(t, &s, "a")
				for i := range 3 {
					kit.NoErr(t, h.Save(t.Context()))
					if got, want := content(t, &s), fmt.Sprint("a ", i+1); got != want {
						t.Errorf("the cell holds %q, want %q", got, want)
					}
				}
				if s.puts < 3 {
					t.Errorf("only %d puts", s.puts)
				}
			})
		}
	}
}

// TestSaveWaitsForTheStore tells errors that pass from others.
func TestSaveWaitsForTheStore(t *testing.T) {
	always := func(int) bool { return true }
	for _, passing := range []error{store.ErrUnavailable, store.ErrFull, store.ErrBusy} {
		kit.Bubble(t, passing.Error(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			kit.WantErr(t, "an outage of more than an hour", newHold(t, &broken{Store: memstore.New(), err: passing, fails: always}, "a").Save(ctx), context.DeadlineExceeded)
		})
	}
	lasting := errors.New("no such disk")
	kit.WantErr(t, "an error that lasts", newHold(t, &broken{Store: memstore.New(), err: lasting, fails: always}, "a").Save(t.Context()), lasting)
}

// TestMerge has others change the cell of a hold that takes over what they write, if it
// begins with its name.
func TestMerge(t *testing.T) {
	s := memstore.New()
	h := newHold(t, s, "a")
	said := ""
	encode := h.Encode
	h.Encode = func() ([]byte, error) {
		value, err := encode()
		return append(value, said...), err
	}
	h.Merge = func(value []byte) bool {
		_, what, mine := strings.Cut(string(value), "a: ")
		said = " " + what
		return mine
	}
	kit.NoErr(t, h.Save(t.Context()))
	_, err := s.Put(t.Context(), key, []byte("a: stop"), h.Version)
	kit.NoErr(t, err)
	kit.NoErr(t, h.Save(t.Context()))
	if got := content(t, s); got != "a 3 stop" {
		t.Errorf("the cell holds %q", got)
	}
	_, err = s.Put(t.Context(), key, []byte("b: mine"), h.Version)
	kit.NoErr(t, err)
	kit.WantErr(t, "a cell of another", h.Save(t.Context()), duty.ErrLost)
	if got := content(t, s); got != "b: mine" {
		t.Errorf("the cell holds %q", got)
	}
}

// TestOthersWaitWhileItIsHeld looks at a cell all the time, while its holder works,
// pauses, and dies.
func TestOthersWaitWhileItIsHeld(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		s := memstore.New()
		h := newHold(t, s, "a")
		kit.NoErr(t, h.Save(t.Context()))
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			for sights := (duty.Sights{}); ctx.Err() == nil; time.Sleep(lease / 3) {
				cell, err := s.Get(t.Context(), key)
				if err != nil || sights.Wait(cell, lease) == 0 {
					t.Errorf("the holder is presumed dead: %v", err)
				}
			}
		}()
		kit.NoErr(t, h.During(ctx, func(context.Context) error {
			time.Sleep(10 * lease)
			return nil
		}))
		kit.NoErr(t, h.Pause(ctx, 10*lease))
		for range 100 {
			kit.NoErr(t, h.Pause(ctx, 0))
			time.Sleep(lease / 5)
		}
		stop()
		<-over
		kit.WantErr(t, "a pause of one who stops", h.Pause(ctx, lease), context.Canceled)

		cell, err := s.Get(t.Context(), key)
		kit.NoErr(t, err)
		sights := duty.Sights{}
		for range 2 { // the second one sees it anew
			if left := sights.Wait(cell, lease); left != lease {
				t.Errorf("%v are left of the lease", left)
			}
			time.Sleep(lease - time.Millisecond)
			if left := sights.Wait(cell, lease); left != time.Millisecond {
				t.Errorf("%v are left of the lease", left)
			}
			kit.NoErr(t, h.Save(t.Context()))
			cell, err = s.Get(t.Context(), key)
			kit.NoErr(t, err)
		}
		sights.Wait(cell, lease)
		time.Sleep(lease)
		if left := sights.Wait(cell, lease); left != 0 {
			t.Errorf("%v are left of the lease of a dead holder", left)
		}
	})
}

// TestWorkEndsWhenTheCellIsLost takes the cell from a holder that works.
func TestWorkEndsWhenTheCellIsLost(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		s := memstore.New()
		h := newHold(t, s, "a")
		kit.NoErr(t, h.Save(t.Context()))
		result := make(chan error)
		ended := false
		go func() {
			result <- h.During(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				ended = true
				return ctx.Err()
			})
		}()
		synctest.Wait()
		kit.NoErr(t, newHold(t, s, "b").Save(t.Context()))
		kit.WantErr(t, "work that goes on", <-result, duty.ErrLost)
		if !ended {
			t.Error("the work did not end")
		}
		failed := errors.New("out of paper")
		kit.WantErr(t, "an error of the work", newHold(t, s, "c").During(t.Context(), func(context.Context) error { return failed }), failed)
	})
}
