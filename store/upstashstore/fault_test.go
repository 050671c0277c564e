package upstashstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/resttest"
	"github.com/perdure/perdure/store"
)

// repeat makes a proxy execute each request twice and answer as it did the second time.
func repeat(proxy *resttest.Proxy) {
	proxy.Before(func(w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.Pass(httptest.NewRecorder(), r)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.Pass(w, r)
		return true
	})
}

// A write that something on the way sends twice takes effect once, and succeeds.
func TestRepeatedRequests(t *testing.T) {
	proxy, url, _ := serve(t)
	repeat(proxy)
	s := open(t, url)
	for n := range uint64(3) {
		if _, err := s.Append(t.Context(), "j", n, fmt.Append(nil, n)); err != nil {
			t.Errorf("append %d: %v", n, err)
		}
	}
	v, err := s.Put(t.Context(), "c", []byte("x"), "")
	if err == nil {
		_, err = s.Put(t.Context(), "c", []byte("y"), v)
	}
	if err != nil {
		t.Error(err)
	}
	if entries, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(entries) != 3 {
		t.Errorf("the journal has %d entries, %v", len(entries), err)
	}
}

// A write whose answer is lost is sent once, and AppendOnce finds it.
func TestLostAnswer(t *testing.T) {
	proxy, url, _ := serve(t)
	s := open(t, url)
	proxy.Before(func(w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte("ZADD")) {
			return false // it reads
		}
		proxy.Pass(httptest.NewRecorder(), r)
		hangUp(w)
		return true
	})
	sent := proxy.Requests.Load()
	if _, err := s.Put(t.Context(), "c", []byte("x"), ""); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Put says %v, want store.ErrUnavailable", err)
	}
	if n := proxy.Requests.Load() - sent; n != 1 {
		t.Errorf("the put was sent %d times", n)
	}
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Append says %v, want store.ErrUnavailable", err)
	}
	proxy.Before(nil)
	if c, err := s.Get(t.Context(), "c"); err != nil || string(c.Value) != "x" {
		t.Errorf("the cell is %q, %v", c.Value, err)
	}
	if last, err := store.AppendOnce(t.Context(), s, "j", 0, []byte("x")); err != nil || last != 1 {
		t.Errorf("AppendOnce finds %d, %v", last, err)
	}
	if entries, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(entries) != 1 {
		t.Errorf("the journal has %d entries, %v", len(entries), err)
	}
}

// TestLostKeys damages a database as an eviction, another program or a restored backup
// would. Nothing that was there is taken for something that never was.
func TestLostKeys(t *testing.T) {
	for name, c := range map[string]struct {
		damage []any
		list   bool // only of cells, so that the journal can be read
	}{
		"evicted cell": {[]any{"DEL", "CELL"}, true},
		"garbled cell": {[]any{"SET", "CELL", "short"}, true},
		"foreign cell": {[]any{"SET", "CELL", strings.Repeat("~", 40)}, true},
		"emptied":      {[]any{"FLUSHALL"}, false},
		"another":      {[]any{"SET", "{perdure}:format", "1 other"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, url, behind := serve(t)
			s := open(t, url)
			if _, err := s.Put(t.Context(), "c", []byte("x"), ""); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
				t.Fatal(err)
			}
			keys, err := behind.Keys(t.Context(), "{perdure}:key:c-*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			for i, arg := range c.damage {
				if arg == "CELL" {
					c.damage[i] = keys[0]
				}
			}
			if err := behind.Do(t.Context(), c.damage...).Err(); err != nil {
				t.Fatal(err)
			}
			_, err = s.Get(t.Context(), "c")
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Get says %v, want ErrCorrupt", err)
			}
			if _, err := s.Put(t.Context(), "c", nil, ""); !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrConflict) {
				t.Errorf("a Put that creates the cell says %v", err)
			}
			_, err = store.ReadAll(t.Context(), s, "j", 0)
			if c.list != (err == nil) || err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("reading the journal says %v", err)
			}
		})
	}
}

// TestRequests counts what a thread costs: each append is one request, with one more
// for each value that it fills.
func TestRequests(t *testing.T) {
	proxy, url, _ := serve(t)
	s := open(t, url)
	const appends, each = 300, 1000
	before := proxy.Requests.Load()
	for n := range uint64(appends) {
		if _, err := s.Append(t.Context(), "j", n, bytes.Repeat([]byte("e"), each)); err != nil {
			t.Fatal(err)
		}
	}
	wrote := proxy.Requests.Load() - before
	if most := int64(appends + 2 + appends*each>>16); wrote > most {
		t.Errorf("%d appends take %d requests, want at most %d", appends, wrote, most)
	}
	cold := open(t, url)
	before = proxy.Requests.Load()
	if entries, err := store.ReadAll(t.Context(), cold, "j", 0); err != nil || len(entries) != appends {
		t.Fatalf("the journal has %d entries, %v", len(entries), err)
	}
	read := proxy.Requests.Load() - before
	if read > 6 {
		t.Errorf("a cold read of %d entries takes %d requests", appends, read)
	}
	t.Logf("%d appends: %d requests; a cold read of them: %d", appends, wrote, read)
}

// Lists have several pages, by their number of keys and by their size.
func TestPages(t *testing.T) {
	_, url, _ := serve(t)
	s := open(t, url)
	want := map[string]int{}
	for i := range 250 {
		size := i
		if i%50 == 0 {
			size = 200 << 10
		}
		key := fmt.Sprintf("c%04d", i)
		want[key] = size
		if _, err := s.Put(t.Context(), key, make([]byte, size), ""); err != nil {
			t.Fatal(err)
		}
	}
	last := ""
	for cell, err := range s.List(t.Context(), "c", "") {
		if err != nil {
			t.Fatal(err)
		}
		if size, ok := want[cell.Key]; !ok || size != len(cell.Value) || cell.Key <= last {
			t.Errorf("List has %q with %d bytes after %q, want %d", cell.Key, len(cell.Value), last, size)
		}
		delete(want, cell.Key)
		last = cell.Key
	}
	if len(want) > 0 {
		t.Errorf("List leaves out %d cells", len(want))
	}
}

// Drop and Delete remove bytes from the database.
func TestErased(t *testing.T) {
	_, url, behind := serve(t)
	s := open(t, url)
	for n := range uint64(3) {
		if _, err := s.Append(t.Context(), "j", n, make([]byte, 50<<10)); err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.Put(t.Context(), "c", make([]byte, 50<<10), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Drop(t.Context(), "j"), s.Delete(t.Context(), "c", v)); err != nil {
		t.Fatal(err)
	}
	keys, err := behind.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 3 {
		t.Errorf("left are %q, %v; want the format, the index and a tombstone", keys, err)
	}
	for _, key := range keys {
		if n, err := behind.MemoryUsage(t.Context(), key).Result(); err != nil || n > 1000 {
			t.Errorf("%s takes %d bytes, %v", key, n, err)
		}
	}
}
