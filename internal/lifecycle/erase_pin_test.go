package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// halfFork begins a fork of a thread, and stops before its first entry. The
// function that it returns lets it continue; if nobody calls that, it died
// there.
func halfFork(t *testing.T, s store.Store, id, of string) (begin func() error) {
	t.Helper()
	held := false
	frozen := faulty.New(s, func(c faulty.Call) faulty.Fault {
		if c.Op != store.OpAppend || held {
			return faulty.None
		}
		held = true
		return faulty.Freeze
	})
	rt := kit.Runtime(t, frozen, perdure.Options{})
	forked := make(chan error, 1)
	go func() {
		_, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: of, As: id})
		forked <- err
	}()
	if synctest.Wait(); frozen.Frozen() != 1 {
		t.Fatalf("fork %s is not about to append", id)
	}
	return func() error {
		frozen.Thaw()
		return <-forked
	}
}

// family makes thread "p" with forks and a child, and with a fork and a child
// that never began. Its worker died when it was about to begin the last one.
func family(t *testing.T, s store.Store) (rt *perdure.Runtime, child string) {
	t.Helper()
	flow := perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
		for _, name := range []string{"child", "no child"} {
			if _, err := perdure.Spawn(ctx, name, "nobody's", kit.Large); err != nil {
				return "", err
			}
		}
		return "", errors.New("nobody died")
	})
	hints := 0
	dying := faulty.New(kit.Plain(s), func(c faulty.Call) faulty.Fault {
		if c.Op == store.OpPut && strings.HasPrefix(c.Name, "due/nobody") {
			hints++
		}
		if hints == 2 {
			return faulty.CrashBefore
		}
		return faulty.None
	})
	k := kit.NewMortal(t, dying, perdure.Options{}, flow)
	k.StartOn("p", "parent", kit.Large)
	k.Rest()
	if !dying.Crashed() {
		t.Fatal("the worker lives")
	}
	rt = kit.Runtime(t, s, perdure.Options{}, eraseFlows()...)
	run, err := rt.GetRun(t.Context(), "p", "")
	if err != nil || len(run.Children) != 2 {
		t.Fatalf("%+v, %v", run, err)
	}
	child = run.Children[0].Thread
	for id, of := range map[string]string{"fork": "p", "fork of child": child} {
		if _, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: of, As: id}); err != nil {
			t.Fatal(err)
		}
	}
	halfFork(t, s, "no fork", "p")
	return rt, child
}

func TestForksAndChildrenKeepAThreadFromBeingErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt, child := family(t, s)
		for thread, by := range map[string][]string{"p": {child, "fork"}, child: {"fork of child"}} {
			err := rt.Erase(t.Context(), thread, perdure.EraseOptions{})
			var pinned *perdure.PinnedError
			if !errors.As(err, &pinned) || pinned.Thread != thread || !slices.Equal(slices.Sorted(slices.Values(pinned.By)), slices.Sorted(slices.Values(by))) || !errors.Is(err, perdure.ErrPinned) {
				t.Errorf("erasing %s: %v, want a PinnedError by %q", thread, err, by)
			}
			if _, err := rt.Get(t.Context(), thread); err != nil {
				t.Errorf("thread %s after it was refused: %v", thread, err)
			}
		}
		// What is refused can still be forked.
		_, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: "p", As: "another"})
		kit.WantErr(t, "Fork", err, nil)
		for _, id := range []string{"another", "fork of child", child, "fork", "p"} {
			kit.WantErr(t, "Erase "+id, rt.Erase(t.Context(), id, perdure.EraseOptions{}), nil)
		}
		// What never began went with "p".
		kit.WantNothing(t, s)
	})
}

func TestEraseTakesForksAndChildrenAlongWhenToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt, _ := family(t, s)
		kit.WantErr(t, "Erase", rt.Erase(t.Context(), "p", perdure.EraseOptions{Dependents: true}), nil)
		kit.WantNothing(t, s)
	})
}

func TestAnErasedForkOrChildPinsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt, child := family(t, s)
		for _, id := range []string{"fork of child", child, "fork"} {
			kit.WantErr(t, "Erase "+id, rt.Erase(t.Context(), id, perdure.EraseOptions{}), nil)
		}
		pins := slices.DeleteFunc(kit.Leftovers(t, s), func(left string) bool { return !strings.HasPrefix(left, "cell pin/") })
		if len(pins) != 2 { // of what never began
			t.Errorf("pins are left: %q", pins)
		}
		kit.WantErr(t, "Erase", rt.Erase(t.Context(), "p", perdure.EraseOptions{}), nil)
		kit.WantNothing(t, s)
	})
}
