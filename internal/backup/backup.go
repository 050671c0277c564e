// Package backup copies a store that is in use into a folder, checks the copy, and
// restores it. It may import store, the package threads and archive, and what those
// import.
//
// A backup is a folder with a store that its own driver opens, and BACKUP.json,
// which describes it and is written last: without that file a folder is no backup.
// It is built beside its place under a hidden name and moved there when it is
// complete, so that nothing at its place is ever half a backup.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// manifestName is the file that makes a folder a backup.
const manifestName = "BACKUP.json"

// format is the number of the format that this package reads and writes.
const format = 1

// Manifest describes a backup.
type Manifest struct {
	Perdure  string    `json:"perdure"` // "backup"
	Format   int       `json:"format"`
	Store    string    `json:"store"` // URL of the store, relative to the folder
	Taken    time.Time `json:"taken"` // everything acknowledged before is in it
	Sealed   bool      `json:"sealed,omitempty"`
	Threads  int       `json:"threads"`
	Journals int       `json:"journals"`
	Entries  uint64    `json:"entries"`
	Cells    int       `json:"cells"`
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	SHA256   string    `json:"sha256"`        // of the names, sizes and contents of all other files
	Sum      string    `json:"sum,omitempty"` // of the other members, see sumOf; earlier versions did not write it
}

// ErrUnsupported means that a store has no files here that could be copied.
var ErrUnsupported = errors.New("backup: only SQLite and file stores can be backed up by this command; for PostgreSQL use pg_dump or pg_basebackup, for Redis its RDB and AOF files, for NATS the command nats account backup, for S3 the versions of the bucket: see docs/operations.md")

// Take copies a store into the new folder dir, and checks the copy: every entry and
// cell is read back, and every thread verified along its hash chain unless the store
// is sealed. Whoever interrupts it finds nothing at dir.
func Take(ctx context.Context, s store.Store, dir string) (m *Manifest, err error) {
	b, ok := store.As[store.Backuper](s)
	if !ok {
		return nil, ErrUnsupported
	}
	err = create(dir, func(partial string) error {
		m = &Manifest{Perdure: "backup", Format: format, Taken: time.Now().UTC().Truncate(time.Millisecond)}
		if m.Store, err = b.Backup(ctx, partial); err != nil {
			return err
		}
		if err := m.check(ctx, partial); err != nil {
			return fmt.Errorf("checking the copy: %w", err)
		}
		if err := m.measure(ctx, partial); err != nil {
			return err
		}
		return m.save(partial)
	})
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return m, nil
}

// create makes the folder dir with what fill puts into it, or nothing.
func create(dir string, fill func(partial string) error) (err error) {
	defer func() { err = asFull(err) }()
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := CheckNew(dir); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-partial-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(partial)
		}
	}()
	if err := fill(partial); err != nil {
		return err
	}
	if err := syncFolder(partial); err != nil {
		return err
	}
	if err := CheckNew(dir); err != nil {
		return err
	}
	if err := os.Rename(partial, dir); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

// asFull makes an error of a disk without space match store.ErrFull.
func asFull(err error) error {
	if errors.Is(err, store.ErrFull) || !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrFull, err)
}

// CheckNew returns an error if there is something at a path.
func CheckNew(path string) error {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%w: %s exists; name a new place", fault.ErrInvalid, path)
	}
	return err
}

// measure fills in the size and digest of the files in a folder.
func (m *Manifest) measure(ctx context.Context, dir string) error {
	sum := sha256.New()
	err := each(dir, func(name, path string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(sum, "%q %d\n", name, info.Size())
		n, err := io.Copy(sum, f)
		if err == nil && n != info.Size() {
			err = fmt.Errorf("%s changed while it was read", path)
		}
		m.Files, m.Bytes = m.Files+1, m.Bytes+n
		return err
	})
	m.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return err
}

// each calls see for the files in a folder and below it, in the order of their names,
// except for the manifest. Names have slashes.
func each(dir string, see func(name, path string, info fs.FileInfo) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == manifestName {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is not a file", fault.ErrInvalid, path)
		}
		return see(filepath.ToSlash(name), path, info)
	})
}

// save writes the manifest.
func (m *Manifest) save(dir string) error {
	data, err := json.Marshal(m)
	if err == nil {
		m.Sum, err = sumOf(data)
	}
	if err == nil {
		data, err = json.MarshalIndent(m, "", "  ")
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, manifestName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// sumOf returns the SHA-256 of a manifest without its sum, whatever members it has.
func sumOf(data []byte) (string, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &members); err != nil {
		return "", err
	}
	delete(members, "sum")
	plain, err := json.Marshal(members) // sorted and without spaces
	sum := sha256.Sum256(plain)
	return hex.EncodeToString(sum[:]), err
}

// Read returns the manifest of a backup.
func Read(dir string) (*Manifest, error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("backup: %w: %s has no %s, so it is no backup, or one that was not completed", fault.ErrInvalid, dir, manifestName)
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return parse(data)
}

func parse(data []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(data, m); err != nil || m.Perdure != "backup" {
		return nil, fmt.Errorf("backup: %w: %s does not describe a backup", fault.ErrCorrupt, manifestName)
	}
	if m.Format > format {
		return nil, fmt.Errorf("backup: %w: the backup has format %d, but this program reads only up to %d; use a newer version", fault.ErrNewer, m.Format, format)
	}
	if scheme, name, ok := strings.Cut(m.Store, ":"); !ok || scheme == "" || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return nil, fmt.Errorf("backup: %w: %s names the store %q", fault.ErrCorrupt, manifestName, m.Store)
	}
	if sum, err := sumOf(data); m.Sum != "" && (err != nil || sum != m.Sum) {
		return nil, fmt.Errorf("backup: %w: %s is not as it was written; use another backup", fault.ErrCorrupt, manifestName)
	}
	return m, nil
}

// Verify returns the manifest of a backup if its files are as they were written.
func Verify(ctx context.Context, dir string) (*Manifest, error) {
	m, err := Read(dir)
	if err != nil {
		return nil, err
	}
	found := new(Manifest)
	if err := found.measure(ctx, dir); err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return m, m.matches(found)
}

func (m *Manifest) matches(found *Manifest) error {
	if found.SHA256 != m.SHA256 {
		return fmt.Errorf("backup: %w: the files are not as they were written (%d files with %d bytes, and there were %d with %d); use another backup", fault.ErrCorrupt, found.Files, found.Bytes, m.Files, m.Bytes)
	}
	return nil
}

// syncFolders makes the names in a folder and in those below it survive a power failure.
func syncFolders(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = syncFolder(path)
		}
		return err
	})
}

// syncFolder makes the names in a folder survive a power failure, where that is
// possible.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && os.PathSeparator == '/' {
		return err
	}
	return nil
}
