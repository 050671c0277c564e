package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// value returns size bytes that follow from seed.
func value(seed uint64, size int) []byte {
	v := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(v)
	return v
}

func mustPut(t testing.TB, s store.Store, prefix string, v []byte) Ref {
	t.Helper()
	ref, err := Put(t.Context(), s, prefix, bytes.NewReader(v))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func wantValue(t testing.TB, s store.Store, prefix string, ref Ref, want []byte) {
	t.Helper()
	if got, err := Bytes(t.Context(), s, prefix, ref); err != nil || !bytes.Equal(got, want) {
		t.Errorf("blob %v holds %d bytes, %v; want the %d bytes that were put", ref, len(got), err, len(want))
	}
}

func keys(t testing.TB, s store.Store) []string {
	t.Helper()
	var all []string
	for c, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.Key)
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	s := memstore.New()
	for _, size := range []int{0, 1, Inline, Inline + 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize - 1, 3 * chunkSize, 3*chunkSize + 7} {
		v := value(uint64(size), size)
		ref := mustPut(t, s, "t/", v)
		if ref.Size != int64(size) {
			t.Errorf("a value of %d bytes has the ref %v", size, ref)
		}
		wantValue(t, s, "t/", ref, v)
		if got, err := joined(t.Context(), s, ref); err != nil || !bytes.Equal(got, v) {
			t.Errorf("the chunks of %d bytes: %d bytes, %v", size, len(got), err)
		}
		// However the source is cut up, it is the same blob.
		for name, source := range map[string]io.Reader{
			"one byte at a time": iotest.OneByteReader(bytes.NewReader(v)),
			"the end with data":  iotest.DataErrReader(bytes.NewReader(v)),
		} {
			if size > chunkSize+1 && name == "one byte at a time" {
				continue
			}
			if again, err := Put(t.Context(), s, "t/", source); err != nil || again != ref {
				t.Errorf("%s: Put = %v, %v; want %v", name, again, err, ref)
			}
		}
	}
}

func TestRefIsJSON(t *testing.T) {
	ref := mustPut(t, memstore.New(), "t/", []byte("x"))
	text, err := json.Marshal(ref)
	if err != nil || len(text) > 128 {
		t.Fatalf("a ref is %s, %v", text, err)
	}
	var back Ref
	if err := json.Unmarshal(text, &back); err != nil || back != ref {
		t.Errorf("%s came back as %v, %v", text, back, err)
	}
}

func TestPutTwiceWritesOnce(t *testing.T) {
	inner := memstore.New()
	v := value(1, 3*chunkSize+1)
	ref := mustPut(t, inner, "t/", v)
	counting := faulty.New(inner, nil)
	if again := mustPut(t, counting, "t/", v); again != ref || counting.Writes() != 0 {
		t.Errorf("the second Put = %v with %d writes; want %v and none", again, counting.Writes(), ref)
	}
	// A value that shares chunks writes only its own, and a manifest.
	mustPut(t, counting, "t/", append(bytes.Clone(v[:3*chunkSize]), "other end"...))
	if counting.Writes() != 2 {
		t.Errorf("a value that shares all chunks but one made %d writes, want 2", counting.Writes())
	}
	// Nothing is shared between prefixes.
	mustPut(t, counting, "u/", v)
	if counting.Writes() != 2+5 {
		t.Errorf("below another prefix it made %d writes, want 5", counting.Writes()-2)
	}
}

// The value may not be longer than its source was, nor silently shorter.
func TestSourceFails(t *testing.T) {
	broken := errors.New("broken")
	for _, failure := range []error{broken, io.ErrUnexpectedEOF, fmt.Errorf("wrapped: %w", io.EOF)} {
		for _, size := range []int{0, 10, chunkSize, chunkSize + 10, 2 * chunkSize} {
			v := value(1, size)
			for name, source := range map[string]io.Reader{
				"after the data": io.MultiReader(bytes.NewReader(v), iotest.ErrReader(failure)),
				"with the data":  &failsOnce{data: v, err: failure},
			} {
				s := memstore.New()
				if _, err := Put(t.Context(), s, "t/", source); !errors.Is(err, failure) {
					t.Errorf("%v %s of %d bytes: Put = %v", failure, name, size, err)
				}
				for _, key := range keys(t, s) {
					if strings.HasPrefix(key, "t/m/") {
						t.Errorf("%v %s of %d bytes: a manifest was written", failure, name, size)
					}
				}
			}
		}
	}
}

