package blob

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// A ref that comes from outside reaches blobs of its prefix or nothing.
func TestForgedRef(t *testing.T) {
	s := memstore.New()
	mine := mustPut(t, s, "mine/", []byte("mine"))
	other := mustPut(t, s, "other/", []byte("secret"))
	hash := mine.Hash
	for name, test := range map[string]struct {
		ref  Ref
		want error
	}{
		"empty":                   {Ref{}, store.ErrInvalid},
		"short":                   {Ref{hash[:63], 4}, store.ErrInvalid},
		"long":                    {Ref{hash + "0", 4}, store.ErrInvalid},
		"upper case":              {Ref{strings.ToUpper(hash), 4}, store.ErrInvalid},
		"not hex":                 {Ref{hash[:63] + "g", 4}, store.ErrInvalid},
		"another prefix":          {other, store.ErrNotFound},
		"a path to it":            {Ref{"../../other/m/" + other.Hash, 6}, store.ErrInvalid},
		"a path of a hash's size": {Ref{("../other/m/" + other.Hash)[:64], 6}, store.ErrInvalid},
		"NUL":                     {Ref{hash[:63] + "\x00", 4}, store.ErrInvalid},
		"negative size":           {Ref{hash, -1}, store.ErrInvalid},
		"huge size":               {Ref{hash, math.MaxInt64}, store.ErrTooLarge},
		"a byte over MaxSize":     {Ref{hash, MaxSize + 1}, store.ErrTooLarge},
		"smaller size":            {Ref{hash, 3}, store.ErrInvalid},
		"larger size":             {Ref{hash, MaxSize}, store.ErrInvalid},
		"unknown":                 {Ref{strings.Repeat("0", 64), 4}, store.ErrNotFound},
		"a chunk":                 {Ref{hashOf([]byte("mine")), 4}, store.ErrNotFound},
	} {
		if _, chunks, err := Chunks(t.Context(), s, "mine/", test.ref); !errors.Is(err, test.want) || chunks != nil {
			t.Errorf("%s: Chunks = %v; want %v", name, err, test.want)
		}
		if got, err := Bytes(t.Context(), s, "mine/", test.ref); !errors.Is(err, test.want) || got != nil {
			t.Errorf("%s: Bytes = %q, %v; want %v", name, got, err, test.want)
		}
	}
}

// A value that looks like a manifest is a value.
func TestValueIsNoManifest(t *testing.T) {
	s := memstore.New()
	secret := []byte("of another blob")
	mustPut(t, s, "t/", secret)
	m := manifest{size: int64(len(secret)), chunk: chunkSize, hashes: []string{hashOf(secret)}}
	fake := m.encode()
	mustPut(t, s, "t/", fake)
	if _, err := Bytes(t.Context(), s, "t/", Ref{Hash: hashOf(fake[:len(fake)-1]), Size: m.size}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Open = %v", err)
	}
}

func TestPrefix(t *testing.T) {
	s := memstore.New()
	longest := strings.Repeat("p", store.MaxName-67) + "/"
	for prefix, want := range map[string]error{
		"":                              store.ErrInvalid,
		"thread":                        store.ErrInvalid,
		strings.Repeat("p", 600) + "/":  store.ErrInvalid,
		"p" + longest:                   store.ErrInvalid,
		longest:                         nil,
		"/":                             nil,
		"with \x00 and \xff and ../../": nil,
	} {
		ref, err := Put(t.Context(), s, prefix, strings.NewReader("x"))
		if !errors.Is(err, want) {
			t.Errorf("Put below %.40q = %v; want %v", prefix, err, want)
		}
		if want == nil {
			wantValue(t, s, prefix, ref, []byte("x"))
			continue
		}
		if _, err := Bytes(t.Context(), s, prefix, Ref{Hash: hashOf(nil)}); !errors.Is(err, want) {
			t.Errorf("Open below %.40q = %v; want %v", prefix, err, want)
		}
		if err := Delete(t.Context(), s, prefix); !errors.Is(err, want) {
			t.Errorf("Delete below %.40q = %v; want %v", prefix, err, want)
		}
	}
}

// Damage to any cell is found, located, and never returned as content.
func TestDamage(t *testing.T) {
	v := value(1, 2*chunkSize+10)
	for name, damage := range map[string]func([]byte) []byte{
		"first bit": func(b []byte) []byte { b[0] ^= 1; return b },
		"last bit":  func(b []byte) []byte { b[len(b)-1] ^= 128; return b },
		"cut":       func(b []byte) []byte { return b[:len(b)-1] },
		"longer":    func(b []byte) []byte { return append(b, 0) },
		"empty":     func([]byte) []byte { return nil },
	} {
		whole := memstore.New()
		ref := mustPut(t, whole, "t/", v)
		for _, key := range keys(t, whole) {
			s := memstore.New()
			mustPut(t, s, "t/", v)
			c, err := s.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Put(t.Context(), key, damage(c.Value), c.Version); err != nil {
				t.Fatal(err)
			}
			wantDamage(t, name, s, ref, key, v)
			// Putting the value again does not cover it up.
			var where *store.CorruptError
			if _, err := Put(t.Context(), s, "t/", bytes.NewReader(v)); !errors.As(err, &where) || where.Cell != key {
				t.Errorf("%s in %s: Put = %v", name, key, err)
			}
		}
	}
	t.Run("missing chunk", func(t *testing.T) {
		s := memstore.New()
		ref := mustPut(t, s, "t/", v)
		key := chunkKey("t/", hashOf(v[chunkSize:2*chunkSize]))
		c, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), key, c.Version); err != nil {
			t.Fatal(err)
		}
		wantDamage(t, "missing chunk", s, ref, key, v)
		mustPut(t, s, "t/", v)
		wantValue(t, s, "t/", ref, v)
	})
}

// wantDamage demands that reading the blob finds damage in the cell, and
// yields nothing but what v begins with before that.
func wantDamage(t *testing.T, name string, s store.Store, ref Ref, key string, v []byte) {
	t.Helper()
	got, err := joined(t.Context(), s, ref)
	var where *store.CorruptError
	if !errors.As(err, &where) || where.Cell != key {
		t.Errorf("%s in %s: read %v", name, key, err)
	}
	if !bytes.HasPrefix(v, got) || len(got)%chunkSize != 0 {
		t.Errorf("%s in %s: %d bytes were returned, not whole chunks of the value", name, key, len(got))
	}
}

func FuzzManifest(f *testing.F) {
	m := manifest{size: chunkSize + 1, chunk: chunkSize, hashes: []string{hashOf(nil), hashOf([]byte("x"))}}
	f.Add(m.encode())
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 1}) // 2^30 chunks
	f.Add(bytes.Repeat([]byte{0xff}, 13))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decode(data)
		if err != nil {
			return
		}
		if !bytes.Equal(m.encode(), data) {
			t.Errorf("%x is read as %+v, which is written as %x", data, m, m.encode())
		}
		var sum int64
		for i := range m.hashes {
			if n := m.length(i); n <= 0 || n > m.chunk {
				t.Errorf("chunk %d of %+v has %d bytes", i, m, n)
			}
			sum += m.length(i)
		}
		if sum != m.size {
			t.Errorf("the chunks of %+v have %d bytes together", m, sum)
		}
	})
}
