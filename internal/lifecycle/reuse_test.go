package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// Of an erased thread nothing stays but that its id was used, as a keyed hash,
// by which the events of the next thread with the id are told apart.
func TestAReusedIDIsRememberedAsAHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		lives := map[string]bool{}
		for i := range 3 {
			k.StartOn("my-thread", "echo", "x")
			k.WaitFor("my-thread", perdure.Succeeded)
			tag, err := k.Tag(t.Context(), "my-thread")
			kit.WantErr(t, "the tag", err, nil)
			if lives[tag] || (tag == "") != (i == 0) {
				t.Errorf("life %d has the tag %q", i, tag)
			}
			lives[tag] = true
			for _, e := range k.EventsOf("my-thread") {
				if e.Life != tag {
					t.Errorf("an event of life %d has %q, not %q", i, e.Life, tag)
				}
			}
			for old := range lives {
				var got error
				for _, err := range k.Events(t.Context(), "my-thread", perdure.EventOptions{After: 1, Life: old, Replay: true}) {
					got = err
				}
				if other := old != "" && old != tag; errors.Is(got, perdure.ErrErased) != other {
					t.Errorf("with the life %q, in %q: %v", old, tag, got)
				}
			}
			kit.WantErr(t, "erase", k.Erase(t.Context(), "my-thread", perdure.EraseOptions{}), nil)
			k.Rest()
			used := 0
			for cell, err := range k.Store.List(t.Context(), "used/", "") {
				kit.WantErr(t, "list", err, nil)
				if used++; strings.Contains(cell.Key, "my-thread") || string(cell.Value) != "{}" {
					t.Errorf("%s says %s", cell.Key, cell.Value)
				}
			}
			if used != 1 {
				t.Errorf("%d cells say that the id was used", used)
			}
			kit.WantNothing(t, k.Store)
		}
		// A thread that never had an event was none.
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "nothing", As: "fork"})
		kit.WantErr(t, "a fork of nothing", err, perdure.ErrNoThread)
		k.StartOn("fork", "echo", "x")
		k.WaitFor("fork", perdure.Succeeded)
		if tag, err := k.Tag(t.Context(), "fork"); tag != "" || err != nil {
			t.Errorf("its first life has the tag %q %v", tag, err)
		}
	})
}
