package storetest

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func openMemory(_ context.Context, dir string) (store.Store, error) { return memstore.Open(dir), nil }

func TestLinearize(t *testing.T) {
	Linearize(t, openMemory, LinearizeOptions{})
}

func TestLinearizeOptions(t *testing.T) {
	failed, log := record(t, func(tb testing.TB) { Linearize(tb, openMemory, LinearizeOptions{Clients: 2}) })
	if !failed || !strings.Contains(log, "proves too little") {
		t.Errorf("two clients are enough: %s", log)
	}
}

// appends and reads make the calls of histories by hand.
func appends(call, ret int64, after uint64, out outcome, entries ...string) linCall {
	c := linCall{call: call, ret: ret, after: after, outcome: out, entries: entries}
	if out == accepted {
		c.last = after + uint64(len(entries))
	}
	return c
}

func reads(call, ret int64, entries ...string) linCall {
	return linCall{call: call, ret: ret, read: true, entries: entries}
}

func TestHistories(t *testing.T) {
	for _, test := range []struct {
		name    string
		good    bool
		history linHistory
	}{
		{"empty", true, nil},
		{"one after the other", true, linHistory{
			appends(1, 2, 0, accepted, "a"), appends(3, 4, 1, accepted, "b", "c"), reads(5, 6, "a", "b", "c"),
		}},
		{"a read beside an append sees it or not", true, linHistory{
			appends(1, 10, 0, accepted, "a"), reads(2, 3), reads(4, 5, "a"), reads(11, 12, "a"),
		}},
		{"a spurious conflict", true, linHistory{appends(1, 2, 0, refused, "a"), reads(3, 4)}},
		{"an open append that never happened", true, linHistory{
			appends(1, 2, 0, undecided, "a"), appends(3, 4, 0, accepted, "b"), reads(5, 6, "b"),
		}},
		{"an open append that happened", true, linHistory{
			appends(1, 2, 0, undecided, "a"), appends(3, 4, 1, accepted, "b"), reads(5, 6, "a", "b"),
		}},
		{"an open append that happened after its call had ended", true, linHistory{
			appends(1, 2, 0, undecided, "a"), reads(3, 4), reads(5, 6, "a"),
		}},
		{"lost update", false, linHistory{
			appends(1, 2, 0, accepted, "a"), appends(3, 4, 0, accepted, "b"), reads(5, 6, "b"),
		}},
		{"acknowledged and gone", false, linHistory{appends(1, 2, 0, accepted, "a"), reads(3, 4)}},
		{"two winners", false, linHistory{
			appends(1, 4, 0, accepted, "a"), appends(2, 3, 0, accepted, "b"), reads(5, 6, "a"),
		}},
		{"two winners, both kept", false, linHistory{
			appends(1, 4, 0, accepted, "a"), appends(2, 3, 0, accepted, "b"), reads(5, 6, "a", "b"),
		}},
		{"a read goes back", false, linHistory{
			appends(1, 10, 0, accepted, "a"), reads(2, 3, "a"), reads(4, 5), reads(11, 12, "a"),
		}},
		{"a read is behind", false, linHistory{
			appends(1, 2, 0, accepted, "a"), reads(3, 4), reads(5, 6, "a"),
		}},
		{"a read is ahead", false, linHistory{
			reads(1, 2, "a"), appends(3, 4, 0, accepted, "a"), reads(5, 6, "a"),
		}},
		{"a conflict that wrote", false, linHistory{appends(1, 2, 0, refused, "a"), reads(3, 4, "a")}},
		{"half a batch", false, linHistory{
			appends(1, 10, 0, accepted, "a", "b"), reads(2, 3, "a"), reads(11, 12, "a", "b"),
		}},
		{"half a batch of an open append", false, linHistory{
			appends(1, 2, 0, undecided, "a", "b"), reads(3, 4, "a"),
		}},
		{"the other half of a batch of an open append", false, linHistory{
			appends(1, 2, 0, undecided, "a", "b"), reads(3, 4, "b"),
		}},
		{"an open append that happened twice", false, linHistory{
			appends(1, 2, 0, undecided, "a"), reads(3, 4, "a", "a"),
		}},
		{"an open append that was seen and is gone", false, linHistory{
			appends(1, 2, 0, undecided, "a"), reads(3, 4, "a"), reads(5, 6),
		}},
		{"an open append that happened behind another end", false, linHistory{
			appends(1, 2, 0, undecided, "a"), appends(3, 4, 0, accepted, "b"), reads(5, 6, "b", "a"),
		}},
		{"an open append before its call", false, linHistory{
			reads(1, 2, "a"), appends(3, 4, 0, undecided, "a"), reads(5, 6, "a"),
		}},
		{"swapped entries", false, linHistory{
			appends(1, 2, 0, accepted, "a"), appends(3, 4, 1, accepted, "b"), reads(5, 6, "b", "a"),
		}},
		{"an entry of no one", false, linHistory{appends(1, 2, 0, accepted, "a"), reads(3, 4, "a", "x")}},
		{"a wrong answer", false, linHistory{{call: 1, ret: 2, entries: []string{"a"}, last: 2}, reads(3, 4, "a")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if why := test.history.explain(); (why == "") != test.good {
				t.Errorf("linearizable: %v, want %v\n%s", why == "", test.good, why)
			}
		})
	}
}

