package sqlitestore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
	"github.com/perdure/perdure/store/storetest"
)

// TestMain lets the test binary be the other process of a test.
func TestMain(m *testing.M) {
	if run := children[os.Getenv(childEnv)]; run != nil {
		run(os.Getenv(childDir))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(ctx context.Context, dir string) (store.Store, error) {
	return sqlitestore.Open(ctx, filepath.Join(dir, "test.db"), sqlitestore.Options{})
}

// openTest opens a store that is closed when the test ends.
func openTest(t *testing.T, dir string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) { storetest.Run(t, open) }

func TestKill(t *testing.T) {
	storetest.Kill(t, open, storetest.KillOptions{Kills: 200, Acks: 20_000})
}

func TestPoison(t *testing.T) {
	kinds := map[string]failure{
		"full disk":    {write: sqlite3.FULL, sync: sqlite3.IOERR_FSYNC},
		"failing disk": {write: sqlite3.IOERR_WRITE, sync: sqlite3.IOERR_FSYNC},
		"failing sync": {sync: sqlite3.IOERR_FSYNC},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			storetest.Poison(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
				s, err := open(ctx, dir)
				return s, func(on bool) {
					if on {
						failDisk(dir, kind)
					} else {
						failDisk(dir, failure{})
					}
				}, err
			})
		})
	}
}

func TestFullDiskIsErrFull(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	failDisk(dir, failure{write: sqlite3.FULL})
	defer failDisk(dir, failure{})
	_, err := s.Append(t.Context(), "j", 0, []byte("x"))
	if !errors.Is(err, store.ErrFull) || !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("Append on a full disk = %v, want ErrFull and ErrPoisoned", err)
	}
}

// TestFailedCheckpoint has the disk fail where SQLite itself would not tell:
// when the WAL, with everything in it, is copied into the database.
func TestFailedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	// Drop's transaction goes to the WAL, its checkpoint to the database.
	failDisk(filepath.Join(dir, "test.db"), failure{sync: sqlite3.IOERR_FSYNC})
	defer failDisk(filepath.Join(dir, "test.db"), failure{})
	if err := s.Drop(t.Context(), "j"); !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("Drop whose checkpoint fails = %v, want ErrPoisoned", err)
	}
	if _, err := s.Append(t.Context(), "k", 0, []byte("x")); !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("Append after it = %v, want ErrPoisoned", err)
	}
}
