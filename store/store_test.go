package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// scripted is a store whose appends, puts and reads answer by a script, one
// answer a call, before or after the memory inside did what was asked.
type scripted struct {
	*memstore.Store
	before, after []error // by call of Append or Put; nil: as the memory answers
	reads         []error // by call of Read
	appends       int
}

func next(script *[]error) (err error) {
	if len(*script) > 0 {
		err, *script = (*script)[0], (*script)[1:]
	}
	return err
}

func (s *scripted) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	s.appends++
	if err := next(&s.before); err != nil {
		return 0, err
	}
	last, err := s.Store.Append(ctx, journal, after, entries...)
	if lost := next(&s.after); lost != nil {
		return 0, lost
	}
	return last, err
}

func (s *scripted) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := next(&s.before); err != nil {
		return "", err
	}
	return s.Store.Put(ctx, key, value, prev)
}

func (s *scripted) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	if err := next(&s.reads); err != nil {
		return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, err) }
	}
	return s.Store.Read(ctx, journal, after)
}

var errNetwork = errors.New("network: connection reset")

func TestAppendOnce(t *testing.T) {
	type errs = []error
	spurious := store.Conflictf("spurious")
	tests := []struct {
		name          string
		before, after errs
		reads         errs
		rival         bool // another's entry is at after+1 already
		want          error
		appends       int
		holds         bool // our entries are in the journal, once
	}{
		{name: "plain success", appends: 1, holds: true},
		{name: "write lost, then success", before: errs{errNetwork}, appends: 2, holds: true},
		{name: "ack lost", after: errs{errNetwork}, appends: 1, holds: true},
		{name: "ack lost, first look fails too", after: errs{errNetwork}, reads: errs{errNetwork}, appends: 2, holds: true},
		{name: "write lost thrice", before: errs{errNetwork, errNetwork, errNetwork}, appends: 4, holds: true},
		{name: "spurious conflict", before: errs{spurious}, appends: 2, holds: true},
		{name: "spurious conflict after a lost write", before: errs{errNetwork, spurious}, appends: 3, holds: true},
		{name: "a disk that does not support it", after: errs{fmt.Errorf("sync: %w", errors.ErrUnsupported)}, appends: 1, holds: true},
		{name: "real conflict", rival: true, want: store.ErrConflict, appends: 1},
		{name: "write lost, and a rival won", before: errs{errNetwork}, rival: true, want: store.ErrConflict, appends: 1},
		{name: "too large is definite", before: errs{store.ErrTooLarge}, want: store.ErrTooLarge, appends: 1},
		{name: "closed is definite", before: errs{store.ErrClosed}, want: store.ErrClosed, appends: 1},
		{name: "dropped is definite", before: errs{store.ErrDropped}, want: store.ErrDropped, appends: 1},
		{name: "dropped after a lost write", before: errs{errNetwork, store.ErrDropped}, want: store.ErrDropped, appends: 2},
		{name: "dropped is seen by the look", before: errs{errNetwork}, reads: errs{store.ErrDropped}, want: store.ErrDropped, appends: 1},
		{name: "closed after a lost write", before: errs{errNetwork, store.ErrClosed}, want: store.ErrUnknown, appends: 2},
		{name: "poisoned", before: errs{fmt.Errorf("%w: sync failed", store.ErrPoisoned)}, want: store.ErrUnknown, appends: 1},
		{name: "poisoned after the write", after: errs{fmt.Errorf("%w: sync failed", store.ErrPoisoned)}, appends: 1, holds: true},
		{name: "corrupt journal after a lost write", before: errs{errNetwork}, reads: errs{store.ErrCorrupt}, want: store.ErrUnknown, appends: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				s := &scripted{Store: memstore.New(), before: tt.before, after: tt.after, reads: tt.reads}
				if _, err := s.Store.Append(ctx, "j", 0, []byte("first")); err != nil {
					t.Fatal(err)
				}
				if tt.rival {
					if _, err := s.Store.Append(ctx, "j", 1, []byte("rival")); err != nil {
						t.Fatal(err)
					}
				}
				last, err := store.AppendOnce(ctx, s, "j", 1, []byte("id-1 a"), []byte("b"))
				if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Errorf("AppendOnce = %v, want %v", err, tt.want)
				}
				if tt.want == nil && last != 3 {
					t.Errorf("AppendOnce returned %d, want 3", last)
				}
				if s.appends != tt.appends {
					t.Errorf("it took %d appends, want %d", s.appends, tt.appends)
				}
				entries, err := store.ReadAll(ctx, s.Store, "j", 0)
				if err != nil {
					t.Fatal(err)
				}
				holds := len(entries) == 3 && string(entries[1].Data) == "id-1 a" && string(entries[2].Data) == "b"
				if holds != tt.holds {
					t.Errorf("the journal holds %v", entries)
				}
			})
		})
	}
}

