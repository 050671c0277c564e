package blob

import (
	"bytes"
	"errors"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestACopyHasTheSameRef(t *testing.T) {
	for _, size := range []int{0, 1, chunkSize, chunkSize + 1, 3*chunkSize + 7} {
		from, to := memstore.New(), memstore.New()
		v := value(uint64(size), size)
		ref := mustPut(t, from, "a/", v)
		chunk, chunks, err := Chunks(t.Context(), from, "a/", ref)
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCopy(to, "b/", ref, chunk)
		if err != nil {
			t.Fatal(err)
		}
		for data, err := range chunks {
			if err == nil {
				err = c.Add(t.Context(), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantValue(t, to, "b/", ref, v)
	}
}

func TestACopyOfSomethingElseIsRefused(t *testing.T) {
	from, to := memstore.New(), memstore.New()
	v := value(1, chunkSize+10)
	ref := mustPut(t, from, "a/", v)
	add := func(chunks ...[]byte) error {
		c, err := NewCopy(to, "b/", ref, chunkSize)
		for _, chunk := range chunks {
			if err == nil {
				err = c.Add(t.Context(), chunk)
			}
		}
		if err == nil {
			err = c.Close(t.Context())
		}
		return err
	}
	other := bytes.Clone(v)
	other[7] ^= 1
	for name, err := range map[string]error{
		"a changed byte":  add(other[:chunkSize], other[chunkSize:]),
		"a missing chunk": add(v[:chunkSize]),
		"a short chunk":   add(v[:chunkSize-1], v[chunkSize-1:]),
		"a chunk more":    add(v[:chunkSize], v[chunkSize:], v[:1]),
	} {
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s is %v", name, err)
		}
	}
	for name, chunk := range map[string]int64{"none": 0, "tiny": 1, "huge": store.MaxEntry + 1} {
		if _, err := NewCopy(nil, "", ref, chunk); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("chunks of a size that is %s: %v", name, err)
		}
	}
	if _, err := Bytes(t.Context(), to, "b/", ref); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what was refused can be read: %v", err)
	}
}
