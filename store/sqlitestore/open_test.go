package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

func run(t *testing.T, c *sqlite3.Conn, query string) {
	t.Helper()
	if err := c.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// openBusy opens a store that does not wait long for locks.
func openBusy(t *testing.T, dir string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{BusyTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestOpenRefuses opens what is no store. Nothing of it may be changed.
func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want error
		says string
	}{
		{"text", func(t *testing.T, path string) { write(t, path, "hello") }, store.ErrForeign, "choose another path"},
		{"long text", func(t *testing.T, path string) { write(t, path, strings.Repeat("hello", 10_000)) }, store.ErrForeign, "choose another path"},
		{"zeros", func(t *testing.T, path string) { write(t, path, string(make([]byte, 8192))) }, store.ErrForeign, "choose another path"},
		{"another database", func(t *testing.T, path string) { execFile(t, path, "CREATE TABLE t (x)") }, store.ErrForeign, "choose another path"},
		{"another program's empty database", func(t *testing.T, path string) { execFile(t, path, "PRAGMA application_id=7") }, store.ErrForeign, "choose another path"},
		{"other encoding", func(t *testing.T, path string) {
			execFile(t, path, "PRAGMA encoding='UTF-16'; CREATE TABLE t (x); DROP TABLE t")
		}, store.ErrForeign, "UTF-16"},
		{"newer", func(t *testing.T, path string) { makeStore(t, path); execFile(t, path, "PRAGMA user_version=3") }, store.ErrNewer, "newer binary"},
		{"impossible format", func(t *testing.T, path string) { makeStore(t, path); execFile(t, path, "PRAGMA user_version=-3") }, store.ErrCorrupt, "format is -3"},
		{"table missing", func(t *testing.T, path string) { makeStore(t, path); execFile(t, path, "DROP TABLE entries") }, store.ErrCorrupt, "entries"},
		{"two names", func(t *testing.T, path string) {
			makeStore(t, path)
			if err := os.Link(path, path+"-link"); err != nil || runtime.GOOS == "windows" {
				t.Skipf("no hard links here: %v", err)
			}
		}, store.ErrInvalid, "hard links"},
		{"folder", func(t *testing.T, path string) { mkdir(t, path) }, store.ErrInvalid, "is a folder"},
		{"no permission", func(t *testing.T, path string) { makeStore(t, path); readOnly(t, path) }, fs.ErrPermission, "check the permissions"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			test.make(t, path)
			before, _ := os.ReadFile(path)
			s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{})
			if err == nil {
				s.Close()
				t.Fatal("Open succeeded")
			}
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open = %v, want %v that says %q and %s", err, test.want, test.says, path)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("Open changed the file")
			}
		})
	}
}

func TestOpenPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, url := range []string{"sqlite:a.db", "sqlite://" + filepath.ToSlash(filepath.Join(dir, "b.db")), "sqlite::memory:", "sqlite:file:c.db?mode=memory"} {
		if runtime.GOOS == "windows" && url != "sqlite:a.db" {
			continue // such names do not exist there
		}
		s, err := store.Open(t.Context(), url, store.Require(store.Process))
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		s.Close()
	}
	if runtime.GOOS != "windows" {
		for _, name := range []string{"a.db", "b.db", ":memory:", "file:c.db?mode=memory"} {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("the store is not where its URL says: %v", err)
			}
		}
	}
	if _, err := store.Open(t.Context(), "sqlite:"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("empty path: %v, want ErrInvalid", err)
	}
	if _, err := store.Open(t.Context(), "sqlite://host/a.db"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a host: %v, want ErrInvalid", err)
	}
	if _, err := store.Open(t.Context(), "sqlite:nowhere/a.db"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "create its folder") {
		t.Errorf("folder missing: %v, want ErrNotExist and advice", err)
	}
}

// TestOpenKeepsForeignTables has a backup tool add a table of its own.
func TestOpenKeepsForeignTables(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "test.db")
	makeStore(t, path)
	execFile(t, path, "CREATE TABLE _backup (x)")
	openTest(t, dir)
}

func TestDurability(t *testing.T) {
	tests := map[string]struct {
		dir  string
		opts sqlitestore.Options
		want store.Durability
	}{
		"full":   {t.TempDir(), sqlitestore.Options{}, store.Power},
		"normal": {t.TempDir(), sqlitestore.Options{Synchronous: sqlitestore.Normal}, store.Process},
	}
	if shm, err := os.MkdirTemp("/dev/shm", "perdure"); err == nil {
		defer os.RemoveAll(shm)
		tests["memory"] = struct {
			dir  string
			opts sqlitestore.Options
			want store.Durability
		}{shm, sqlitestore.Options{}, store.Process}
	}
	for name, test := range tests {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(test.dir, "test.db"), test.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Durability(); got != test.want {
			t.Errorf("%s: durability is %v, want %v", name, got, test.want)
		}
		s.Close()
	}
}

