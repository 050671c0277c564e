//go:build darwin || freebsd || linux || netbsd || openbsd

package driver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/storetest"
)

func TestStore(t *testing.T) { storetest.Run(t, Open) }

func TestKill(t *testing.T) {
	storetest.Kill(t, Open, storetest.KillOptions{Kills: 20, Acks: 1000})
}

// A log that is open for reading only fails as a broken disk does.
func TestPoison(t *testing.T) {
	storetest.Poison(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
		opened, err := Open(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		s := opened.(*logStore)
		good := s.log
		bad, err := os.Open(good.Name())
		if err != nil {
			return nil, nil, err
		}
		t.Cleanup(func() { good.Close(); bad.Close() })
		return s, func(on bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.log = good; on {
				s.log = bad
			}
		}, nil
	})
}

// The sample stays one that can be read in one go.
func TestSize(t *testing.T) {
	code, err := os.ReadFile("driver.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(code, []byte("\n")); lines > 200 {
		t.Errorf("driver.go has %d lines, want at most 200", lines)
	}
}

// Every bit of the log counts, and half a line at its end is no damage.
func TestDamage(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := open(t, dir)
	for n := range uint64(3) {
		if _, err := s.Append(ctx, "j", n, []byte("entry")); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "store.log")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(good[:len(good)-1], '\n') + 1
	read := func(log []byte) (int, error) {
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		defer s.Close()
		entries, err := store.ReadAll(ctx, s, "j", 0)
		return len(entries), err
	}
	for bit := range 8 * (len(good) - 1) { // the last end of line decides whether its line counts
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		n, err := read(bad)
		if c, ok := errors.AsType[*store.CorruptError](err); !ok || !strings.Contains(c.Where, path) {
			t.Fatalf("with bit %d of byte %d flipped there are %d entries: %v, want ErrCorrupt that names the log", bit%8, bit/8, n, err)
		}
	}
	for size := last; size < len(good); size++ {
		if n, err := read(good[:size]); err != nil || n != 2 {
			t.Fatalf("with the last line cut to %d bytes there are %d entries: %v, want 2", size-last, n, err)
		}
	}
	if n, err := read(append(bytes.Clone(good), make([]byte, 4096)...)); err != nil || n != 3 {
		t.Fatalf("with zeros behind the last line there are %d entries: %v, want 3", n, err)
	}
}

func TestOpenByURL(t *testing.T) {
	s, err := store.Open(t.Context(), "log:"+t.TempDir(), store.Require(store.Power))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v, want os.ErrNotExist", err)
	}
}

func open(t *testing.T, dir string) store.Store {
	t.Helper()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
