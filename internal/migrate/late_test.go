package migrate_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// stalled is a store in which writes to names with a prefix take long.
type stalled struct {
	store.Store
	prefix string
	long   time.Duration
}

func (s *stalled) Unwrap() store.Store { return s.Store }

func (s *stalled) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	s.stall(journal)
	return s.Store.Append(ctx, journal, after, entries...)
}

func (s *stalled) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	s.stall(key)
	return s.Store.Put(ctx, key, value, prev)
}

func (s *stalled) Delete(ctx context.Context, key string, prev store.Version) error {
	s.stall(key)
	return s.Store.Delete(ctx, key, prev)
}

func (s *stalled) stall(name string) {
	if strings.HasPrefix(name, s.prefix) {
		time.Sleep(s.long)
	}
}

// TestLateWrites has requests under way for longer than a migration takes, whose
// writes reach the source after it has moved. None of them is said to have
// happened, nor is it by asking again, and workers in the source do nothing.
// Whoever has written something is told that its outcome is unknown.
func TestLateWrites(t *testing.T) {
	type request func(ctx context.Context, rt *perdure.Runtime) error
	start := func(ctx context.Context, rt *perdure.Runtime) error {
		_, err := rt.Start(ctx, perdure.StartRequest{Thread: "late", Flow: "ledger", Input: "x", Key: "k"})
		return err
	}
	fork := func(ctx context.Context, rt *perdure.Runtime) error {
		_, err := rt.Fork(ctx, perdure.ForkRequest{Thread: "book", As: "late", At: 3})
		return err
	}
	create := func(ctx context.Context, rt *perdure.Runtime) error {
		_, err := rt.Create(ctx, perdure.CreateRequest{Thread: "late", Key: "k"})
		return err
	}
	put := func(ctx context.Context, rt *perdure.Runtime) error {
		_, err := memory.Of(rt).Put(ctx, []string{"a"}, "new", 1, memory.PutOptions{})
		return err
	}
	remove := func(ctx context.Context, rt *perdure.Runtime) error {
		return memory.Of(rt).Delete(ctx, []string{"a"}, "old", "")
	}
	for name, test := range map[string]struct {
		do     request
		stalls string
		want   error
	}{
		"start": {start, "thread/", store.ErrUnknown}, "fork": {fork, "thread/", perdure.ErrMoved}, "create": {create, "thread/", perdure.ErrMoved},
		"start named": {start, "id/", store.ErrUnknown}, "put": {put, "shelf/", store.ErrUnknown}, "delete": {remove, "shelf/", store.ErrUnknown},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			inner, to := memstore.New(), memstore.New()
			k := kit.New(t, inner, perdure.Options{}, flows...)
			k.NoteInLedger("book", "one")
			_, err := memory.Of(k.Runtime).Put(t.Context(), []string{"a"}, "old", 1, memory.PutOptions{})
			kit.NoErr(t, err)
			k.Rest()
			slow, err := perdure.New(t.Context(), &stalled{inner, test.stalls, time.Minute}, perdure.Options{}, flows...)
			kit.NoErr(t, err)
			var late error
			var done sync.WaitGroup
			done.Go(func() { late = test.do(t.Context(), slow) })
			time.Sleep(time.Second)
			_, err = migrate.Run(t.Context(), inner, to, migrate.Options{To: "there"})
			kit.NoErr(t, err)
			want := contents(t, to)
			done.Wait()
			k.Rest()
			kit.WantErr(t, "the late request", late, test.want)
			kit.WantErr(t, "the same again", test.do(t.Context(), slow), perdure.ErrMoved)
			kit.WantErr(t, "the same again, quickly", test.do(t.Context(), k.Runtime), perdure.ErrMoved)
			kit.WantErr(t, "a start", start(t.Context(), k.Runtime), perdure.ErrMoved)
			for what, err := range map[string]error{
				"a signal": k.Signal(t.Context(), "late", "go", 1, perdure.SignalOptions{}), "a cancel": k.Cancel(t.Context(), "late", "", perdure.Note{}),
			} {
				if !errors.Is(err, perdure.ErrMoved) && !errors.Is(err, perdure.ErrNoThread) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if info, err := k.Get(t.Context(), "late"); err == nil {
				for _, run := range info.Runs {
					if run.Status != perdure.Queued {
						t.Errorf("the late run is %s", run.Status)
					}
				}
			}
			k.Stop()
			wantSame(t, want, contents(t, to))
			there := kit.New(t, to, perdure.Options{}, flows...)
			kit.NoErr(t, test.do(t.Context(), there.Runtime))
			there.Rest()
			there.Stop()
		})
	}
}