// TestBusy has another connection hold the database's lock.
func TestBusy(t *testing.T) {
	dir := t.TempDir()
	s := openBusy(t, dir)
	c := rawConn(t, dir)
	defer c.Close()
	run(t, c, "BEGIN IMMEDIATE")

	_, err := s.Append(t.Context(), "j", 0, []byte("x"))
	if !errors.Is(err, store.ErrBusy) || !strings.Contains(err.Error(), "test.db is busy") || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("Append behind a lock = %v, want that the file is busy and nothing was written", err)
	}
	if _, err := s.Get(t.Context(), "c"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get behind a lock = %v, want ErrNotFound: readers do not wait", err)
	}

	patient := openTest(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error)
	for range 3 { // one waits for the lock, the others for it
		go func() { _, err := patient.Append(ctx, "j", 0, []byte("x")); answers <- err }()
	}
	cancel()
	for range 3 {
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("Append whose context ends behind a lock = %v, want Canceled", err)
		}
	}
	for range 3 {
		go func() { _, err := patient.Append(t.Context(), "j", 0, []byte("x")); answers <- err }()
	}
	if err := patient.Close(); err != nil {
		t.Error(err)
	}
	for range 3 {
		if err := <-answers; !errors.Is(err, store.ErrClosed) {
			t.Errorf("Append while the store closes behind a lock = %v, want ErrClosed", err)
		}
	}
	run(t, c, "COMMIT")
	if last, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil || last != 1 {
		t.Errorf("Append when the lock is gone = %d, %v; want 1", last, err)
	}
}

// TestQuiet demands that a store which nobody uses has no goroutine.
func TestQuiet(t *testing.T) {
	before := runtime.NumGoroutine()
	s := openTest(t, t.TempDir())
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.ReadAll(t.Context(), s, "j", 0); err != nil {
		t.Fatal(err)
	}
	for range s.Watch(t.Context(), "j") {
		break
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, and %d before the store was opened", runtime.NumGoroutine(), before)
		}
	}
}

// TestLinked opens a store through a link. All that belongs to it is beside the
// file, where those find it who open that by its own name.
func TestLinked(t *testing.T) {
	dir, links := t.TempDir(), t.TempDir()
	makeStore(t, filepath.Join(dir, "test.db"))
	link := filepath.Join(links, "link.db")
	if err := os.Symlink(filepath.Join(dir, "test.db"), link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	s, err := sqlitestore.Open(t.Context(), link, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if found, err := os.ReadDir(links); err != nil || len(found) != 1 {
		t.Errorf("beside the link are %v, %v; want only itself", found, err)
	}
	for _, name := range []string{"test.db-wal", "test.db-scrub"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := os.Symlink("nothing", filepath.Join(links, "broken.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlitestore.Open(t.Context(), filepath.Join(links, "broken.db"), sqlitestore.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a link to nothing = %v, want ErrNotExist", err)
	}
}

// TestMovedFile has the file of an open store removed, moved or replaced. Writes
// are then refused, and go on in what is there once the store is opened again.
func TestMovedFile(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			makeStore(t, path+".new")
			return os.Rename(path+".new", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			if err := move(filepath.Join(dir, "test.db")); err != nil {
				t.Skipf("open files cannot be %s here: %v", name, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var err error
			for after := uint64(0); err == nil; time.Sleep(time.Millisecond) {
				after, err = s.Append(ctx, "j", after, []byte("x"))
			}
			if !errors.Is(err, store.ErrPoisoned) || !strings.Contains(err.Error(), "removed, moved or replaced") {
				t.Errorf("Append = %v, want ErrPoisoned that tells why", err)
			}
			s.Close()
			if _, err := openTest(t, dir).Append(t.Context(), "j", 0, []byte("x")); err != nil {
				t.Errorf("Append after opening it again = %v", err)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func readOnly(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() == 0 { // who may write everything but this
		if out, err := exec.Command("chattr", "+i", path).CombinedOutput(); err != nil {
			t.Skipf("no file can be kept from root here: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("chattr", "-i", path).CombinedOutput(); err != nil {
				t.Errorf("chattr -i: %v: %s", err, out)
			}
		})
		return
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
}

func makeStore(t *testing.T, path string) {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func execFile(t *testing.T, path, query string) {
	t.Helper()
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, query)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSQLiteVersion wants a SQLite whose WAL does not lose committed frames
// when a checkpoint and a writer race to reset it.
func TestSQLiteVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	makeStore(t, path)
	said, err := sqlitestore.Inspect(path, "SELECT sqlite_version()", "SELECT nonsense")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(said[0], "%d.%d.%d", &major, &minor, &patch); err != nil || major*1e6+minor*1e3+patch < 3051003 {
		t.Errorf("SQLite is %s, want 3.51.3 or newer; %v", said[0], err)
	}
	if !strings.Contains(said[1], "nonsense") {
		t.Errorf("Inspect says %q of a bad query", said[1])
	}
}
