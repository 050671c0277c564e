package lifecycle_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// shown returns in how many lists and counts the threads of ann are.
func shown(t *testing.T, rt *perdure.Runtime) map[string]int {
	t.Helper()
	got := map[string]int{}
	for name, o := range map[string]perdure.ListOptions{
		"all": {}, "user": {User: "ann"}, "flow": {Flow: "ask"}, "status": {Status: perdure.Suspended}, "metadata": {Metadata: map[string]string{"k": "v"}}, "asks": {Asks: true}, "asks of": {AsksOf: []string{"bob"}},
		"created": {Created: time.Now().Add(-time.Hour)},
	} {
		got[name] = 0
		for _, err := range rt.List(t.Context(), o) {
			kit.NoErr(t, err)
			got[name]++
		}
	}
	c, err := rt.Count(t.Context())
	kit.NoErr(t, err)
	got["counted"], got["asks counted"] = c.Threads, c.Asks
	return got
}

// An erase that dies anywhere leaves a thread that Get and all lists show, or none of them
// does. A worker completes it, or the thread stays.
func TestAnEraseThatWasCutOffShowsNothing(t *testing.T) {
	for name, create := range map[string]func() store.Store{"batches": func() store.Store { return memstore.New() }, "no batches": func() store.Store { return kit.Plain(memstore.New()) }} {
		kit.Bubble(t, name, func(t *testing.T) {
			seen := map[bool]int{}
			for at, plan := range faulty.Sweep(cuts()...) {
				s := create()
				k := kit.New(t, s, perdure.Options{}, eraseFlows()...)
				k.MustStart(perdure.StartRequest{Thread: "t", Flow: "ask", Input: kit.Large, User: "ann", Title: "old", Metadata: map[string]string{"k": "v"}})
				k.WaitFor("t", perdure.Suspended)
				k.Stop()
				died := dieErasing(t, s, plan, "t", perdure.EraseOptions{})
				rt := kit.Runtime(t, s, perdure.Options{}, eraseFlows()...)
				_, err := rt.Get(t.Context(), "t")
				gone := errors.Is(err, perdure.ErrNoThread)
				if want := map[bool]int{true: 0, false: 1}[gone]; err == nil || gone {
					for list, n := range shown(t, rt) {
						if n != want {
							t.Errorf("%s: gone: %t, and the list %q has %d threads", at, gone, list, n)
						}
					}
				} else {
					t.Errorf("%s: %v", at, err)
				}
				if died {
					seen[gone]++
				}
				w := kit.New(t, s, perdure.Options{}, eraseFlows()...)
				time.Sleep(2 * time.Minute)
				// The cell that leads from the id to a name is the last to go: if it was about to,
				// whoever comes with the id removes it.
				if left := kit.Leftovers(t, s); gone && (len(left) > 1 || len(left) == 1 && !strings.HasPrefix(left[0], "cell id/")) {
					t.Errorf("%s: left behind: %q", at, left)
				}
				for list, n := range shown(t, w.Runtime) {
					if n == 0 != gone {
						t.Errorf("%s: after a worker the list %q has %d threads", at, list, n)
					}
				}
				if err := w.Erase(t.Context(), "t", perdure.EraseOptions{}); !gone || !errors.Is(err, perdure.ErrNoThread) {
					kit.NoErr(t, err)
				}
				w.Stop()
				kit.WantNothing(t, s)
				if t.Failed() {
					return
				}
			}
			if seen[true] < 5 || seen[false] < 3 {
				t.Errorf("how often the thread was gone: %s", fmt.Sprint(seen))
			}
		})
	}
}