// TestWritesBesideTheMark makes requests at all times around the moment when the
// source is marked, which take more or less long. What is acknowledged is in the
// target, and what is refused as moved is not. Only of slow ones the outcome may be
// unknown.
func TestWritesBesideTheMark(t *testing.T) {
	is := func(err error, none error) bool {
		if err != nil && !errors.Is(err, none) {
			t.Fatal(err)
		}
		return err == nil
	}
	for name, test := range map[string]struct {
		stalls string
		do     func(ctx context.Context, rt *perdure.Runtime) error
		there  func(ctx context.Context, rt *perdure.Runtime) bool
	}{
		"start": {"thread/", func(ctx context.Context, rt *perdure.Runtime) error {
			_, err := rt.Start(ctx, perdure.StartRequest{Thread: "new", Flow: "ledger", Input: "x"})
			return err
		}, func(ctx context.Context, rt *perdure.Runtime) bool {
			_, err := rt.Get(ctx, "new")
			return is(err, perdure.ErrNoThread)
		}},
		"put": {"shelf/", func(ctx context.Context, rt *perdure.Runtime) error {
			_, err := memory.Of(rt).Put(ctx, []string{"a"}, "new", 1, memory.PutOptions{})
			return err
		}, func(ctx context.Context, rt *perdure.Runtime) bool {
			_, err := memory.Of(rt).Get(ctx, []string{"a"}, "new")
			return is(err, memory.ErrNotFound)
		}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			acknowledged, refused, unknown := 0, 0, 0
			for i, long := range []time.Duration{0, 0, 500 * time.Millisecond, 500 * time.Millisecond, 1700 * time.Millisecond, 3 * time.Second} {
				pause := []time.Duration{1900 * time.Millisecond, 2100 * time.Millisecond}[i%2]
				for after := time.Duration(0); after < 7*time.Second; after += 300 * time.Millisecond {
					from, to := memstore.New(), memstore.New()
					rt, err := perdure.New(t.Context(), &stalled{from, test.stalls, long}, perdure.Options{}, flows...)
					kit.NoErr(t, err)
					kit.NoErr(t, memory.Of(rt).Delete(t.Context(), []string{"b"}, "none", "")) // it looks at the mark
					var migrated error
					var done sync.WaitGroup
					done.Go(func() {
						time.Sleep(after)
						_, migrated = migrate.Run(t.Context(), from, to, migrate.Options{To: "there"})
					})
					time.Sleep(pause) // that look is hardly fresh, or not any more
					err = test.do(t.Context(), rt)
					done.Wait()
					kit.NoErr(t, migrated)
					there := test.there(t.Context(), kit.Runtime(t, to, perdure.Options{}, flows...))
					switch {
					case err == nil && there:
						acknowledged++
					case errors.Is(err, perdure.ErrMoved) && !there:
						refused++
					case errors.Is(err, store.ErrUnknown) && !errors.Is(err, perdure.ErrMoved) && long > time.Second:
						unknown++
					default:
						t.Errorf("taking %v, with the mark after %v: it is in the target: %v, but the answer was: %v", long, after, there, err)
					}
				}
			}
			if acknowledged == 0 || refused == 0 || unknown == 0 {
				t.Errorf("%d requests are acknowledged, %d refused, and %d unknown", acknowledged, refused, unknown)
			}
		})
	}
}

// slowLook is a store whose journals are listed late.
type slowLook struct {
	store.Store
	long time.Duration
}

func (s *slowLook) Unwrap() store.Store { return s.Store }

func (s *slowLook) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	time.Sleep(s.long)
	return s.Store.Journals(ctx, after)
}

// TestTwoMigrations has two migrations onto the same store at once. The later one
// takes over, the other says so and leaves everything as it is.
func TestTwoMigrations(t *testing.T) {
	full := filled(t)
	want := contents(t, full)
	kit.Bubble(t, "all", func(t *testing.T) {
		for pause := range 16 {
			from, to := clone(t, full), memstore.New()
			slow := store.Store(&stalled{to, "", 20 * time.Millisecond})
			if pause%2 == 1 {
				slow = &slowLook{to, time.Duration(pause) * 500 * time.Millisecond}
			}
			opts := migrate.Options{To: "there"}
			errs := make([]error, 2)
			var done sync.WaitGroup
			done.Go(func() { _, errs[0] = migrate.Run(t.Context(), from, slow, opts) })
			time.Sleep(time.Duration(pause) * 300 * time.Millisecond)
			_, errs[1] = migrate.Run(t.Context(), from, to, opts)
			done.Wait()
			for _, err := range errs {
				if err != nil && !strings.Contains(err.Error(), "taken over") {
					t.Errorf("after %d pauses: %v", pause, err)
				}
			}
			if errs[0] != nil && errs[1] != nil {
				t.Errorf("after %d pauses none is complete: %v", pause, errs)
			}
			wantSame(t, want, contents(t, to))
			wantSame(t, want, left(t, from))
			if again, err := migrate.Run(t.Context(), from, to, opts); err != nil || !again.Already {
				t.Errorf("after %d pauses, again: %+v, %v", pause, again, err)
			}
		}
	})
}
