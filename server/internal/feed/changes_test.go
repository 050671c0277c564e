package feed_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server/internal/feed"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// follower knows a tenant's threads by what Changes tells, and counts those that it
// reads.
type follower struct {
	changes feed.Changes[perdure.Summary]
	known   map[string]perdure.Summary
	read    int
}

func newFollower(rt *perdure.Runtime) *follower {
	f := &follower{known: map[string]perdure.Summary{}}
	list := func(ctx context.Context, q threads.Query, after string) iter.Seq2[perdure.Summary, error] {
		return func(yield func(perdure.Summary, error) bool) {
			for s, err := range feed.ListOf(ctx, rt, q, after) {
				f.read++
				if !yield(s, err) {
					return
				}
			}
		}
	}
	f.changes = feed.Changes[perdure.Summary]{Tenant: threads.Behind(rt), List: list,
		Cursor: func(s perdure.Summary) string { return s.Cursor }, Moved: func(s perdure.Summary) bool { return s.Moved != "" }}
	return f
}

func (f *follower) look(t *testing.T) {
	t.Helper()
	kit.NoErr(t, f.changes.Look(t.Context(), func(was *perdure.Summary, now perdure.Summary) {
		if (was == nil) != (f.known[now.ID].ID == "") {
			t.Errorf("%s was %v", now.ID, was)
		}
		f.known[now.ID] = now
	}, func(was perdure.Summary) { delete(f.known, was.ID) }))
}

// TestChangesAreTheList does all kinds of things to threads, and compares what a
// follower has been told with the list.
func TestChangesAreTheList(t *testing.T) {
	for name, open := range map[string]func() store.Store{
		"batches": func() store.Store { return memstore.New() },
		"plain":   func() store.Store { return kit.Plain(memstore.New()) },
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			place, err := archive.Open(t.Context(), "file:"+t.TempDir())
			kit.NoErr(t, err)
			k := kit.New(t, open(), perdure.Options{Archive: place}, kit.EchoFlow("echo"), kit.AskFlow("ask", perdure.Question{}))
			f := newFollower(k.Runtime)
			ctx := t.Context()
			for i := range kit.Sized(150, 400, 400) {
				id := fmt.Sprint("t", rand.IntN(12))
				switch rand.IntN(8) {
				case 0:
					_ = k.Erase(ctx, id, perdure.EraseOptions{})
				case 1:
					_, _ = k.Archive(ctx, id, perdure.Note{})
				case 2:
					_ = k.Restore(ctx, id, perdure.RestoreOptions{})
				case 3:
					_ = k.Signal(ctx, id, "x", i, perdure.SignalOptions{})
				case 4:
					_, _ = k.Create(ctx, perdure.CreateRequest{Thread: id})
				default:
					_, _ = k.Start(ctx, perdure.StartRequest{Thread: id, Flow: []string{"echo", "ask"}[rand.IntN(2)], Input: "x"})
				}
				time.Sleep([]time.Duration{0, time.Second, time.Minute, 3 * time.Minute, time.Hour}[rand.IntN(5)])
				if rand.IntN(3) == 0 {
					continue
				}
				synctest.Wait()
				f.look(t)
				want := map[string]perdure.Summary{}
				for s, err := range k.List(ctx, perdure.ListOptions{}) {
					kit.NoErr(t, err)
					want[s.ID] = s
				}
				if d := cmp.Diff(want, f.known); d != "" {
					t.Fatalf("after %d changes (-list +told):\n%s", i, d)
				}
			}
		})
	}
}

// TestAThreadThatComesBackWhileAnotherGoes: it has the times that it had, and there are
// as many threads as before.
func TestAThreadThatComesBackWhileAnotherGoes(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		place, err := archive.Open(t.Context(), "file:"+t.TempDir())
		kit.NoErr(t, err)
		k := kit.New(t, nil, perdure.Options{Archive: place})
		for _, id := range []string{"back", "gone", "stays"} {
			_, err := k.Create(t.Context(), perdure.CreateRequest{Thread: id})
			kit.NoErr(t, err)
		}
		_, err = k.Archive(t.Context(), "back", perdure.Note{})
		kit.NoErr(t, err)
		time.Sleep(time.Hour)
		f := newFollower(k.Runtime)
		f.look(t)
		time.Sleep(time.Minute)
		kit.NoErr(t, k.Restore(t.Context(), "back", perdure.RestoreOptions{}))
		kit.NoErr(t, k.Erase(t.Context(), "gone", perdure.EraseOptions{}))
		f.read = 0
		f.look(t)
		if f.known["back"].ID == "" || f.known["gone"].ID != "" || len(f.known) != 2 {
			t.Errorf("the follower knows %v", f.known)
		}
		kit.NoErr(t, k.Signal(t.Context(), "back", "x", 1, perdure.SignalOptions{})) // its summary still says when it came back
		time.Sleep(time.Hour)
		late := newFollower(k.Runtime)
		found := 0
		for _, err := range threads.Behind(k.Runtime).Restored(t.Context(), 1) {
			kit.NoErr(t, err)
			found++
		}
		if late.look(t); found != 1 || len(late.known) != 2 {
			t.Errorf("%d threads have come back, and there are %v", found, late.known)
		}
	})
}

// TestChangesReadWhatHasChanged: a look reads few threads besides those that changed.
func TestChangesReadWhatHasChanged(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		const n = 300
		k := kit.New(t, nil, perdure.Options{})
		for i := range n {
			_, err := k.Create(t.Context(), perdure.CreateRequest{Thread: fmt.Sprint(i)})
			kit.NoErr(t, err)
		}
		f := newFollower(k.Runtime)
		f.look(t)
		time.Sleep(3 * time.Minute)
		f.look(t)
		for i := range 3 {
			time.Sleep(3 * time.Minute)
			f.read = 0
			kit.NoErr(t, k.Signal(t.Context(), fmt.Sprint(i), "x", 1, perdure.SignalOptions{}))
			kit.NoErr(t, k.Erase(t.Context(), fmt.Sprint(100+i), perdure.EraseOptions{}))
			_, err := k.Create(t.Context(), perdure.CreateRequest{Thread: fmt.Sprint("new", i)})
			kit.NoErr(t, err)
			f.look(t)
			if f.read > 5 || len(f.known) != n {
				t.Errorf("it read %d threads of %d", f.read, len(f.known))
			}
		}
		time.Sleep(time.Hour)
		f.read = 0
		if f.look(t); f.read < n {
			t.Errorf("after an hour it read %d threads of %d", f.read, len(f.known))
		}
	})
}
