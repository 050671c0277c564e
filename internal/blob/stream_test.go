package blob

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

const large = 64 << 20

// counted is a source whose blocks all differ. It counts what was read of it.
type counted struct{ read int64 }

func (c *counted) Read(p []byte) (int, error) {
	if c.read >= large {
		return 0, io.EOF
	}
	const block = 4 << 10
	n := min(len(p)&^(block-1), large-int(c.read))
	clear(p[:n])
	for i := 0; i < n; i += block {
		binary.BigEndian.PutUint64(p[i:], uint64(c.read)+uint64(i))
	}
	c.read += int64(n)
	return n, nil
}

// sink is a store that keeps manifests only and counts what goes through it.
// It makes chunks up again when they are asked for.
type sink struct {
	*memstore.Store
	offsets map[string]int64 // of the chunks, by key
	put     int64
	got     int64
	ahead   func() int64 // how much was read or got and not passed on
	most    int64        // the largest ahead at any call
}

func (s *sink) Put(ctx context.Context, key string, v []byte, prev store.Version) (store.Version, error) {
	s.most = max(s.most, s.ahead())
	if strings.Contains(key, "m/") {
		return s.Store.Put(ctx, key, v, prev)
	}
	s.offsets[key] = s.put
	s.put += int64(len(v))
	return "1", nil
}

func (s *sink) Get(ctx context.Context, key string) (store.Cell, error) {
	s.most = max(s.most, s.ahead())
	offset, ok := s.offsets[key]
	if !ok {
		return s.Store.Get(ctx, key)
	}
	chunk := make([]byte, chunkSize)
	from := counted{read: offset}
	if _, err := io.ReadFull(&from, chunk); err != nil {
		return store.Cell{}, err
	}
	s.got += chunkSize
	return store.Cell{Key: key, Value: chunk, Version: "1"}, nil
}

// A large value passes both ways with no more than a chunk of it in memory.
func TestStreams(t *testing.T) {
	source := &counted{}
	s := &sink{Store: memstore.New(), offsets: map[string]int64{}}
	s.ahead = func() int64 { return source.read - s.put }

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ref, err := Put(t.Context(), s, "t/", source)
	runtime.ReadMemStats(&after)
	if err != nil || ref.Size != large || s.put != large {
		t.Fatalf("Put = %v, %v with %d bytes in chunks", ref, err, s.put)
	}
	if s.most != chunkSize {
		t.Errorf("Put was %d bytes ahead of the store, want a chunk of %d", s.most, chunkSize)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8*chunkSize {
		t.Errorf("Put of %d bytes allocated %d in all, want less than 8 chunks", large, used)
	}

	var passed int64
	s.most, s.ahead = 0, func() int64 { return s.got - passed }
	_, chunks, err := Chunks(t.Context(), s, "t/", ref)
	if err != nil {
		t.Fatal(err)
	}
	sum, want := sha256.New(), sha256.New()
	for chunk, err := range chunks {
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(chunk)
		s.most = max(s.most, s.ahead())
		passed += int64(len(chunk))
	}
	if s.most > chunkSize {
		t.Errorf("the reader was %d bytes ahead of its caller, want at most a chunk of %d", s.most, chunkSize)
	}
	_, _ = io.CopyBuffer(want, &counted{}, make([]byte, chunkSize))
	if string(sum.Sum(nil)) != string(want.Sum(nil)) {
		t.Error("the value came back changed")
	}
}