// TestLinearizeLong damages recorded histories near their end, where the
// search has most ways to go wrong before it knows.
func TestLinearizeLong(t *testing.T) {
	s := memstore.New()
	r := &linRun{ctx: t.Context(), handles: []store.Store{s, s}, journal: "long", batches: true}
	history, err := r.run(8, 600)
	if err != nil {
		t.Fatal(err)
	}
	if why := history.explain(); why != "" {
		t.Fatal(why)
	}
	last := slices.MaxFunc(history, func(a, b linCall) int { return int(a.ret - b.ret) })
	if len(last.entries) < 20 {
		t.Fatalf("the history of 600 operations ends with %d entries", len(last.entries))
	}
	shorter := slices.Clone(history)
	for i := range shorter {
		if shorter[i].ret == last.ret {
			shorter[i].entries = last.entries[:len(last.entries)-1]
		}
	}
	if why := shorter.explain(); !strings.Contains(why, "None of these fits") {
		t.Errorf("a last read without the last entry is accepted: %q", why)
	}
}

func TestTallyMinimums(t *testing.T) {
	enough := tally{accepted: 10, batches: 2, refused: 10, forgotten: 3, failed: 3, reads: 20}
	if why := enough.tooLittle(200); why != "" {
		t.Errorf("enough is too little: %s", why)
	}
	for name, less := range map[string]func(*tally){
		"accepted": func(t *tally) { t.accepted-- },
		"batches":  func(t *tally) { t.batches-- },
		"refused":  func(t *tally) { t.refused-- },
		"open":     func(t *tally) { t.failed-- },
		"reads":    func(t *tally) { t.reads-- },
	} {
		few := enough
		less(&few)
		if why := few.tooLittle(200); !strings.Contains(why, name) {
			t.Errorf("with one less of %s: %q", name, why)
		}
	}
}

// odd is a memory whose appends and reads a test bends.
type odd struct {
	store.Store
	append func(s store.Store, ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error)
	read   func(s store.Store, ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error]
	batch  func(s store.Store, ctx context.Context, b store.Batch) (uint64, error)
}

func (o odd) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	if o.batch == nil {
		return 0, errors.ErrUnsupported
	}
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	return o.batch(o.Store, ctx, b)
}

func (o odd) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if o.append == nil {
		return o.Store.Append(ctx, journal, after, entries...)
	}
	return o.append(o.Store, ctx, journal, after, entries)
}

func (o odd) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	if o.read == nil {
		return o.Store.Read(ctx, journal, after)
	}
	return o.read(o.Store, ctx, journal, after)
}

// push appends at the end, wherever that is.
func push(s store.Store, journal string, entries [][]byte) (uint64, error) {
	for {
		have, err := store.ReadAll(context.Background(), s, journal, 0)
		if err != nil {
			return 0, err
		}
		last, err := s.Append(context.Background(), journal, uint64(len(have)), entries...)
		if !errors.Is(err, store.ErrConflict) {
			return last, err
		}
	}
}