// An after beyond the end is refused for good, and no reason to go on trying
// until the context ends.
func TestAppendOnceBeyondTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := &scripted{Store: memstore.New()}
		if _, err := s.Append(ctx, "j", 0, []byte("first")); err != nil {
			t.Fatal(err)
		}
		for _, journal := range []string{"never", "j"} {
			if _, err := store.AppendOnce(ctx, s, journal, 7, []byte("id")); !errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnknown) {
				t.Errorf("AppendOnce behind 7 of %s = %v, want ErrConflict", journal, err)
			}
		}
		s.before = []error{errNetwork} // a try that may yet arrive
		if _, err := store.AppendOnce(ctx, s, "j", 7, []byte("id")); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, errNetwork) {
			t.Errorf("AppendOnce behind 7, whose first try is open = %v, want ErrUnknown with its cause", err)
		}
		if ctx.Err() != nil {
			t.Error("it went on until the context ended")
		}
	})
}

// A store that refuses for no reason until the end wrote nothing, and that is
// known.
func TestAppendOnceOnlyRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := &scripted{Store: memstore.New()}
		for range 10_000 {
			s.before = append(s.before, store.Conflictf("spurious"))
		}
		_, err := store.AppendOnce(ctx, s, "j", 0, []byte("id"))
		if !errors.Is(err, store.ErrConflict) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnknown) {
			t.Errorf("AppendOnce = %v, want ErrConflict and the context's error", err)
		}
		s.before, s.reads = []error{store.Conflictf("spurious")}, []error{store.ErrCorrupt}
		_, err = store.AppendOnce(t.Context(), s, "j", 0, []byte("id"))
		if !errors.Is(err, store.ErrConflict) || !errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnknown) {
			t.Errorf("AppendOnce on a damaged journal = %v, want ErrConflict and ErrCorrupt", err)
		}
	})
}

func TestAppendOnceOfNothing(t *testing.T) {
	ctx := t.Context()
	s := &scripted{Store: memstore.New()}
	if _, err := s.Append(ctx, "j", 0, []byte("first")); err != nil {
		t.Fatal(err)
	}
	s.before = []error{errNetwork}
	if _, err := store.AppendOnce(ctx, s, "j", 0); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("AppendOnce without an entry = %v, want ErrInvalid", err)
	}
}

func TestAppendOnceGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(store.Patient(t.Context()), time.Minute)
		defer cancel()
		s := &scripted{Store: memstore.New()}
		for range 10_000 {
			s.before = append(s.before, errNetwork)
		}
		_, err := store.AppendOnce(ctx, s, "j", 0, []byte("id-1"))
		if !errors.Is(err, store.ErrUnknown) || !errors.Is(err, errNetwork) {
			t.Fatalf("AppendOnce = %v, want ErrUnknown with its cause", err)
		}
		_, err = store.AppendOnce(ctx, s, "j", 0, []byte("id-1"))
		if errors.Is(err, store.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("AppendOnce with an ended context = %v, want its error alone: nothing was tried", err)
		}
	})
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := memstore.New()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 10 {
					_, err := store.Update(ctx, s, "count", func(old store.Cell) ([]byte, error) {
						return append(old.Value, 'x'), nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if cell, err := s.Get(ctx, "count"); err != nil || len(cell.Value) != 80 {
			t.Fatalf("80 updates left %d marks, %v", len(cell.Value), err)
		}
		stop := errors.New("stop")
		if _, err := store.Update(ctx, s, "count", func(store.Cell) ([]byte, error) { return nil, stop }); !errors.Is(err, stop) {
			t.Fatalf("Update = %v, want the change's own error", err)
		}
		broken := &scripted{Store: s, before: []error{errNetwork}}
		if _, err := store.Update(ctx, broken, "count", func(old store.Cell) ([]byte, error) { return old.Value, nil }); !errors.Is(err, errNetwork) {
			t.Fatalf("Update = %v, want the open outcome reported", err)
		}
	})
}

