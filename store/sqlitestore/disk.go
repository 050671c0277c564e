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

// walFile is a WAL. It grows in pieces, because a sync that has to record a
// new length takes at least twice as long. And it writes a frame in one piece,
// where SQLite writes the head and then the page.
type walFile struct {
	file
	size  int64  // of the file, as far as is known
	end   int64  // of the last write
	frame []byte // the head of the frame at end, while its page is not written
}

const (
	walPiece  = 256 << 10 // what a WAL grows by: some 25 appends
	frameHead = 24        // the size of a frame's head
)

// WriteAt implements vfs.File. It holds back the head of a frame that follows the
// last one, until the next call, in which SQLite writes the page.
func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	if len(f.frame) > 0 && off == f.end+frameHead {
		f.frame = append(f.frame, p...)
		return len(p), f.flush()
	}
	if err := f.flush(); err != nil {
		return 0, err
	}
	if len(p) == frameHead && off == f.end {
		f.frame = append(f.frame, p...)
		return len(p), nil
	}
	return len(p), f.write(p, off)
}

// flush writes what was held back.
func (f *walFile) flush() error {
	if len(f.frame) == 0 {
		return nil
	}
	p := f.frame
	f.frame = p[:0]
	return f.write(p, f.end)
}

// write writes zeros after what makes the file longer. SQLite takes them for what
// it always expects after the last frame: remains of an earlier WAL, whose
// checksums are wrong. Nobody else's frames can be there, since only the holder
// of the database's write lock writes to a WAL.
func (f *walFile) write(p []byte, off int64) error {
	if off == 0 {
		f.size = 0 // another process may have truncated it
	}
	_, err := f.file.WriteAt(p, off)
	f.end = off + int64(len(p))
	if err != nil || f.end <= f.size {
		return err
	}
	if f.size, err = f.Size(); err == nil && f.size <= f.end {
		f.grow()
	}
	return err
}

var zeros [walPiece]byte

// grow extends the file beyond end, unless there is no room.
func (f *walFile) grow() {
	f.size = f.end - f.end%walPiece + walPiece
	if _, err := f.file.WriteAt(zeros[:f.size-f.end], f.end); err != nil {
		f.file.Truncate(f.end)
	}
}

// ReadAt implements vfs.File.
func (f *walFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

// Sync implements vfs.File.
func (f *walFile) Sync(flags vfs.SyncFlag) error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.file.Sync(flags)
}

// Truncate implements vfs.File.
func (f *walFile) Truncate(size int64) error {
	f.size, f.frame = 0, f.frame[:0]
	return f.file.Truncate(size)
}

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
