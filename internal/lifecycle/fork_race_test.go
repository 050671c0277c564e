package lifecycle_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestAChildThatIsTakenBackHasToldItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		flows := []perdure.Flow{spawnJoin[int]("slow", 21), perdure.NewFlow("slow", func(ctx context.Context, n int) (int, error) {
			return n + n, perdure.Sleep(ctx, "nap", time.Second) // its parent waits by then
		})}
		var dying *kit.Mortal
		hooked := &kit.AppendHook{Store: inner, Before: func(_, lines string) {
			if strings.Contains(lines, `"k":"ended"`) {
				dying.Die()
			}
		}}
		dying = kit.NewMortal(t, hooked, perdure.Options{}, flows...)
		dying.StartOn("p", "parent", "")
		dying.Rest()
		dying.Stop()
		k := &kit.Kit{Runtime: kit.Runtime(t, inner, perdure.Options{}, flows...), T: t}
		child := childOf(k, "p", 0)
		settledAs(k, child, perdure.Succeeded)
		dead := settledAs(k, "p", perdure.Suspended) // nobody has told it
		if len(dead.Waits) != 1 {
			t.Fatalf("%+v", dead.Waits)
		}
		if _, err := k.Rewind(t.Context(), child, 1, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		alive := kit.New(t, inner, perdure.Options{}, flows...)
		for range 12 {
			alive.Rest()
		}
		if run := settledAs(alive, "p", perdure.Succeeded); string(run.Output) != "42" {
			t.Errorf("%s", run.Output)
		}
	})
}

// reads is a store that calls something after the n-th read of a journal that
// finds nothing.
type reads struct {
	store.Store
	n     int
	empty func()
}

func (s *reads) Unwrap() store.Store { return s.Store }

func (s *reads) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for e, err := range s.Store.Read(ctx, journal, after) {
			n++
			if !yield(e, err) {
				return
			}
		}
		if n > 0 {
			return
		}
		if s.n--; s.n == 0 {
			s.empty()
		}
	}
}

func TestAForkThatBeginsWhileItIsReadIsNotDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		k := kit.New(t, inner, perdure.Options{}, kit.EchoFlow("echo"))
		k.StartOn("t", "echo", "one")
		k.WaitFor("t", perdure.Succeeded)
		for n := range 5 {
			id := strings.Repeat("f", n+1)
			begin := halfFork(t, inner, id, "t")
			s := &reads{Store: inner, n: n + 1}
			s.empty = func() {
				if err := begin(); err != nil {
					t.Error(err)
				}
			}
			rt := kit.Runtime(t, s, perdure.Options{}, kit.EchoFlow("echo"))
			if _, err := rt.Get(t.Context(), id); err != nil && !errors.Is(err, perdure.ErrNoThread) {
				t.Error(err)
			}
			if s.n > 0 {
				return // Get reads it less often
			}
			if thread, err := rt.Get(t.Context(), id); err != nil || len(thread.Runs) != 1 {
				t.Errorf("%v: %+v", err, thread)
			}
		}
	})
}
