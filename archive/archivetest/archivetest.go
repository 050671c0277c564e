// Package archivetest checks that a place meets the contract of package archive. It may
// import package archive.
package archivetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/archive"
)

// Run tests a place. Open returns an empty one, and another handle to the same
// place when it is called again with the same testing.TB.
func Run(t *testing.T, open func(testing.TB) archive.Place) {
	t.Run("RoundTrip", func(t *testing.T) { roundTrip(t, open(t), open(t)) })
	t.Run("Replace", func(t *testing.T) { replace(t, open(t)) })
	t.Run("Missing", func(t *testing.T) { missing(t, open(t)) })
	t.Run("List", func(t *testing.T) { list(t, open(t)) })
	t.Run("FailedReader", func(t *testing.T) { failedReader(t, open(t)) })
	t.Run("Cancelled", func(t *testing.T) { cancelled(t, open(t)) })
	t.Run("Names", func(t *testing.T) { names(t, open(t)) })
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, open(t)) })
}

// Read returns the content of an object.
func Read(ctx context.Context, p archive.Place, name string) ([]byte, error) {
	r, err := p.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func put(t *testing.T, p archive.Place, name string, data []byte) {
	t.Helper()
	if err := p.Put(t.Context(), name, bytes.NewReader(data)); err != nil {
		t.Fatalf("Put %s: %v", name, err)
	}
}

func want(t *testing.T, p archive.Place, name string, data []byte) {
	t.Helper()
	if got, err := Read(t.Context(), p, name); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%s has %d bytes, %v; want the %d that were put", name, len(got), err, len(data))
	}
}

func roundTrip(t *testing.T, p, other archive.Place) {
	for _, size := range []int{1, 300_000, 20 << 20} {
		data := bytes.Repeat([]byte{'a', 0, 0xff, byte(size)}, size/4+1)[:size]
		name := fmt.Sprintf("thread.0/%d-x.gz", size)
		put(t, p, name, data)
		want(t, p, name, data)
		want(t, other, name, data)
	}
	if u := p.URL(); !strings.Contains(u, ":") {
		t.Errorf("the URL of the place is %q", u)
	}
}

func replace(t *testing.T, p archive.Place) {
	put(t, p, "a/b", []byte("a longer first text"))
	put(t, p, "a/b", []byte("second"))
	want(t, p, "a/b", []byte("second"))
}

func missing(t *testing.T, p archive.Place) {
	if _, err := Read(t.Context(), p, "a/none"); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("Get of a missing object: %v; want ErrNotFound", err)
	}
	if err := p.Delete(t.Context(), "a/none"); err != nil {
		t.Errorf("Delete of a missing object: %v", err)
	}
	put(t, p, "a/one", []byte("x"))
	for range 2 {
		if err := p.Delete(t.Context(), "a/one"); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	if _, err := Read(t.Context(), p, "a/one"); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("Get of a deleted object: %v; want ErrNotFound", err)
	}
}

func list(t *testing.T, p archive.Place) {
	all := []string{"a", "a.1/x", "a/x", "a/y-1", "a0/x", "b/c/d", "c"}
	for _, name := range slices.Backward(all) {
		if name != "a" { // some places cannot have an object and a folder of one name
			put(t, p, name, []byte(name))
		}
	}
	all = all[1:]
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", all}, {"a", "", all[:4]}, {"a/", "", all[1:3]}, {"a/", "a/x", all[2:3]}, {"b/c/", "", all[4:5]}, {"", "a/y-1", all[3:]}, {"x/", "", nil}, {"", "c", nil},
	} {
		var got []string
		for name, err := range p.List(t.Context(), c.prefix, c.after) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("List(%q, %q) = %q; want %q", c.prefix, c.after, got, c.want)
		}
	}
	for name, err := range p.List(t.Context(), "", "") {
		if err != nil || name != all[0] {
			t.Errorf("the first is %q, %v", name, err)
		}
		break
	}
}

func failedReader(t *testing.T, p archive.Place) {
	put(t, p, "a/kept", []byte("whole"))
	broken := errors.New("broken")
	for _, size := range []int{0, 10, 17 << 20} {
		for _, name := range []string{"a/kept", fmt.Sprint("a/new-", size)} {
			r := io.MultiReader(bytes.NewReader(make([]byte, size)), errReader{broken})
			if err := p.Put(t.Context(), name, r); !errors.Is(err, broken) {
				t.Errorf("Put of a reader that fails after %d bytes: %v", size, err)
			}
		}
		if _, err := Read(t.Context(), p, fmt.Sprint("a/new-", size)); !errors.Is(err, archive.ErrNotFound) {
			t.Errorf("after a failed Put, Get: %v; want ErrNotFound", err)
		}
	}
	want(t, p, "a/kept", []byte("whole"))
	for name, err := range p.List(t.Context(), "", "") {
		if err != nil || name != "a/kept" {
			t.Errorf("failed puts left %q, %v", name, err)
		}
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func cancelled(t *testing.T, p archive.Place) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Put(ctx, "a/x", strings.NewReader("x")); err == nil {
		t.Error("Put with a cancelled context succeeded")
	}
	if _, err := Read(t.Context(), p, "a/x"); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("then Get: %v; want ErrNotFound", err)
	}
}

func names(t *testing.T, p archive.Place) {
	long := strings.Repeat("x", 90) + "/" + strings.Repeat("y", archive.MaxName-91)
	put(t, p, long, []byte("long"))
	want(t, p, long, []byte("long"))
	for _, name := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a/.b", "A", "a b", "a\x00", "ä", long + "z"} {
		if err := p.Put(t.Context(), name, strings.NewReader("x")); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("Put(%.20q): %v; want ErrInvalid", name, err)
		}
		if _, err := p.Get(t.Context(), name); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("Get(%.20q): %v; want ErrInvalid", name, err)
		}
		if err := p.Delete(t.Context(), name); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("Delete(%.20q): %v; want ErrInvalid", name, err)
		}
	}
}

// concurrent has many writers of one object: whoever reads meanwhile gets one of
// them whole.
func concurrent(t *testing.T, p archive.Place) {
	text := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 100_000) }
	put(t, p, "a/x", text(0))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 5 {
				if err := p.Put(t.Context(), "a/x", bytes.NewReader(text(i))); err != nil {
					t.Errorf("Put: %v", err)
				}
				got, err := Read(t.Context(), p, "a/x")
				if err != nil || len(got) != 100_000 || bytes.Count(got, got[:1]) != len(got) {
					t.Errorf("Get while others write: %d bytes, %v", len(got), err)
				}
			}
		})
	}
	all.Wait()
}