// TestSourceStandsStill puts from sources that yield nothing for a while, and
// forever.
func TestSourceStandsStill(t *testing.T) {
	s := memstore.New()
	still := readerFunc(func([]byte) (int, error) { return 0, nil })
	if _, err := Put(t.Context(), s, "t/", still); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Put from a source that brings nothing = %v, want io.ErrNoProgress", err)
	}
	rest, calls := bytes.NewReader([]byte("slow")), 0
	slow := readerFunc(func(p []byte) (int, error) {
		if calls++; calls%50 != 0 {
			return 0, nil
		}
		return rest.Read(p[:1])
	})
	ref, err := Put(t.Context(), s, "t/", slow)
	if err != nil || ref.Size != 4 {
		t.Errorf("Put from a slow source = %+v, %v", ref, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// failsOnce returns its error with the last byte, and then a clean end.
type failsOnce struct {
	data []byte
	err  error
}

func (f *failsOnce) Read(p []byte) (int, error) {
	n := copy(p, f.data)
	f.data = f.data[n:]
	if len(f.data) > 0 {
		return n, nil
	}
	err := f.err
	f.err = io.EOF
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestTooLarge(t *testing.T) {
	source := &io.LimitedReader{R: zeros{}, N: MaxSize + 1}
	_, err := Put(t.Context(), memstore.New(), "t/", source)
	if !errors.Is(err, store.ErrTooLarge) || source.N != 0 {
		t.Errorf("Put of more than MaxSize bytes = %v with %d bytes unread; want it to fail at the last", err, source.N)
	}
	largest := manifest{size: MaxSize, chunk: chunkSize, hashes: make([]string, MaxSize/chunkSize)}
	for i := range largest.hashes {
		largest.hashes[i] = hashOf(nil)
	}
	if n := len(largest.encode()); n > store.MaxEntry {
		t.Errorf("the manifest of MaxSize bytes has %d bytes and fits into no cell", n)
	}
	if _, err := decode(largest.encode()); err != nil {
		t.Errorf("the manifest of MaxSize bytes: %v", err)
	}
}

func TestDelete(t *testing.T) {
	s := memstore.New()
	ref := mustPut(t, s, "t/", value(1, 2*chunkSize))
	mustPut(t, s, "t/", value(2, 10))
	kept := mustPut(t, s, "t2/", value(3, 10))
	if _, err := s.Put(t.Context(), "t/summary", nil, ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Delete(t.Context(), s, "t/"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Bytes(t.Context(), s, "t/", ref); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Bytes of a deleted blob = %v", err)
	}
	wantValue(t, s, "t2/", kept, value(3, 10))
	if got := len(keys(t, s)); got != 3 {
		t.Errorf("%q are left; want the other prefix's blob and the cell that is none", keys(t, s))
	}
}

func TestDeletedWhileRead(t *testing.T) {
	s := memstore.New()
	_, chunks, err := Chunks(t.Context(), s, "t/", mustPut(t, s, "t/", value(1, 2*chunkSize)))
	if err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), s, "t/"); err != nil {
		t.Fatal(err)
	}
	for _, err = range chunks {
		break
	}
	if !errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		t.Errorf("reading a blob that was deleted = %v", err)
	}
}

// joined returns the chunks of a blob, as far as they can be read.
func joined(ctx context.Context, s store.Store, ref Ref) (all []byte, err error) {
	_, chunks, err := Chunks(ctx, s, "t/", ref)
	if err != nil {
		return nil, err
	}
	for chunk, err := range chunks {
		if err != nil {
			return all, err
		}
		all = append(all, chunk...)
	}
	return all, nil
}

func TestReadingEnds(t *testing.T) {
	s := memstore.New()
	ref := mustPut(t, s, "t/", value(1, 2*chunkSize))
	ctx, cancel := context.WithCancel(t.Context())
	_, chunks, err := Chunks(ctx, s, "t/", ref)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for chunk, err := range chunks {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("reading with a cancelled context = %d bytes, %v", len(chunk), err)
		}
	}
	if _, err := Put(ctx, s, "t/", strings.NewReader("other")); !errors.Is(err, context.Canceled) {
		t.Errorf("Put with a cancelled context = %v", err)
	}
}

