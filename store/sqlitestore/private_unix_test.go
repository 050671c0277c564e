//go:build unix

package sqlitestore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
)

// umask sets the umask of this process for the rest of the test.
func umask(t *testing.T, mask int) {
	was := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(was) })
}

// fill opens a store and writes to it. The store is closed at the test's end.
func fill(t *testing.T, url string) {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "c", []byte("x"), ""); err != nil {
		t.Fatal(err)
	}
}

// modes returns the permissions of all files and folders in a folder.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		found[strings.TrimPrefix(path, dir)] = info.Mode().Perm()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNewStoresArePrivate(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o077} {
		umask(t, mask)
		for _, url := range []string{"sqlite:DIR/app.db", "file:DIR/app"} {
			dir := t.TempDir()
			os.Chmod(dir, 0o700) // not the umask's
			fill(t, strings.Replace(url, "DIR", dir, 1))
			found := modes(t, dir)
			if len(found) < 3 {
				t.Errorf("%s has only %v", url, found)
			}
			for name, mode := range found {
				if mode&0o077 != 0 || mode&0o600 != 0o600 {
					t.Errorf("umask %03o: %s%s has mode %03o, want its owner's only", mask, url, name, mode)
				}
			}
		}
	}
}

// TestSharedStoresStayShared opens a store that its owner has given to a group
// as a process with the usual umask.
func TestSharedStoresStayShared(t *testing.T) {
	umask(t, 0o022)
	dir := t.TempDir()
	file := filepath.Join(dir, "app.db")
	makeStore(t, file)
	if err := os.Chmod(file, 0o660); err != nil {
		t.Fatal(err)
	}
	fill(t, "sqlite:"+file)
	for name, mode := range modes(t, dir) {
		if mode != 0o660 {
			t.Errorf("%s has mode %03o, want that of the database", name, mode)
		}
	}
}

// TestSharedByMembers has a store that a group shares, as the package comment
// says. Someone in the group, whose files are his own group's otherwise, comes
// first, and leaves nothing that locks out its owner or keeps them apart.
func TestSharedByMembers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	const owner, member, group = 60001, 60002, 60003
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	file := filepath.Join(dir, "test.db")
	makeStore(t, file)
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skipf("no copy of this program: %v", err)
	}
	exe := filepath.Join(filepath.Dir(dir), "exe")
	if err := errors.Join(os.Chown(file, owner, group), os.Chmod(file, 0o660), os.Chown(dir, owner, group), os.Chmod(dir, 0o770),
		os.WriteFile(exe, program, 0o700), os.Chmod(exe, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	begin := func(user uint32, what string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, exe)
		cmd.Env = append(os.Environ(), childEnv+"="+what, childDir+"="+dir)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{group}}}
		if err := cmd.Start(); err != nil {
			t.Skipf("cannot be user %d: %v", user, err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	begin(member, "watch")
	var strange []string
	for n := 0; n < 6 || len(strange) > 0; time.Sleep(time.Millisecond) { // with a socket
		if ctx.Err() != nil {
			t.Fatalf("of %d files that someone in the group makes, these are not the group's: %q", n, strange)
		}
		n, strange = 0, nil
		for name := range modes(t, dir) {
			n++
			if info, err := os.Lstat(dir + name); err == nil && info.Sys().(*syscall.Stat_t).Gid != group {
				strange = append(strange, name)
			}
		}
	}
	hears := begin(owner, "hear")
	begin(member, "cast")
	if err := hears.Wait(); err != nil {
		t.Errorf("the owner hears nothing: %v", err)
	}
}

func TestFolderForEveryone(t *testing.T) {
	for _, url := range []string{"sqlite:DIR/app.db", "file:DIR/app", "file:DIR"} {
		dir := t.TempDir()
		url = strings.Replace(url, "DIR", dir, 1)
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(t.Context(), url); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "--shared-folder") {
			t.Errorf("%s in a folder for everyone = %v, want ErrInvalid and what to do", url, err)
		}
		if found := modes(t, dir); len(found) > 0 {
			t.Errorf("%s left %v", url, found)
		}
		if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatalf("%s in a folder with the sticky bit: %v", url, err)
		}
		s.Close()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		s, err = store.Open(t.Context(), url)
		if err != nil {
			t.Fatalf("%s that exists: %v", url, err)
		}
		s.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		s, err = store.Open(t.Context(), url+store.SharedFolder)
		if err != nil {
			t.Fatalf("%s: %v", url+store.SharedFolder, err)
		}
		s.Close()
	}
}
