package filestore

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/perdure/perdure/store"
)

// mustOpen opens the folder on the disk d, without syncs.
func mustOpen(t *testing.T, dir string, d disk) *Store {
	t.Helper()
	s, err := openFolder(t.Context(), dir, Options{NoSync: true}, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// shortLived returns a folder that the caller removes, since a sweep needs
// thousands.
func shortLived(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var healthy = osDisk{noSync: true}

// TestEveryFailure lets each operation on files fail in turn. What was
// acknowledged before is there after a reopen, the write that failed is there
// whole or not at all, no write succeeds after it, and the store goes on.
func TestEveryFailure(t *testing.T) {
	for _, effect := range []effect{nothing, everything, half} {
		for _, forever := range []bool{false, true} {
			for _, beside := range []bool{false, true} {
				t.Run(fmt.Sprintf("effect=%v/forever=%v/beside=%v", effect, forever, beside), func(t *testing.T) {
					t.Parallel()
					failures := 0
					for n := 1; failUntil(t, n, forever, beside, effect); n++ {
						failures++
					}
					if failures < 70 {
						t.Errorf("only %d operations were failed; the script does not reach the disk", failures)
					}
				})
			}
		}
	}
}

// failUntil plays the script with the n-th operation failing and checks what
// is found afterwards: by a handle opened beside the poisoned one, or after
// that is closed. It reports whether there was an n-th operation.
func failUntil(t *testing.T, n int, forever, beside bool, effect effect) bool {
	t.Helper()
	dir, d, sc := shortLived(t), newFaultDisk(), newScript(t)
	defer os.RemoveAll(dir)
	defer func() {
		if t.Failed() {
			t.Logf("operation %d, %s, was failed", n, d.failed)
		}
	}()
	d.set(n, forever, effect)
	first, err := openFolder(t.Context(), dir, Options{NoSync: true}, d)
	if err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatalf("Open = %v, want the disk's error", err)
	}
	if err == nil {
		sc.s = first
		sc.play()
		if sc.failed == nil {
			sc.check()
			first.Close()
			return false
		}
		at := d.count
		sc.append("another", `{"n":1}`)
		sc.put("another", `{"n":1}`)
		if forever && d.count != at {
			t.Fatalf("a poisoned handle did %d more operations on files", d.count-at)
		}
		d.set(0, false, nothing)
		if beside {
			defer first.Close()
		} else {
			first.Close()
		}
	}
	second := mustOpen(t, dir, healthy)
	sc.s = second
	sc.check()
	sc.extend()
	sc.check()
	if err == nil && beside {
		checkPoisoned(t, first, second)
	}
	second.Close()
	if beside {
		return true
	}
	sc.s = mustOpen(t, dir, healthy)
	sc.check()
	sc.s.Close()
	return true
}

// checkPoisoned demands that a poisoned handle beside a sound one still
// refuses to write, and reads what the other wrote.
func checkPoisoned(t *testing.T, old, other store.Store) {
	t.Helper()
	want, err := contents(t.Context(), other, "single")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := contents(t.Context(), old, "single"); err != nil || len(got) != len(want) {
		t.Fatalf("the poisoned handle reads %q, %v; the other one %q", got, err, want)
	}
	if _, err := old.Append(t.Context(), "single", uint64(len(want)), []byte("1")); !errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("Append on the poisoned handle = %v, want ErrPoisoned", err)
	}
}

// TestTooManyFiles has no file left to open for a moment, which is not the
// disk's failure.
func TestTooManyFiles(t *testing.T) {
	d := newFaultDisk()
	d.err = syscall.EMFILE
	s := mustOpen(t, t.TempDir(), d)
	for name, write := range map[string]func() error{
		"Append": func() error { _, err := s.Append(t.Context(), "j", 0, []byte("1")); return err },
		"Put":    func() error { _, err := s.Put(t.Context(), "c", []byte("1"), ""); return err },
		"Drop":   func() error { return s.Drop(t.Context(), "d") },
	} {
		for n := 1; ; n++ { // up to the creation of a file, behind that of its folder
			d.set(n, false, nothing)
			err := write()
			if d.failed == "create" {
				if !errors.Is(err, syscall.EMFILE) || errors.Is(err, store.ErrPoisoned) {
					t.Errorf("%s without a file to open = %v, want an error that does not poison", name, err)
				}
				break
			}
			s.Close()
			s = mustOpen(t, t.TempDir(), d)
		}
		d.failed = ""
		d.set(0, false, nothing)
		if err := write(); err != nil {
			t.Errorf("%s afterwards = %v", name, err)
		}
	}
}

// TestEveryFailureInRecovery cuts the script short at each operation, then
// cuts the recovery short at each of its operations, then looks. The short form
// does a third.
func TestEveryFailureInRecovery(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 3
	}
	for _, effect := range []effect{nothing, everything, half} {
		t.Run(effect.String(), func(t *testing.T) {
			t.Parallel()
			recoveries := 0
			for i, op := range operations(t) {
				if op != "write" && (effect == half || op != "sync" && op != "rename") {
					continue // leaves nothing behind that another does not
				}
				for m := 1 + i%step; failTwice(t, i+1, m, effect); m += step {
					recoveries++
				}
			}
			t.Logf("%d recoveries were cut short", recoveries)
			if recoveries < 100/step {
				t.Error("these are too few; the script does not reach the disk")
			}
		})
	}
}

// operations returns what the script does on the disk.
func operations(t *testing.T) []string {
	d, sc := newFaultDisk(), newScript(t)
	s := mustOpen(t, t.TempDir(), d)
	sc.s = s
	sc.play()
	return d.log
}

// failTwice reports whether recovery had an m-th operation to fail.
func failTwice(t *testing.T, n, m int, effect effect) bool {
	t.Helper()
	dir, d, sc := shortLived(t), newFaultDisk(), newScript(t)
	defer os.RemoveAll(dir)
	defer func() {
		if t.Failed() {
			t.Logf("operation %d and in recovery operation %d, %s, were failed", n, m, d.failed)
		}
	}()
	d.set(n, true, effect)
	s, err := openFolder(t.Context(), dir, Options{NoSync: true}, d)
	if err == nil {
		sc.s = s
		sc.play()
		s.Close()
		if sc.failed == nil {
			return false
		}
	}
	d.set(m, true, effect)
	again, err := openFolder(t.Context(), dir, Options{NoSync: true}, d)
	cut := err != nil
	if err == nil {
		for name := range sc.journals {
			_, err := contents(t.Context(), again, name)
			if err != nil && !errors.Is(err, store.ErrDropped) && !errors.Is(err, store.ErrPoisoned) {
				t.Fatalf("Read of %s in a recovery cut short = %v", name, err)
			}
			cut = cut || errors.Is(err, store.ErrPoisoned)
		}
		for key := range sc.cells {
			_, err := again.Get(t.Context(), key)
			cut = cut || errors.Is(err, store.ErrPoisoned)
		}
		again.Close()
	}
	sc.s = mustOpen(t, dir, healthy)
	sc.check()
	sc.extend()
	sc.check()
	sc.s.Close()
	return cut
}
