//go:build linux

package powercut

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCut shows that the disk forgets what was not synced, and only that.
func TestCut(t *testing.T) {
	d := New(t)
	write := func(name string, sync bool) {
		t.Helper()
		f, err := os.Create(filepath.Join(d.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(name); err != nil {
			t.Fatal(err)
		}
		if sync {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		write("synced", true)
		write("not synced", false)
		other := exec.Command("sleep", "60")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		err := d.Cut(other.Process.Pid)
		err = errors.Join(err, other.Process.Kill())
		_ = other.Wait() // killed
		if err := errors.Join(err, d.Restore()); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(d.Dir(), "synced")); err != nil || string(data) != "synced" {
			t.Fatalf("the synced file holds %q, %v", data, err)
		}
		if data, err := os.ReadFile(filepath.Join(d.Dir(), "not synced")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the file that was not synced holds %q, %v", data, err)
		}
	}
}
