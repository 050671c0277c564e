package perdure_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
)

// Of an erased thread nothing stays but that its id was used, as a keyed hash,
// by which the events of the next thread with the id are told apart.
func TestAReusedIDIsRememberedAsAHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, echoFlow("echo"))
		lives := map[string]bool{}
		for i := range 3 {
			k.start("my-thread", "echo", "x")
			k.wait("my-thread", perdure.Succeeded)
			tag, err := k.Tag(t.Context(), "my-thread")
			wantErr(t, "the tag", err, nil)
			if lives[tag] || (tag == "") != (i == 0) {
				t.Errorf("life %d has the tag %q", i, tag)
			}
			lives[tag] = true
			for _, e := range k.events("my-thread") {
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
			wantErr(t, "erase", k.Erase(t.Context(), "my-thread", perdure.EraseOptions{}), nil)
			k.rest()
			used := 0
			for cell, err := range k.store.List(t.Context(), "used/", "") {
				wantErr(t, "list", err, nil)
				if used++; strings.Contains(cell.Key, "my-thread") || string(cell.Value) != "{}" {
					t.Errorf("%s says %s", cell.Key, cell.Value)
				}
			}
			if used != 1 {
				t.Errorf("%d cells say that the id was used", used)
			}
			wantNothing(t, k.store)
		}
		// A thread that never had an event was none.
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "nothing", As: "fork"})
		wantErr(t, "a fork of nothing", err, perdure.ErrNoThread)
		k.start("fork", "echo", "x")
		k.wait("fork", perdure.Succeeded)
		if tag, err := k.Tag(t.Context(), "fork"); tag != "" || err != nil {
			t.Errorf("its first life has the tag %q %v", tag, err)
		}
	})
}
