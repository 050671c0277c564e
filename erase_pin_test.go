package perdure_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// depend makes a thread that depends on another.
func depend(t *testing.T, rt *perdure.Runtime, id, of string, fork bool) {
	t.Helper()
	begin, err := perdure.Halfway(t.Context(), rt, id, of, fork)
	if err == nil {
		err = begin(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// family makes thread "p" with forks and children, some of which never began.
func family(t *testing.T, s store.Store) *perdure.Runtime {
	t.Helper()
	k := newKit(t, s, perdure.Options{}, eraseFlows()...)
	k.start("p", "ask", large)
	k.wait("p", perdure.Suspended)
	k.stop()
	depend(t, k.Runtime, "child", "p", false)
	depend(t, k.Runtime, "fork", "p", true)
	depend(t, k.Runtime, "fork of child", "child", true)
	for id, fork := range map[string]bool{"no child": false, "no fork": true} {
		if _, err := perdure.Halfway(t.Context(), k.Runtime, id, "p", fork); err != nil {
			t.Fatal(err)
		}
	}
	return k.Runtime
}

func TestForksAndChildrenKeepAThreadFromBeingErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := family(t, s)
		for thread, by := range map[string][]string{"p": {"child", "fork"}, "child": {"fork of child"}} {
			err := rt.Erase(t.Context(), thread, perdure.EraseOptions{})
			var pinned *perdure.PinnedError
			if !errors.As(err, &pinned) || pinned.Thread != thread || !slices.Equal(pinned.By, by) || !errors.Is(err, perdure.ErrPinned) {
				t.Errorf("erasing %s: %v, want a PinnedError by %q", thread, err, by)
			}
			if _, err := rt.Get(t.Context(), thread); err != nil {
				t.Errorf("thread %s after it was refused: %v", thread, err)
			}
		}
		// What is refused can still be forked.
		depend(t, rt, "another", "p", true)
		for _, id := range []string{"another", "fork of child", "child", "fork", "p"} {
			wantErr(t, "Erase "+id, rt.Erase(t.Context(), id, perdure.EraseOptions{}), nil)
		}
		// What never began went with "p".
		wantNothing(t, s)
	})
}

func TestEraseTakesForksAndChildrenAlongWhenToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := family(t, s)
		wantErr(t, "Erase", rt.Erase(t.Context(), "p", perdure.EraseOptions{Dependents: true}), nil)
		wantNothing(t, s)
	})
}

func TestAnErasedForkOrChildPinsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := family(t, s)
		for _, id := range []string{"fork of child", "child", "fork"} {
			wantErr(t, "Erase "+id, rt.Erase(t.Context(), id, perdure.EraseOptions{}), nil)
		}
		pins := slices.DeleteFunc(leftovers(t, s), func(left string) bool { return !strings.HasPrefix(left, "cell pin/") })
		if len(pins) != 2 { // of what never began
			t.Errorf("pins are left: %q", pins)
		}
		wantErr(t, "Erase", rt.Erase(t.Context(), "p", perdure.EraseOptions{}), nil)
		wantNothing(t, s)
	})
}

// What depends on a thread, and begins after the thread was erased, does not
// begin, and leaves nothing.
func TestALateForkOrChildDoesNotBegin(t *testing.T) {
	for name, fork := range map[string]bool{"child": false, "fork": true} {
		bubble(t, name, func(t *testing.T) {
			s := memstore.New()
			k := newKit(t, s, perdure.Options{}, eraseFlows()...)
			k.start("p", "echo", "in")
			k.wait("p", perdure.Succeeded)
			begin, err := perdure.Halfway(t.Context(), k.Runtime, "late", "p", fork)
			if err != nil {
				t.Fatal(err)
			}
			wantErr(t, "Erase", k.Erase(t.Context(), "p", perdure.EraseOptions{}), nil)
			wantErr(t, "the first entry", begin(t.Context()), perdure.ErrErased)
			wantNothing(t, s)
		})
	}
}