func TestLinearizeCatches(t *testing.T) {
	for _, test := range []struct {
		name  string
		store odd
		want  string
	}{
		{"two winners", odd{append: func(s store.Store, ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if have, err := store.ReadAll(ctx, s, journal, 0); err != nil || uint64(len(have)) != after {
				return 0, store.NotAtEnd(journal, after, uint64(len(have)))
			}
			for range 20 {
				runtime.Gosched()
			}
			return push(s, journal, entries)
		}}, "not linearizable"},
		{"a conflict that wrote", odd{append: func(s store.Store, ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := s.Append(ctx, journal, after, entries...)
			if errors.Is(err, store.ErrConflict) {
				push(s, journal, entries)
			}
			return last, err
		}}, "not linearizable"},
		{"a cancelled append that goes on later", odd{append: func(s store.Store, ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := s.Append(ctx, journal, after, entries...)
			if ctx.Err() != nil {
				push(s, journal, entries)
				return 0, ctx.Err()
			}
			return last, err
		}}, "not linearizable"},
		{"a batch in two parts", odd{append: func(s store.Store, ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := s.Append(ctx, journal, after, entries[0])
			for _, e := range entries[1:] {
				if err == nil {
					last, err = push(s, journal, [][]byte{e})
				}
				runtime.Gosched()
			}
			return last, err
		}}, "not linearizable"},
		{"a batch with an end of its own", odd{batch: func(s store.Store, ctx context.Context, b store.Batch) (uint64, error) {
			last, err := s.(store.Batcher).AppendBatch(ctx, b)
			if errors.Is(err, store.ErrConflict) {
				_, _ = s.Put(context.WithoutCancel(ctx), b.Cells[0].Key, nil, "")
				return push(s, b.Journal, b.Entries)
			}
			return last, err
		}}, "not linearizable"},
		{"a batch that forgets its cell", odd{batch: func(s store.Store, ctx context.Context, b store.Batch) (uint64, error) {
			return s.Append(ctx, b.Journal, b.After, b.Entries...)
		}}, "as a whole or not at all"},
		{"a batch that is refused and keeps its cell", odd{batch: func(s store.Store, ctx context.Context, b store.Batch) (uint64, error) {
			last, err := s.(store.Batcher).AppendBatch(ctx, b)
			if err != nil {
				_, _ = s.Put(context.WithoutCancel(ctx), b.Cells[0].Key, nil, "")
			}
			return last, err
		}}, "as a whole or not at all"},
		{"a reader that is behind", odd{read: func(s store.Store, ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				have, err := store.ReadAll(ctx, s, journal, after)
				if len(have) > 0 && rand.IntN(8) == 0 {
					have = have[:len(have)-1]
				}
				for _, e := range have {
					if !yield(e, nil) {
						return
					}
				}
				if err != nil {
					yield(store.Entry{}, err)
				}
			}
		}}, "not linearizable"},
		{"a gap", odd{read: func(s store.Store, ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return s.Read(ctx, journal, 1)
		}}, "dense from 1"},
		{"a store that refuses nearly all", odd{append: func(s store.Store, ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			settling := strings.HasPrefix(string(entries[0]), "client -1 ")
			if !settling && rand.IntN(100) != 0 {
				return 0, store.Conflictf("not today")
			}
			return s.Append(ctx, journal, after, entries...)
		}}, "proves too little"},
		{"a store that refuses all", odd{append: func(store.Store, context.Context, string, uint64, [][]byte) (uint64, error) {
			return 0, store.Conflictf("never")
		}}, "at the end that was just read did not succeed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			failed, log := record(t, func(tb testing.TB) {
				Linearize(tb, func(ctx context.Context, dir string) (store.Store, error) {
					bent := test.store
					bent.Store = memstore.Open(dir)
					return bent, nil
				}, LinearizeOptions{Histories: 20})
			})
			if !failed || !strings.Contains(log, test.want) {
				t.Errorf("Linearize failed: %v, want a failure that says %q; it said:\n%s", failed, test.want, log)
			}
		})
	}
}