func TestConcurrently(t *testing.T) {
	s := memstore.New()
	v := value(1, 4*chunkSize+1)
	var all sync.WaitGroup
	for i := range 8 {
		noisy := faulty.New(s, faulty.Random(uint64(i), faulty.Rate{Fault: faulty.Conflict, P: 0.3}))
		all.Go(func() {
			ref, err := Put(t.Context(), noisy, "t/", bytes.NewReader(v))
			if err != nil {
				t.Errorf("Put = %v", err)
				return
			}
			wantValue(t, noisy, "t/", ref, v)
		})
	}
	all.Wait()
	if got := len(keys(t, s)); got != 6 {
		t.Errorf("8 equal values have %d cells, want 5 chunks and a manifest", got)
	}
}

// Cut at every call, a Put can be repeated, and until then no ref is out.
func TestPutSweep(t *testing.T) {
	v := value(1, 2*chunkSize+1)
	want := mustPut(t, memstore.New(), "t/", v)
	cuts := 0
	for cut, plan := range faulty.SweepCalls(faulty.CrashBefore, faulty.CrashAfter, faulty.FailBefore, faulty.FailAfter, faulty.Conflict) {
		cuts++
		inner := memstore.New()
		ref, err := Put(t.Context(), faulty.New(inner, plan), "t/", bytes.NewReader(v))
		if err == nil {
			wantValue(t, inner, "t/", ref, v)
		} else if !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("%s: Put = %v", cut, err)
		}
		// Whoever has the ref finds all of it or nothing, never a part.
		if got, err := Bytes(t.Context(), inner, "t/", want); err == nil && !bytes.Equal(got, v) || err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: then the blob is %d bytes, %v", cut, len(got), err)
		}
		if again := mustPut(t, inner, "t/", v); again != want {
			t.Errorf("%s: Put again = %v, want %v", cut, again, want)
		}
		wantValue(t, inner, "t/", want, v)
		if got := len(keys(t, inner)); got != 4 {
			t.Errorf("%s: %d cells, want 3 chunks and a manifest", cut, got)
		}
	}
	if cuts < 8*5 {
		t.Errorf("the sweep made %d cuts only", cuts)
	}
}

func TestReadAndDeleteSweep(t *testing.T) {
	v := value(1, 2*chunkSize+1)
	for cut, plan := range faulty.SweepCalls(faulty.CrashBefore, faulty.FailAfter, faulty.FailAmid(1), faulty.Conflict) {
		inner := memstore.New()
		ref := mustPut(t, inner, "t/", v)
		s := faulty.New(inner, plan)
		if got, err := Bytes(t.Context(), s, "t/", ref); err == nil && !bytes.Equal(got, v) || err != nil && !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("%s: Bytes = %d bytes, %v", cut, len(got), err)
		}
		if err := Delete(t.Context(), s, "t/"); err == nil && len(keys(t, inner)) != 0 || err != nil && !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("%s: Delete = %v with %q left", cut, err, keys(t, inner))
		}
		if got, err := Bytes(t.Context(), inner, "t/", ref); err == nil && !bytes.Equal(got, v) || err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: after a cut Delete the blob is %d bytes, %v", cut, len(got), err)
		}
		if err := Delete(t.Context(), inner, "t/"); err != nil || len(keys(t, inner)) != 0 {
			t.Errorf("%s: Delete again = %v with %q left", cut, err, keys(t, inner))
		}
	}
}