func TestDeletePrefix(t *testing.T) {
	ctx := t.Context()
	s := memstore.New()
	for _, key := range []string{"a/1", "a/2", "a", "ab", "b/1"} {
		if _, err := s.Put(ctx, key, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := store.DeletePrefix(ctx, s, "a/"); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for cell, err := range s.List(ctx, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, cell.Key)
	}
	if got := strings.Join(left, " "); got != "a ab b/1" {
		t.Fatalf("left: %s", got)
	}
}

func TestOpen(t *testing.T) {
	ctx := t.Context()
	for _, tt := range []struct {
		url  string
		opts []store.OpenOption
		want error
		says string
	}{
		{url: "memory:"},
		{url: "memory:", opts: []store.OpenOption{store.Require(store.None)}},
		{url: "memory:", opts: []store.OpenOption{store.Require(store.Power)}, want: store.ErrWeak, says: "power"},
		{url: "carrier-pigeon:loft", want: store.ErrScheme, says: "memory"},
		{url: "s3://bucket/p", want: store.ErrScheme, says: `import _ "github.com/perdure/perdure/store/s3store"`},
		{url: "cluster:dir", want: store.ErrScheme, says: "perdure-cluster"},
		{url: "app.db", want: store.ErrScheme, says: "sqlite:app.db"},
		{url: "token@host", want: store.ErrScheme, says: "\"the URL\" has no scheme"},
		{url: "", want: store.ErrScheme, says: "scheme"},
	} {
		s, err := store.Open(ctx, tt.url, tt.opts...)
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("Open(%q) = %v, want %v", tt.url, err, tt.want)
		}
		if err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("Open(%q) says %q, without %q", tt.url, err, tt.says)
		}
		if s != nil {
			s.Close()
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a scheme can be registered twice")
		}
	}()
	store.Register("memory", nil)
}

// plain hides all upgrades of a store, wrapped shows them again.
type plain struct{ store.Store }
type wrapped struct{ plain }

func (w wrapped) Unwrap() store.Store { return w.plain.Store }

func TestUpgradesAreFoundThroughWrappers(t *testing.T) {
	m := memstore.New()
	if _, ok := store.As[store.Watcher](plain{m}); ok {
		t.Error("As finds an upgrade that the store hides")
	}
	if w, ok := store.As[store.Watcher](wrapped{plain{wrapped{plain{m}}}}); !ok || w != store.Watcher(m) {
		t.Error("As does not find an upgrade behind two wrappers")
	}
	if got := store.DurabilityOf(plain{m}); got != store.None {
		t.Errorf("a store that does not say is %s", got)
	}
}

func TestFallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*store.PollInterval+time.Millisecond)
		defer cancel()
		s := plain{memstore.New()}
		n := 0
		for range store.Watch(ctx, s, "j") {
			n++
		}
		if n != 11 {
			t.Errorf("polling for 10 intervals yielded %d times, want at once and 10 times", n)
		}
		if err := store.Cast(ctx, s, "topic", []byte("lost")); err != nil {
			t.Errorf("Cast where nothing carries it = %v, want it lost in silence", err)
		}
		for m := range store.Listen(ctx, s, "topic") {
			t.Errorf("heard %q", m)
		}
	})
}

func TestHubShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := store.NewHub()
		b := a.Share()
		woken, heard := 0, []byte(nil)
		var ended atomic.Int64
		go func() {
			for range b.Watch(t.Context(), "j") {
				woken++
			}
			ended.Add(1)
		}()
		go func() {
			b.Hear(t.Context(), "topic", func(m []byte) { heard = bytes.Clone(m) })
			ended.Add(1)
		}()
		synctest.Wait()
		a.Wake("j/1")
		a.Wake("other")
		if err := a.Cast(t.Context(), "topic", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if woken != 2 || !bytes.Equal(heard, []byte("hello")) {
			t.Fatalf("woken %d times, heard %q; want at once and once more, hello", woken, heard)
		}
		a.WakeAll()
		a.Stop()
		synctest.Wait()
		if woken != 3 || ended.Load() != 0 {
			t.Fatalf("stopping one hub ended %d loops of the other", ended.Load())
		}
		b.Stop()
		b.Stop()
		synctest.Wait()
		if ended.Load() != 2 || a.Watching() {
			t.Fatalf("%d of 2 loops ended, still watching: %t", ended.Load(), a.Watching())
		}
		if err := b.Cast(t.Context(), "topic", nil); !errors.Is(err, store.ErrClosed) {
			t.Fatalf("Cast on a stopped hub = %v", err)
		}
	})
}

func TestCorruptErrorLocates(t *testing.T) {
	err := fmt.Errorf("reading: %w", &store.CorruptError{Journal: "t/1", Seq: 7, Where: "t-1.jsonl:1234", Reason: "checksum differs"})
	if !errors.Is(err, store.ErrCorrupt) {
		t.Error("a CorruptError does not match ErrCorrupt")
	}
	for _, part := range []string{`"t/1"`, "7", "t-1.jsonl:1234", "checksum differs", "up to 6 are intact"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
