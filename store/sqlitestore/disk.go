package sqlitestore

import (
	"errors"
	"io/fs"
	"os"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// diskName is what SQLite calls disk.
const diskName = "perdure"

func init() { vfs.Register(diskName, disk{vfs.Find("")}) }

// disk is the driver's own layer over the file system, completed where it does
// less than SQLite's: files beside the database get its mode and owner, so that
// whoever may use the one may use all, and a full disk is told as such.
type disk struct{ vfs.VFS }

// OpenFilename implements vfs.VFSFilename.
func (d disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if flags&vfs.OPEN_CREATE != 0 && flags&(vfs.OPEN_WAL|vfs.OPEN_MAIN_JOURNAL) != 0 {
		paths := []string{name.String()}
		if flags&vfs.OPEN_WAL != 0 {
			// The lock under which the WAL is opened keeps its index too.
			paths = append(paths, name.Database()+"-shm")
		}
		for _, path := range paths {
			if err := createLike(path, name.Database()); err != nil {
				return nil, flags, vfs.SystemError(err, sqlite3.CANTOPEN)
			}
		}
	}
	f, flags, err := d.VFS.(vfs.VFSFilename).OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	if flags&vfs.OPEN_WAL != 0 {
		return &walFile{file: file{f}}, flags, nil
	}
	if flags&vfs.OPEN_MAIN_DB != 0 {
		return &dbFile{file: file{f}}, flags, nil
	}
	return file{f}, flags, nil
}

// createLike creates a file with the mode and owner of another, unless it is
// there or may not be created: what follows will tell that.
func createLike(path, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	giveTo(f, info)
	return f.Chmod(mode) // whatever the umask is
}

// file is a file whose writes tell a full disk.
type file struct{ vfs.File }

var (
	_ vfs.FileUnwrap       = file{}
	_ vfs.FileHasMoved     = file{}
	_ vfs.FileSharedMemory = file{}
)

func (f file) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, tellFull(err)
}

func (f file) Truncate(size int64) error { return tellFull(f.File.Truncate(size)) }

func (f file) Sync(flags vfs.SyncFlag) error { return tellFull(f.File.Sync(flags)) }

// tellFull gives an error that says that there is no room SQLite's code for it.
func tellFull(err error) error {
	if noRoom(err) {
		return vfs.SystemError(err, sqlite3.FULL)
	}
	return err
}

// Unwrap implements vfs.FileUnwrap.
func (f file) Unwrap() vfs.File { return f.File }

// HasMoved implements vfs.FileHasMoved.
func (f file) HasMoved() (bool, error) {
	if m, ok := f.File.(vfs.FileHasMoved); ok {
		return m.HasMoved()
	}
	return false, sqlite3.NOTFOUND
}

// SharedMemory implements vfs.FileSharedMemory.
func (f file) SharedMemory() vfs.SharedMemory {
	if m, ok := f.File.(vfs.FileSharedMemory); ok {
		return m.SharedMemory()
	}
	return nil
}
